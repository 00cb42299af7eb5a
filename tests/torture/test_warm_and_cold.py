"""The same events through warm instances, through instances that never live long, and by a rebuild from the log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from .cluster import Cluster
from .figures import Figures
from .oracle import MIXED_JS, Generator, check_exact, publish
from .storm import FUNCTION

pytestmark = pytest.mark.torture

# Values of all kinds in state: what the next event sees must not depend on whether an instance was kept.
SOURCE = MIXED_JS.replace(
    "  return {",
    """  const seen = state.seen[event.userId] || { n: 0, tags: [], at: null, nested: {} };
  seen.n += 1;
  if (seen.tags.length < 5) seen.tags.push({ id: event.id, half: event.amount / 2 });
  seen.nested[event.amount % 7] = { '10': 1, b: -0, text: `é${event.id}` };
  seen.at = new Date(event.amount * 1000);
  state.seen[event.userId] = seen;
  if (event.amount % 11 === 0) delete state.seen[event.userId];
  return {""",
)
WAYS = {
    "warm": {},
    "one event a batch": {"JEET_BATCH_EVENTS": "1"},
    "short slices": {"JEET_SLICE_MS": "1"},
    "no memory to keep instances": {"JEET_WORKER_MEMORY_MB": "1"},
}


def test_results_do_not_depend_on_how_long_instances_live(
    make_database: Callable[[], str], seed: int, rounds: int, figures: Figures
) -> None:
    hashes: dict[str, set[str]] = {}
    count = 400 * rounds
    for way, environment in WAYS.items():
        hashes[way] = {_run(make_database(), seed, count, environment, kills=0)}
    hashes["killed again and again"] = {_run(make_database(), seed, count, {}, kills=3 * rounds)}
    assert len(set.union(*hashes.values())) == 1, hashes
    figures.add("instances of any age", len(hashes), events=count * len(hashes))


def test_a_second_function_over_the_same_log_has_the_same_state(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    generator = Generator(seed, 50, mixed=True)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(SOURCE, FUNCTION, "--partitions=4")
        for _ in range(2 * rounds):
            publish(cluster.db, "events", generator.events(500))
        cluster.drain(FUNCTION)
        check_exact(cluster.db, generator)
        cluster.deploy(SOURCE.replace("sink: 'totals'", "sink: 'again'"), "rebuilt", "--start=earliest")
        cluster.drain("rebuilt")
        assert _state_hash(cluster, "rebuilt") == _state_hash(cluster, FUNCTION)
    figures.add("state rebuilt from the log", 1, events=generator.made)


def _run(url: str, seed: int, count: int, environment: dict[str, str], kills: int) -> str:
    generator = Generator(seed, 20, mixed=True)
    with Cluster(url, workers=1, environment=environment) as cluster:
        cluster.deploy(SOURCE, FUNCTION, "--partitions=2")
        for _ in range(max(1, kills)):
            publish(cluster.db, "events", generator.events(count // max(1, kills)))
            if kills:
                worker = cluster.workers()[0]
                worker.kill()
                worker.wait()
                cluster.start("worker")
        publish(cluster.db, "events", generator.events(count - generator.made))
        cluster.drain(FUNCTION)
        check_exact(cluster.db, generator)
        return _state_hash(cluster, FUNCTION)


def _state_hash(cluster: Cluster, function: str) -> str:
    rows = cluster.sql(
        "select collection, key, value::text from jeet.state where function = %s order by 1, 2", function
    )
    return hashlib.sha256(repr(rows).encode()).hexdigest()
