"""Three stages over the demo's flights, keyed twice: each day's busiest minutes equal SQL's, though workers die."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from jeet import demo_data
from jeet.errors import UsageError

from .cluster import Cluster, wait_for
from .figures import Figures
from .oracle import publish
from .rows import differences, expected, settled

FUNCTION = Path(__file__).parents[2] / "functions" / "busiest.js"
ORACLE = (Path(__file__).parent / "busiest.sql").read_text()
PARTITIONS = 4
FEW, SLICE = 6_000, 600
END = "2014-06-01T00:00:00Z"
END_S, DAY_S = 1_401_580_800, 86_400


@pytest.fixture
def flights(pytestconfig: pytest.Config) -> list[dict[str, Any]]:
    """All of them, by the time at which they were due, which is not the order of the file."""
    assert pytestconfig.cache is not None
    try:
        file = demo_data.fetch(Path(pytestconfig.cache.mkdir("flights")))
    except UsageError as error:
        pytest.skip(str(error))
    return sorted(demo_data.read(file), key=lambda flight: str(flight["scheduled"]))


def create(cluster: Cluster) -> None:
    cluster.jeet("create_stream", "flights", "--key=tailnum", f"--partitions={PARTITIONS}")


def deploy(cluster: Cluster) -> None:
    cluster.jeet("deploy", str(FUNCTION))
    assert cluster.value("select count(distinct stage) from jeet.lag where function = 'busiest'") == 3


def close(cluster: Cluster, like: dict[str, Any]) -> None:
    """A last flight in each partition, long after the others: it closes their windows."""
    for partition in range(PARTITIONS):
        name = next(f"N{n}" for n in range(1000) if crc32(f"N{n}".encode()) % PARTITIONS == partition)
        publish(cluster.db, "flights", [{**like, "tailnum": name, "scheduled": END, "dep_delay": 0}])


def is_done(cluster: Cluster) -> bool:
    return settled(cluster.db, "busiest", END_S - 2 * DAY_S)


def check(cluster: Cluster, days: int) -> None:
    assert cluster.sql("select error, event from jeet.dead_letters limit 3") == []
    assert differences(cluster.db, ORACLE, "busiest_minutes") == []
    assert len(expected(cluster.db, ORACLE)) >= days


@pytest.mark.drill
def test_the_busiest_minutes_of_some_days_equal_sql_with_a_worker_killed(
    database_url: str, seed: int, rounds: int, flights: list[dict[str, Any]]
) -> None:
    chance = random.Random(seed)
    slices = range(0, FEW, SLICE)
    fatal = set(chance.sample(slices, rounds))
    with Cluster(database_url, workers=2) as cluster:
        create(cluster)
        deploy(cluster)
        for first in slices:
            publish(cluster.db, "flights", flights[first : first + SLICE])
            if first in fatal:
                cluster.replace_one(chance)
        close(cluster, flights[0])
        wait_for(lambda: is_done(cluster), "busiest has nothing more to do", 120)
        check(cluster, days=5)


@pytest.mark.torture
def test_the_busiest_minutes_of_a_year_equal_sql_with_workers_killed_again_and_again(
    database_url: str, seed: int, flights: list[dict[str, Any]], figures: Figures
) -> None:
    chance, kills = random.Random(seed), 0
    with Cluster(database_url, workers=3) as cluster:
        create(cluster)
        lines = "".join(json.dumps(flight) + "\n" for flight in flights)
        cluster.jeet("publish", "flights", "-", stdin=lines.encode())
        close(cluster, flights[0])
        deploy(cluster)
        while not is_done(cluster):
            # When a fault strikes must not be the same each time; between faults there is time to get on.
            time.sleep(chance.uniform(1, 15))
            cluster.replace_one(chance)
            kills += 1
        check(cluster, days=365)
    figures.add("flights by three stages, kill -9", kills, events=demo_data.FLIGHTS)
