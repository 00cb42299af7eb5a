"""Guarantee: a savepoint is of one moment of all tasks, and what is restored goes on from it, all or nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import defaultdict

import pytest
from tests.torture.cluster import JEET, Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, Load, publish

# What is keyed again keeps its order, as the source has the same key: so the oracle of one stage holds for two.
STAGES_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId', partitions: 4 };
stream.map(event => {
    state.seen[event.userId] = (state.seen[event.userId] || 0) + event.amount;
    return { ...event, seen: state.seen[event.userId] };
  })
  .keyBy('userId', { name: 'by_user', partitions: 2 })
  .map(event => {
    state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
    if (state.totals[event.userId] !== event.seen) throw new Error(`the first stage has seen ${event.seen}`);
    return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
  });
"""

Outputs = dict[str, list[tuple[int, int]]]


def outputs(cluster: Cluster, stream: str, first: dict[int, int] | None = None) -> Outputs:
    """key → (id, running total) of its outputs, in order; from `first` of each partition on."""
    found: Outputs = defaultdict(list)
    for partition, offset, text in cluster.sql(
        'select partition, "offset", value::text from jeet.stream_events where stream = %s order by 1, 2', stream
    ):
        if offset >= (first or {}).get(partition, 0):
            value = json.loads(text)
            found[value["userId"]].append((value["id"], value["currentTotal"]))
    return found


def heads(cluster: Cluster, stream: str) -> dict[int, int]:
    return dict(
        cluster.sql(
            "select h.partition, h.head from jeet_internal.head h join jeet_internal.stream s on s.id = h.stream_id"
            " where s.name = %s",
            stream,
        )
    )


def savepoint_under_way(cluster: Cluster) -> int:
    """One that has events between the stages in it."""

    def take() -> int:
        made = json.loads(cluster.jeet("savepoint", "f", "--json").stdout)
        return int(made["id"]) if made["events"] and made["entries"] else 0

    return int(wait_for(take, "events between the stages"))


def check_no_letters(cluster: Cluster) -> None:
    assert cluster.sql("select error from jeet.dead_letters") == []


def continues(wanted: Outputs, before: Outputs, after: Outputs) -> None:
    """Before: the first outputs of each key. After: the last ones, from one of those on, without a gap."""
    for key, rows in wanted.items():
        assert before[key] == rows[: len(before[key])], key
        assert after[key] == rows[len(rows) - len(after[key]) :], key
        assert len(before[key]) + len(after[key]) >= len(rows), key


@pytest.mark.drill
def test_what_is_restored_under_load_goes_on_as_from_one_moment(database_url: str) -> None:
    generator, chance = Generator(seed=11, keys=40), random.Random(11)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(STAGES_JS, "f")
        with Load(database_url, generator, per_tick=100):
            savepoint = savepoint_under_way(cluster)
            count = len(outputs(cluster, "totals"))
            wait_for(lambda: sum(map(len, outputs(cluster, "totals").values())) > count + 2000, "it goes on")
            os.kill(chance.choice(cluster.workers()).pid, signal.SIGKILL)
            cluster.start("worker")
            # Whoever restores dies in the middle of it: the function goes on as it was, or from the savepoint.
            cluster.db.execute(
                "create function slowly() returns trigger language plpgsql as"
                " $$ begin perform pg_sleep(0.5); return null; end $$;"
                " create trigger slowly after insert on jeet_internal.state for each statement"
                " when (current_setting('application_name') = 'jeet') execute function slowly()"
            )
            dying = subprocess.Popen(
                [JEET, "restore", "f", str(savepoint)], env=cluster.environment, cwd=cluster.folder
            )
            wait_for(
                lambda: cluster.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"), "a restore"
            )
            dying.kill()
            dying.wait()
            wait_for(
                lambda: not cluster.value("select count(*) from pg_locks where classid = 1248159078 and granted"),
                "its session ends",
            )
            cluster.db.execute("drop trigger slowly on jeet_internal.state")
            cluster.jeet("pause", "f")  # so that it is known what was written before
            split = heads(cluster, "totals")
            before = outputs(cluster, "totals")
            cluster.jeet("restore", "f", str(savepoint))
            twin = json.loads(cluster.jeet("restore", "f", str(savepoint), "--into=twin", "--json").stdout)
            assert twin["created_streams"] == ["twin.totals"]
            cluster.jeet("resume", "f")
            os.kill(chance.choice(cluster.workers()).pid, signal.SIGKILL)
            cluster.start("worker")
        for name in ("f", "twin"):
            cluster.drain(name)
        check_no_letters(cluster)
        wanted = generator.outputs()
        continues(wanted, before, outputs(cluster, "totals", split))
        # The second function went on from the same moment, and disturbed nobody.
        continues(wanted, before, outputs(cluster, "twin.totals"))
        assert outputs(cluster, "twin.totals") == outputs(cluster, "totals", split)
        state = (
            "select function, stage, collection, key, value::text from jeet.state where function = %s order by 2, 3, 4"
        )
        assert [row[1:] for row in cluster.sql(state, "f")] == [row[1:] for row in cluster.sql(state, "twin")]


NEXT_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId' };
export function migrate(collection, key, value, fromVersion) {
  if (fromVersion !== 1) throw new Error(`version ${fromVersion}`);
  return { sum: value, events: 0, from: fromVersion };
}
stream.map(event => {
  const kept = state.totals[event.userId] ??= { sum: 0, events: 0 };
  kept.sum += event.amount;
  kept.events += 1;
  return { id: event.id, userId: event.userId, currentTotal: kept.sum };
});
"""


@pytest.mark.drill
def test_what_an_earlier_version_wrote_is_migrated_once_whoever_dies_meanwhile(database_url: str) -> None:
    generator, chance = Generator(seed=12, keys=200), random.Random(12)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "f", "--partitions=4")
        publish(cluster.db, "events", generator.events(2000))
        cluster.drain("f")
        cluster.deploy(NEXT_JS, "f")
        before = cluster.value("select count(*) from jeet.state")
        migrated = "select count(*) from jeet_internal.state where version = 2"
        for _ in range(3):
            now = cluster.value(migrated)
            publish(cluster.db, "events", generator.events(20))
            wait_for(lambda now=now: cluster.value(migrated) > now, "some are migrated")
            cluster.replace_one(chance)
        # Some nobody has read since: they are as they were.
        assert 0 < cluster.value(migrated) < before == cluster.value("select count(*) from jeet.state")
        publish(cluster.db, "events", generator.events(3000))
        cluster.drain("f")
        check_no_letters(cluster)
        assert outputs(cluster, "totals") == generator.outputs()
        kept = dict(cluster.sql("select key, value from jeet.state"))
        for key, rows in generator.outputs().items():
            assert kept[key]["sum"] == rows[-1][1]
            assert kept[key]["events"] == len(rows) - (0 if "from" not in kept[key] else old_events(generator, key)), (
                key
            )
        # The way back is there, and the version that was.
        (point,) = json.loads(cluster.jeet("savepoints", "f", "--json").stdout)
        assert (point["why"], point["version"], point["entries"]) == ("before version 2", 1, before)
        cluster.jeet("rollback", "f", "--no_savepoint")
        cluster.jeet("restore", "f", str(point["id"]))
        cluster.drain("f")
        assert {k: json.loads(v) for k, v in cluster.sql("select key, value::text from jeet.state")} == {
            key: rows[-1][1] for key, rows in generator.outputs().items()
        }


def old_events(generator: Generator, key: str) -> int:
    """Of a key, those that the first version had."""
    return sum(number < 2000 for number, _ in generator.expected[key])
