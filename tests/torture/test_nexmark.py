"""Nexmark: what each query has put out equals its oracle's rows, though workers are killed while it runs.

Small, all queries at once, in every run; a million events, one query after another, in `make torture`.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator

import pytest
from bench import nexmark
from bench.nexmark import Workload, lines

from .cluster import Cluster, wait_for
from .nexmark import oracle
from .oracle import publish

PARTITIONS = 4
SMALL, SMALL_SLICE = 6_000, 300
FULL = 1_000_000
HOUR_S = 3600


def settings(events: int, rate: float) -> Workload:
    """They begin in the third part of the day and, at this rate, end in the fourth (q14)."""
    starts_ms = nexmark.START_MS + int((20 * HOUR_S - events / rate / 2) * 1000)
    return Workload(events, seed=17, rate=rate, start_ms=starts_ms, disorder_ms=oracle.DISORDER_MS)


def kill_one(cluster: Cluster, chance: random.Random) -> None:
    """kill -9 of a worker, and another one in its place."""
    worker = chance.choice(cluster.workers())
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    cluster.start("worker")


class Settled:
    """Whether a query has done with all events before the closing ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        closing = cluster.sql(
            "select max((value ->> 'dateTime')::bigint) / 1000, extract(epoch from max(ts))::bigint"
            " from jeet.stream_events where stream = %s and ts is not null",
            oracle.STREAM,
        )
        self._event_s, self._published_s = closing[0]

    def __call__(self, query: str) -> bool:
        before_s = (self._published_s if query == "q12" else self._event_s) - HOUR_S
        statement = (oracle.FOLDER / "settled.sql").read_bytes()
        row = self._cluster.db.execute(statement, {"function": query, "before_s": before_s}).fetchone()
        return row is not None and bool(row[0])


def check(cluster: Cluster, query: str) -> None:
    """The rows, and that nothing was late or failed."""
    assert cluster.sql("select error, event from jeet.dead_letters where function = %s limit 3", query) == []
    assert oracle.differences(cluster.db, query) == []
    assert cluster.value(f"select count(*) from jeet.stream_events where stream = 'nexmark_{query}'") > 0


@pytest.fixture(scope="module")
def small(module_database_url: str, rounds: int) -> Iterator[Cluster]:
    """A few thousand events, published while all queries run and, between two slices of them, a worker is killed."""
    events = [json.loads(line) for line in lines(settings(SMALL, rate=20))]
    chance = random.Random(5)
    slices = range(0, SMALL, SMALL_SLICE)
    fatal = set(chance.sample(slices[2:-2], rounds))
    with Cluster(module_database_url, workers=2) as cluster:
        cluster.jeet("create_stream", oracle.STREAM, f"--partitions={PARTITIONS}")
        for query in oracle.QUERIES:
            cluster.jeet("deploy", str(oracle.FUNCTIONS / f"{query}.js"))
        for start in slices:
            publish(cluster.db, oracle.STREAM, events[start : start + SMALL_SLICE])
            if start in fatal:
                kill_one(cluster, chance)
        oracle.publish_closing(cluster.db, events, PARTITIONS)
        oracle.load(cluster.db)
        yield cluster


@pytest.mark.drill
@pytest.mark.parametrize("query", oracle.QUERIES)
def test_with_a_worker_killed_a_query_equals_its_oracle_to_the_row(small: Cluster, query: str) -> None:
    settled = Settled(small)
    wait_for(lambda: settled(query), f"{query} has nothing more to do", 120)
    check(small, query)
