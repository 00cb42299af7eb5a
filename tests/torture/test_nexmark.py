"""Nexmark: what each query has put out equals its oracle's rows, though workers are killed while it runs.

A few thousand events, all queries at once; test_nexmark_million.py has a million.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from bench.nexmark import lines

from .cluster import Cluster, wait_for
from .nexmark import oracle
from .nexmark.runs import PARTITIONS, Settled, settings, wrong
from .oracle import publish

SMALL, SMALL_SLICE = 3_600, 300


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
    assert wrong(small, query) == []
