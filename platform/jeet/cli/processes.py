"""One process each, for containers and supervisors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Done
from jeet.errors import JeetError

if TYPE_CHECKING:
    from jeet.settings import Settings


MetricsPort = Annotated[
    int | None, "answer Prometheus at /metrics on this port, 0 for any free one (default: JEET_METRICS_PORT)"
]


class Processes(Group):
    """Processes (one each, for containers)"""

    @command
    def migrate(self) -> Done:
        """Bring the database to this version's schema.

        Any number may run at once: one does the work, the others wait and find it done. Safe to repeat.
        """
        from jeet.db.migrate import migrate

        result = migrate(self.url)
        for warning in result.warnings:
            self.out.note(f"warning: {warning}")
        changes = ", ".join(result.applied) or ("functions and views" if result.refreshed else "nothing to do")
        return Done(f"migrated: {changes}", {"applied": list(result.applied), "refreshed": result.refreshed})

    @command
    def coordinator(self, *, metrics_port: MetricsPort = None) -> None:
        """Run a coordinator: it assigns tasks to workers and notices lost ones.

        Start as many as you like: one leads, the others stand by.
        """
        from jeet import coordinator

        coordinator.main(self._serving(metrics_port), self.url)

    @command
    def worker(self, *, metrics_port: MetricsPort = None) -> None:
        """Run a worker: it runs the tasks that the coordinator assigns to it.

        Start more to scale out. SIGTERM finishes the batches at hand, commits them, hands the tasks over and exits 0.
        """
        from setproctitle import setproctitle

        # First of all, so that the documented drill finds the process: kill -9 $(pgrep jeet-worker)
        setproctitle("jeet-worker")
        from jeet import worker

        worker.main(self._serving(metrics_port), self.url)

    def _serving(self, metrics_port: int | None) -> Settings:
        return self.settings if metrics_port is None else self.settings.but(metrics_port=metrics_port)

    @command
    def probe(self, kind: Annotated[Literal["worker", "coordinator"], "which process"]) -> Done:
        """Tell whether the worker or coordinator of this container is alive (exit code 0 or 1).

        Looks at the file that the process touches each second under JEET_HOME, not at the database: starting a process
        again does not bring a database back.
        """
        from jeet.alive import STALE_S, freshest_s

        age_s = freshest_s(self.settings.home, kind)
        if age_s is None or age_s > STALE_S:
            last = "never" if age_s is None else f"{age_s:.0f} s ago"
            raise JeetError(f"no {kind} is alive in {self.settings.home} (last seen {last})")
        return Done(f"alive, seen {age_s:.1f} s ago", {"kind": kind, "seen_s": round(age_s, 3)})
