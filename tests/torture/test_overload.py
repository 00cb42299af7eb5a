"""A flood, nearly all of it for one key, beside a slow function: bounded memory, and every event in the end."""

from __future__ import annotations

import time

import psutil
import psycopg
import pytest

from .cluster import Cluster
from .figures import Figures
from .oracle import MIXED_JS, Generator, check_exact, publish

pytestmark = pytest.mark.torture

SLOW_JS = """export const config = { source: 'slow_in', sink: 'slow_out', key: 'userId' };
stream.map(event => { for (let i = 0, n = 0; i < 200000; i++) n += i; return event; });
"""


class Skewed(Generator):
    """Nine of ten events have one key."""

    def events(self, count: int) -> list[dict[str, object]]:  # type: ignore[override]
        keys = self.keys
        made = []
        for _ in range(count):
            self.keys = keys[:1] if self.random.random() < 0.9 else keys
            made += super().events(1)
        self.keys = keys
        return made


def test_a_flood_for_one_key_is_worked_off_in_bounded_memory(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    generator = Skewed(seed, 100, mixed=True)
    largest = 0
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(MIXED_JS, "totals", "--partitions=8")
        cluster.deploy(SLOW_JS, "slow", "--partitions=2")
        cluster.wait_balanced("totals", 2)
        before = max(psutil.Process(worker.pid).memory_info().rss for worker in cluster.workers())
        publish(cluster.db, "slow_in", [{"id": n, "userId": f"u{n}", "amount": 1} for n in range(1000 * rounds)])
        for _ in range(10 * rounds):
            publish(cluster.db, "events", generator.events(2000))
            # Others' partitions are not held up by the one that has it all.
            _say_hello(cluster)
            largest = max(largest, *(psutil.Process(w.pid).memory_info().rss for w in cluster.workers()))
        cluster.drain("totals")
        cluster.drain("slow")
        generator.expected["hello"] = [(-1 - n, 1) for n in range(10 * rounds)]
        generator.made += 10 * rounds
        check_exact(cluster.db, generator)
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'slow_out'") == 1000 * rounds
        assert largest < before + 400 * 2**20
    figures.add("flood for one key", 1, events=generator.made, note=f"at most {largest / 2**20:.0f} MB in a worker")


def _say_hello(cluster: Cluster) -> None:
    """Publish one event of a key of its own, and wait for its output."""
    began = time.monotonic()
    count = cluster.value("select count(*) from jeet.stream_events where stream = 'totals' and key = 'hello'")
    with psycopg.connect(cluster.url, autocommit=True) as db:
        publish(db, "events", [{"id": -1 - count, "userId": "hello", "amount": 1}])
    while cluster.value("select count(*) from jeet.stream_events where stream = 'totals' and key = 'hello'") == count:
        assert time.monotonic() - began < 60
        time.sleep(0.05)
