"""Workers come and go in crowds: partitions are shared again within seconds, nobody deadlocks, nothing is lost."""

from __future__ import annotations

import psycopg
import pytest

from .cluster import Cluster
from .figures import Figures
from .storm import Storm, measure

pytestmark = pytest.mark.torture

CROWD = 6


def test_a_crowd_of_workers_that_comes_and_goes(database_url: str, seed: int, rounds: int, figures: Figures) -> None:
    balanced_s: list[float] = []
    with Storm(database_url, seed, workers=1, rate=200) as storm:
        deadlocks = storm.cluster.value("select deadlocks from pg_stat_database where datname = current_database()")
        for _ in range(rounds):
            for _ in range(CROWD - 1):
                storm.cluster.start("worker")
            balanced_s.append(measure(lambda: storm.cluster.wait_balanced("totals", CROWD)))
            storm.until_all_move()
            leaving = storm.cluster.workers()[1:]
            for worker in leaving:
                worker.terminate()
            for worker in leaving:
                assert worker.wait(30) == 0, "a worker that is told to go finishes and exits with 0"
            balanced_s.append(measure(lambda: storm.cluster.wait_balanced("totals", 1)))
            storm.until_all_move()
        after = storm.cluster.value("select deadlocks from pg_stat_database where datname = current_database()")
        assert after == deadlocks
    storm.tell(figures, f"1 to {CROWD} to 1 workers", 2 * rounds, note=f"shared again within {max(balanced_s):.1f} s")


def test_processes_that_start_together_on_an_empty_database(empty_database_url: str, figures: Figures) -> None:
    with Cluster(empty_database_url, workers=0) as cluster:
        migrations = [cluster.start("migrate") for _ in range(4)]
        assert [process.wait(60) for process in migrations] == [0, 0, 0, 0]
        for _ in range(4):
            cluster.start("coordinator")
            cluster.start("worker")
        cluster.deploy("stream.map(e => e)", "copy", "--source=a", "--sink=b", "--partitions=8")
        cluster.wait_balanced("copy", 4)
        with psycopg.connect(empty_database_url, autocommit=True) as db:
            db.execute("select jeet.publish('a', '1') from generate_series(1, 100)")
        cluster.drain("copy")
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'b'") == 100
        assert cluster.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    figures.add("all started at once on an empty database", 1)
