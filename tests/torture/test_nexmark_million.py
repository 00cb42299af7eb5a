"""Nexmark over a million events, all queries at once, while workers are killed: each puts out its oracle's rows."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from bench import nexmark

from .cluster import JEET, Cluster
from .figures import Figures
from .nexmark import oracle
from .nexmark.runs import PARTITIONS, Settled, settings, wrong

FULL = 1_000_000
GIVE_UP_S = 1800


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
    assert wrong(full, query) == []
