"""Nexmark: what each query has put out equals its oracle's rows, though workers are killed while it runs.

Small, all queries at once, in every run; a million events, one query after another, in `make torture`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from bench import nexmark
from bench.nexmark import Workload, lines

from .cluster import JEET, Cluster, wait_for
from .figures import Figures
from .nexmark import oracle
from .oracle import publish
from .rows import settled

PARTITIONS = 4
SMALL, SMALL_SLICE = 3_600, 300
FULL = 1_000_000
HOUR_S = 3600
GIVE_UP_S = 1800


def settings(events: int, rate: float) -> Workload:
    """They begin in the third part of the day and, at this rate, end in the fourth (q14)."""
    starts_ms = nexmark.START_MS + int((20 * HOUR_S - events / rate / 2) * 1000)
    return Workload(events, seed=17, rate=rate, start_ms=starts_ms, disorder_ms=oracle.DISORDER_MS)


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
        return settled(self._cluster.db, query, before_s)


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
                cluster.replace_one(chance)
        oracle.publish_closing(cluster.db, events[-1]["dateTime"], PARTITIONS)
        oracle.load(cluster.db)
        yield cluster


@pytest.mark.drill
@pytest.mark.parametrize("query", oracle.QUERIES)
def test_with_a_worker_killed_a_query_equals_its_oracle_to_the_row(small: Cluster, query: str) -> None:
    done = Settled(small)
    wait_for(lambda: done(query), f"{query} has nothing more to do", 120)
    check(small, query)


@pytest.fixture(scope="module")
def full(module_database_url: str, figures: Figures) -> Iterator[Cluster]:
    """A million events, from the generator's command line, which all queries have read though workers were killed."""
    made = settings(FULL, rate=200)
    chance = random.Random(figures.seed)
    with Cluster(module_database_url, workers=3) as cluster:
        cluster.jeet("create_stream", oracle.STREAM, f"--partitions={PARTITIONS}")
        start = datetime.fromtimestamp(made.start_ms / 1000, UTC).isoformat()
        generate = [sys.executable, nexmark.__file__, f"--events={FULL}", f"--seed={made.seed}", f"--rate={made.rate}"]
        generate += [f"--start={start}", f"--disorder={made.disorder_ms}"]
        with subprocess.Popen(generate, stdout=subprocess.PIPE) as generator:
            command = [JEET, "publish", oracle.STREAM, "-"]
            subprocess.run(command, stdin=generator.stdout, env=cluster.environment, check=True, capture_output=True)
        assert generator.returncode == 0
        oracle.publish_closing(cluster.db, made.start_ms + int(FULL * 1000 / made.rate), PARTITIONS)
        oracle.load(cluster.db)
        assert cluster.value("select count(*) from bid") == FULL * 46 // 50 + PARTITIONS
        for query in oracle.QUERIES:
            cluster.jeet("deploy", str(oracle.FUNCTIONS / f"{query}.js"))
        done, began, kills = Settled(cluster), time.monotonic(), 0
        while behind := [query for query in oracle.QUERIES if not done(query)]:
            assert time.monotonic() < began + GIVE_UP_S, f"not done: {behind}"
            # When a fault strikes must not be the same each time; between faults there is time to get on, as whoever
            # takes over from a process that died goes on in small pieces first.
            time.sleep(chance.uniform(10, 40))
            cluster.replace_one(chance)
            kills += 1
        took_s = time.monotonic() - began
        count = FULL * len(oracle.QUERIES)
        figures.add("nexmark, kill -9", kills, events=count, note=f"{count / took_s:,.0f} events/s")
        yield cluster


@pytest.mark.torture
@pytest.mark.parametrize("query", oracle.QUERIES)
def test_with_workers_killed_again_and_again_a_million_events_give_the_oracles_rows(full: Cluster, query: str) -> None:
    check(full, query)
