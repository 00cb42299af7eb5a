"""Guarantee: a savepoint is of one moment of all tasks, and what is restored goes on from it, all or nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter, defaultdict

import pytest
from tests.torture.cluster import JEET, Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, Load, publish

from jeet.control import savepoints

# What is keyed again keeps its order, as the source has the same key: so the oracle of one stage holds for two.
STAGES_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId', partitions: 4 };
const made = stream.map(event => {
    state.seen[event.userId] = (state.seen[event.userId] || 0) + event.amount;
    return { ...event, seen: state.seen[event.userId] };
  })
  .keyBy('userId', { name: 'by_user', partitions: 2 })
  .map(event => {
    state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
    if (state.totals[event.userId] !== event.seen) throw new Error(`the first stage has seen ${event.seen}`);
    return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
  });
made.to('copies');
made.filter(event => event.id >= 0);
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


def written(cluster: Cluster, stream: str) -> int:
    """How many events a stream has been given."""
    return sum(heads(cluster, stream).values())


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
        made = savepoints.take(cluster.db, "f", "a test")
        return made.id if made.events and made.entries else 0

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
        with Load(database_url, generator, per_tick=50):
            savepoint = savepoint_under_way(cluster)
            count = written(cluster, "totals")
            wait_for(lambda: written(cluster, "totals") > count + 1000, "it goes on")
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
            assert sorted(twin["created_streams"]) == ["twin.copies", "twin.totals"]
            copied = heads(cluster, "copies")
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
        assert outputs(cluster, "twin.copies") == outputs(cluster, "copies", copied) == outputs(cluster, "twin.totals")
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
FIRST = 1000
"""events that the first version has"""


@pytest.mark.drill
def test_what_an_earlier_version_wrote_is_migrated_once_whoever_dies_meanwhile(database_url: str) -> None:
    generator, chance = Generator(seed=12, keys=200), random.Random(12)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "f", "--partitions=4")
        publish(cluster.db, "events", generator.events(FIRST))
        cluster.drain("f")
        cluster.deploy(NEXT_JS, "f")
        before = cluster.value("select count(*) from jeet.state")
        migrated = "select count(*) from jeet_internal.state where version = 2"
        for _ in range(2):
            now = cluster.value(migrated)
            publish(cluster.db, "events", generator.events(20))
            wait_for(lambda now=now: cluster.value(migrated) > now, "some are migrated")
            cluster.replace_one(chance)
        # Some nobody has read since: they are as they were.
        assert 0 < cluster.value(migrated) < before == cluster.value("select count(*) from jeet.state")
        publish(cluster.db, "events", generator.events(1000))
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
    return sum(number < FIRST for number, _ in generator.expected[key])


REBUILT_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId', partitions: 4 };
const users = stream.keyBy('userId', { name: 'by_user', partitions: 2 });
users.map(event => {
  state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
  return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
});
users.window({ tumbling: '1m', time: event => event.id * 100 }).count({ name: 'clicks' }).to('counts');
"""
EVENTS_A_MINUTE = 600
REPLAY_LEFT = (
    "select l.events from jeet_internal.rebuild r cross join jeet_internal.rebuild_left(r.function_id) l"
    " where r.phase = 'replay'"
)


def check_counts(cluster: Cluster, generator: Generator) -> int:
    """Each window's result is there once, and is what was published; how many there are."""
    rows = cluster.sql("select value::text from jeet.stream_events where stream = 'counts'")
    found = Counter(
        (value["key"], value["start"] // 60_000, value["value"]) for value in map(json.loads, [r[0] for r in rows])
    )
    assert [result for result, times in found.items() if times > 1] == []
    wanted = Counter((key, number // EVENTS_A_MINUTE) for key, made in generator.expected.items() for number, _ in made)
    for key, minute, value in found:
        assert wanted[key, minute] == value, (key, minute)
    return len(found)


@pytest.mark.drill
def test_a_rebuild_makes_state_anew_and_sends_nothing_twice_whoever_dies_meanwhile(database_url: str) -> None:
    generator, chance = Generator(seed=13, keys=30), random.Random(13)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(REBUILT_JS, "f")
        for _ in range(4):
            publish(cluster.db, "events", generator.events(1500))
        cluster.drain("f")
        wait_for(lambda: written(cluster, "counts") > 200, "windows close")
        # State goes wrong while nothing runs.
        cluster.jeet("pause", "f")
        cluster.db.execute("update jeet_internal.state set value = '7' where value::text ~ '^[0-9]+$'")
        cluster.jeet("resume", "f")
        begun = json.loads(cluster.jeet("rebuild", "f", "--json").stdout)
        assert (begun["events"], begun["begun"]) == (generator.made, True)
        with Load(database_url, generator, per_tick=10):
            for _ in range(2):
                before = wait_for(lambda: cluster.sql(REPLAY_LEFT), "it replays")
                wait_for(lambda before=before: cluster.sql(REPLAY_LEFT) != before, "it goes on")
                cluster.replace_one(chance)
            wait_for(lambda: cluster.sql("select * from jeet_internal.rebuild") == [], "it is through")
            count = written(cluster, "counts")
            wait_for(lambda: written(cluster, "counts") > count, "windows close again")
        cluster.drain("f")
        check_no_letters(cluster)
        assert cluster.value("select sum(late) from jeet_internal.task") == 0
        assert outputs(cluster, "totals") == generator.outputs()
        check_counts(cluster, generator)
        kept = dict(cluster.sql("select key, value from jeet.state where collection = 'totals'"))
        assert kept == {key: rows[-1][1] for key, rows in generator.outputs().items()}


RESTING_JS = """export const config = { source: 'clicks', sink: 'counts', key: 'user', partitions: 1 };
stream.keyBy('user', { partitions: 1 })
  .window({ tumbling: '1m', time: 'ts', delay: '30s', idle: '1s' }).count();
"""


def test_what_had_closed_as_all_rested_is_not_sent_again_by_a_rebuild(database_url: str) -> None:
    def click(*minutes: float) -> None:
        publish(cluster.db, "clicks", [{"user": "a", "ts": int(minute * 60_000)} for minute in minutes])

    def results() -> list[tuple[int, int]]:
        text = "select (value ->> 'start')::int / 60000, (value ->> 'value')::int from jeet.stream_events"
        return cluster.sql(text + " where stream = 'counts' order by 1")

    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(RESTING_JS, "f")
        click(0.5, 1.0, 1.1)
        # By what was seen it is 0.6; a second without an event later, 1.1.
        wait_for(lambda: results() == [(0, 1)], "the first minute, as all rest")
        cluster.jeet("rebuild", "f", "--wait")
        click(1.2, 2.6)
        wait_for(lambda: len(results()) > 1, "the second minute")
        assert results() == [(0, 1), (1, 3)]


TIMERS_JS = """export const config = { source: 'orders', sink: 'reminders', key: 'user', partitions: 1 };
stream.map((order, context) => { context.timer('t' + order.n, { after: order.after }); });
stream.onTimer((name, context) => { context.emit('reminders', { name }); });
"""


def test_timers_by_the_clock_on_the_wall_fire_once_on_either_side_of_a_rebuild(database_url: str) -> None:
    def order(numbers: range, after: str) -> None:
        publish(cluster.db, "orders", [{"user": "a", "n": n, "after": after} for n in numbers])

    def fired() -> list[str]:
        text = "select value ->> 'name' from jeet.stream_events where stream = 'reminders' order by 1"
        return [row[0] for row in cluster.sql(text)]

    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TIMERS_JS, "f")
        order(range(4), "1ms")
        wait_for(lambda: fired() == ["t0", "t1", "t2", "t3"], "those before")
        order(range(4, 8), "1h")
        cluster.drain("f")
        pending = "select key, name, at from jeet_internal.timer order by name"
        before = cluster.sql(pending)
        assert len(before) == 4
        cluster.jeet("rebuild", "f", "--wait")
        assert cluster.sql(pending) == before
        cluster.jeet("pause", "f")
        cluster.db.execute("update jeet_internal.timer set at = now()")
        cluster.jeet("resume", "f")
        wait_for(lambda: cluster.sql(pending) == [], "those that were pending")
        assert fired() == [f"t{n}" for n in range(8)]
