"""From nothing to something that runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Record


class Start(Group):
    """Start here"""

    @command
    def up(
        self,
        *,
        workers: Annotated[int, "how many worker processes"] = 2,
        port: Annotated[int | None, "port of the HTTP gateway, which this version does not have yet"] = None,
        metrics_port: Annotated[
            int | None,
            "the coordinator answers Prometheus at /metrics here, workers on the ports after it; 0: any free",
        ] = None,
        home: Annotated[Path | None, "folder of the embedded Postgres and of caches (default: JEET_HOME)"] = None,
    ) -> None:
        """Run everything here: an embedded Postgres, a coordinator and workers.

        With JEET_DATABASE_URL set, that database is used instead of the embedded one. Processes that end are started
        again at once. Ctrl-C (or SIGTERM) stops them in order; the data stays in the home folder for the next time.

        The drill: `kill -9 $(pgrep jeet-worker)`, and watch them come back.
        """
        from jeet import up

        if port is not None:
            self.out.note(f"this version has no HTTP gateway yet: nothing listens on port {port}")
        settings = self.settings if home is None else dataclasses.replace(self.settings, home=home.absolute())
        if metrics_port is not None:
            settings = settings.but(metrics_port=metrics_port)
        up.run(settings, workers, as_json=self.out.json)

    @command
    def demo(self) -> Record | None:
        """See the main job, on real input, explained as it runs.

        Deploys a function, publishes 336,776 flights to it, kills one of the two workers in the middle, and checks
        every total by SQL. Uses a database of its own that is gone afterwards; the data set is downloaded once.
        """
        from jeet import demo

        figures = demo.run(self.settings, self.out)
        return figures if self.out.json else None

    @command
    def bench(
        self,
        *,
        events: Annotated[int, "how many to publish and process"] = 300_000,
        users: Annotated[int, "how many keys"] = 1_000,
        workers: Annotated[int, "how many worker processes"] = 2,
        rate: Annotated[int, "events a second while latency and failover are measured"] = 1_000,
        kills: Annotated[int, "how often a worker is killed"] = 5,
    ) -> Record:
        """Measure throughput, latency and failover on this machine.

        A running total per user, on a database of its own that is gone afterwards. Everything shares the machine, this
        command included. Checked at the end: as many outputs as events, and the same totals in state as in the log.
        """
        from jeet import bench

        return bench.run(self.out, events, users, workers, rate, kills)
