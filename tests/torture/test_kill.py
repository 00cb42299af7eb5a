"""Workers lost to kill -9 under load: taken over quickly, nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable

import psutil
import psycopg
import pytest
from tests.torture.cluster import JEET, Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, Load, check_exact

pytestmark = pytest.mark.drill

PARTITIONS = 8


def test_one_of_two_workers_killed_under_load_is_taken_over_and_totals_stay_exact(
    database_url: str, rounds: int, record_property: Callable[[str, object], None]
) -> None:
    generator, chance = Generator(seed=rounds, keys=200), random.Random(rounds)
    takeovers_s: list[float] = []
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(TOTALS_JS, "totals", f"--partitions={PARTITIONS}")
        cluster.wait_balanced("totals", workers=2)
        with Load(database_url, generator):
            for number in range(1, rounds + 1):
                victim = chance.choice(cluster.workers())
                partitions = wait_for(lambda victim=victim: cluster.leases_of(victim.pid), "leases of the victim")
                before = dict(
                    cluster.sql("select partition, next_offset from jeet.checkpoints where function = 'totals'")
                )
                killed_at = time.monotonic()
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
                # Taken over means that each partition of the dead worker has committed again, by its new owner.
                wait_for(
                    lambda victim=victim, partitions=partitions, before=before: (
                        cluster.value(
                            "select count(*) from jeet.leases l join jeet.workers w on w.id::text = l.worker::text"
                            " where l.partition = any(%s) and w.pid <> %s and w.status = 'running'",
                            partitions,
                            victim.pid,
                        )
                        == len(partitions)
                        and all(
                            offset > before[partition]
                            for partition, offset in cluster.sql(
                                "select partition, next_offset from jeet.checkpoints"
                                " where function = 'totals' and partition = any(%s)",
                                partitions,
                            )
                        )
                    ),
                    "the dead worker's partitions commit again",
                )
                takeovers_s.append(time.monotonic() - killed_at)
                wait_for(
                    lambda number=number: (
                        cluster.log_of("coordinator").count("Partition Redistribution Successful") >= number
                        and cluster.log_of("coordinator").count("worker disconnected") == number
                    ),
                    "the coordinator's two lines",
                )
                cluster.start("worker")
                cluster.wait_balanced("totals", workers=2)
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert cluster.log_of("coordinator").count("worker disconnected") == rounds
    record_property("takeover_median_s", round(statistics.median(takeovers_s), 3))
    record_property("takeover_max_s", round(max(takeovers_s), 3))
    print(f"takeover s: median {statistics.median(takeovers_s):.3f} max {max(takeovers_s):.3f} of {len(takeovers_s)}")


def test_all_workers_killed_on_jeet_up_are_respawned_and_totals_stay_exact(
    tmp_path_factory, rounds: int, record_property: Callable[[str, object], None]
) -> None:
    home = tmp_path_factory.mktemp("up")
    environment = {key: value for key, value in os.environ.items() if key != "JEET_DATABASE_URL"} | {
        "JEET_HOME": str(home)
    }
    log = home / "up.log"
    (home / "totals.js").write_text(TOTALS_JS)
    with log.open("wb") as output:
        up = subprocess.Popen(
            [JEET, "up", "--workers=2", f"--home={home}"], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    generator = Generator(seed=rounds + 100, keys=100)
    resumed_s: list[float] = []
    try:

        def workers() -> list[psutil.Process]:
            found = []
            for child in psutil.Process(up.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended just now
                    if child.name() == "jeet-worker":
                        found.append(child)
            return found

        wait_for(lambda: len(workers()) == 2, "two jeet-worker processes", 60)
        subprocess.run(
            [JEET, "deploy", str(home / "totals.js"), "--partitions=4"],
            env=environment,
            check=True,
            capture_output=True,
        )
        url = _database_url(environment)
        with psycopg.connect(url, autocommit=True) as db:

            def joined() -> list[psutil.Process]:
                running = {pid for (pid,) in db.execute("select pid from jeet.workers where status = 'running'")}
                return [each for each in workers() if each.pid in running]

            def progress() -> dict[int, int]:
                rows = db.execute("select partition, next_offset from jeet.checkpoints where function = 'totals'")
                return dict(rows.fetchall())

            with Load(url, generator):
                for number in range(1, rounds + 1):
                    wait_for(lambda: min(progress().values()) > 0, "all partitions move")
                    # Both have joined: one that has not yet is missed by nobody.
                    victims = wait_for(
                        lambda: found if len(found := joined()) == 2 else None,
                        "two workers that have joined",
                    )
                    for victim in victims:
                        victim.kill()
                    killed_at = time.monotonic()
                    before = progress()
                    wait_for(
                        lambda before=before: all(offset > before[p] for p, offset in progress().items()),
                        "every partition commits again",
                    )
                    resumed_s.append(time.monotonic() - killed_at)
                    wait_for(
                        lambda number=number: (
                            log.read_text(errors="replace").count("worker disconnected") >= 2 * number
                            and "Partition Redistribution Successful"
                            in log.read_text(errors="replace").rsplit("worker disconnected", 1)[1]
                        ),
                        "the coordinator's lines",
                    )
            wait_for(
                lambda: db.execute("select sum(lag) from jeet.lag where function = 'totals'").fetchone() == (0,),
                "lag 0",
                120,
            )
            check_exact(db, generator)
    finally:
        up.terminate()
        up.wait(30)
    record_property("resumed_max_s", round(max(resumed_s), 3))
    print(
        f"respawn and resume s: median {statistics.median(resumed_s):.3f} max {max(resumed_s):.3f} of {len(resumed_s)}"
    )


def _database_url(environment: dict[str, str]) -> str:
    """The embedded server's address, found the way commands find it."""
    program = (
        "from jeet.settings import Settings; from jeet.embedded import find;"
        " print(find(Settings.from_environment().home))"
    )
    import sys

    return subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()
