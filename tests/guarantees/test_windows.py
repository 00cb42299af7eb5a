"""Event time end to end: each window's result appears exactly once, when the rules say so, whoever dies meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from typing import Any

import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import publish

MINUTE = 60_000
LONG = "10m"
"""an idle time that no test lives to see"""


def counts_js(idle: str = LONG, **window: str) -> str:
    more = "".join(f", {name}: '{value}'" for name, value in window.items())
    return f"""export const config = {{ source: 'clicks', sink: 'counts', key: 'user' }};
stream.window({{ tumbling: '1m', time: 'ts', idle: '{idle}'{more} }}).count();
"""


def clicks(*events: tuple[str, float]) -> list[dict[str, Any]]:
    """Events of a user at some minute."""
    return [{"user": user, "ts": int(minute * MINUTE)} for user, minute in events]


def results(cluster: Cluster, stream: str = "counts") -> Counter[tuple[str, int, int]]:
    """Key, minute and value of each result, and how often it is there."""
    rows = cluster.sql("select value::text from jeet.stream_events where stream = %s", stream)
    made = [json.loads(row[0]) for row in rows]
    return Counter((each["key"], each["start"] // MINUTE, each["value"]) for each in made)


def minute_of(cluster: Cluster, partition: int = 0, stage: int = 0) -> float | None:
    """Where a task's watermark stands."""
    found = cluster.value(
        "select extract(epoch from watermark)::float8 / 60 from jeet.watermarks where partition = %s and stage = %s",
        partition,
        stage,
    )
    return None if found is None else float(found)


def test_a_window_closes_once_the_watermark_has_passed_its_end_and_grace(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(counts_js(delay="30s", grace="1m"), "counts", "--partitions=1")
        publish(cluster.db, "clicks", clicks(("a", 0.9), ("b", 0.5)))
        # Out of order, but within delay and grace: the watermark is at 2.0 - 0.5, and minute 0 is open until 2.0.
        publish(cluster.db, "clicks", clicks(("a", 2.0), ("a", 0.1)))
        cluster.drain("counts")
        assert results(cluster) == Counter()
        publish(cluster.db, "clicks", clicks(("a", 2.5)))
        wait_for(lambda: results(cluster) == {("a", 0, 2): 1, ("b", 0, 1): 1}, "the first minute's counts")
        # Beyond it: late, counted, and a dead letter that says so; not in any result.
        publish(cluster.db, "clicks", clicks(("a", 0.2), ("a", 4.5)))
        wait_for(lambda: sum(results(cluster).values()) == 3, "the next minute's counts")
        assert results(cluster)["a", 2, 2] == 1
        assert cluster.value("select sum(late) from jeet.watermarks") == 1
        letters = cluster.sql('select "offset", error from jeet.dead_letters')
        assert [offset for offset, _ in letters] == [5]
        assert letters[0][1].startswith("late for window")
        assert cluster.value("select count(*) from jeet.state where collection = 'window'") == 1  # minute 4 is open


def test_an_idle_input_lets_event_time_come_to_the_highest_that_was_seen_and_no_further(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(counts_js(idle="1s", delay="10s"), "counts", "--partitions=1")
        publish(cluster.db, "clicks", clicks(("a", 0.5), ("a", 1.0), ("a", 1.1)))
        # The watermark is at 1.1 less ten seconds. Once nothing came for a second, it is at 1.1.
        wait_for(lambda: results(cluster) == {("a", 0, 1): 1}, "the first minute's count")
        assert cluster.value("select held_by from jeet.watermarks") is None
        # Awake again: events older than the watermark are late or not as ever, and time does not go back.
        publish(cluster.db, "clicks", clicks(("a", 1.05), ("a", 0.7)))
        cluster.drain("counts")
        assert cluster.value("select late from jeet.watermarks") == 1
        publish(cluster.db, "clicks", clicks(("a", 2.2)))
        wait_for(lambda: results(cluster) == {("a", 0, 1): 1, ("a", 1, 3): 1}, "the second minute's count")


TWO_STAGES_JS = """export const config = { source: 'clicks', sink: 'counts' };
stream.filter(e => e.ts >= 0)
  .keyBy('user', { partitions: 2 })
  .window({ tumbling: '1m', time: 'ts', idle: '%s' })
  .count();
"""


def places(cluster: Cluster, stream: str, names: str = "abcdefgh") -> dict[int, str]:
    """A key for each partition of a stream."""
    partitions = cluster.value("select partitions from jeet_internal.stream where name = %s", stream)
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(cluster.value("select jeet.partition_of(%s, %s)", name, partitions), name)
    assert len(found) == partitions
    return found


def test_later_stages_go_by_the_slowest_partition_that_is_awake(database_url: str) -> None:
    with Cluster(database_url, workers=2) as cluster:
        cluster.db.execute("select jeet_internal.create_stream('clicks', 3, 'user')")
        cluster.deploy(TWO_STAGES_JS % "2s", "counts")
        keys = places(cluster, "clicks", "abcdefghijklmnop")
        slow, fast, late = keys[0], keys[1], keys[2]
        # One partition is empty from birth, and holds nobody back.
        publish(cluster.db, "clicks", clicks((slow, 0.5), (fast, 0.5)))
        publish(cluster.db, "clicks", clicks((slow, 1.0), (fast, 5.0)))
        wait_for(lambda: results(cluster) == {(slow, 0, 1): 1, (fast, 0, 1): 1}, "the first minute, by the slower one")
        # It is idle after two seconds: then the others are by the faster one.
        wait_for(lambda: results(cluster)[slow, 1, 1] == 1, "the slow partition's last minute")
        wait_for(lambda: [minute_of(cluster, n, stage=1) for n in (0, 1)] == [5, 5], "both by the fast one")
        # One that wakes up late neither stalls nor rewinds them.
        publish(cluster.db, "clicks", clicks((late, 2.0), (late, 6.5)))
        publish(cluster.db, "clicks", clicks((fast, 7.0)))
        wait_for(lambda: results(cluster)[fast, 5, 1] == 1, "the fast partition's fifth minute")
        assert results(cluster)[late, 2, 1] == 0
        assert cluster.value("select sum(late) from jeet.watermarks") == 1
        # When all are idle, event time is at the highest that any of them has seen.
        wait_for(lambda: [minute_of(cluster, n, stage=1) for n in (0, 1)] == [7, 7], "both at the end")


SLOW_FIRING = """
create function slow_firing() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.3); return null; end $$;
create %s slow_firing after delete on jeet_internal.timer %s for each %s execute function slow_firing();
"""


@pytest.mark.parametrize("when", ["inside the transaction", "during COMMIT"])
def test_a_worker_killed_between_the_closing_of_a_window_and_its_commit_leaves_one_result(
    database_url: str, when: str
) -> None:
    chance = random.Random(5)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(counts_js(), "counts", "--partitions=2")
        if when == "during COMMIT":
            cluster.db.execute(SLOW_FIRING % ("constraint trigger", "deferrable initially deferred", "row"))
        else:
            cluster.db.execute(SLOW_FIRING % ("trigger", "", "statement"))
        expected: Counter[tuple[str, int, int]] = Counter()
        for minute in range(4):
            users = [f"u{number}" for number in range(6)]
            publish(cluster.db, "clicks", clicks(*((user, minute + 0.5) for user in users)))
            publish(cluster.db, "clicks", clicks(*((user, minute + 1.0) for user in users)))
            expected.update({(user, minute, 1 if minute == 0 else 2): 1 for user in users})
            wait_for(
                lambda: cluster.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"),
                "a firing that is not committed yet",
            )
            os.kill(cluster.workers()[0].pid, signal.SIGKILL)
            cluster.start("worker")
            if chance.random() < 0.5:
                wait_for(lambda: results(cluster) == expected, f"the counts of minute {minute}")
        wait_for(lambda: results(cluster) == expected, "all counts, once")


def test_a_rekeyed_windowed_count_is_exact_though_workers_are_killed_at_random(database_url: str) -> None:
    chance = random.Random(6)
    users = [f"u{number}" for number in range(20)]
    expected: Counter[tuple[str, int, int]] = Counter()
    with Cluster(database_url, workers=2) as cluster:
        cluster.db.execute("select jeet_internal.create_stream('clicks', 3)")
        cluster.deploy(TWO_STAGES_JS % LONG, "counts")
        for minute in range(12):
            times = sorted(minute + chance.random() for _ in range(400))
            made = [(chance.choice(users), at) for at in times]
            counted = Counter(user for user, _ in made)
            expected.update({(user, minute, count): 1 for user, count in counted.items()})
            publish(cluster.db, "clicks", clicks(*made))
            if minute % 3 == 1:
                os.kill(chance.choice(cluster.workers()).pid, signal.SIGKILL)
                cluster.start("worker")
        # The end of event time for all partitions.
        publish(cluster.db, "clicks", [{"user": f"end{n}", "ts": 100 * MINUTE} for n in range(60)])
        wait_for(lambda: sum(results(cluster).values()) >= sum(expected.values()), "all windows closed", 60)
        cluster.drain("counts")
        assert results(cluster) == expected
        assert cluster.value("select sum(late) from jeet.watermarks") == 0


MERGE_JS = """export const config = { source: 'left', sink: 'merged', key: 'user' };
const right = stream.from('right');
stream.merge(right).map((e, context) => {
  const names = stream_names;
  state.seen[e.user] = (state.seen[e.user] || 0) + 1;
  return { user: e.user, from: e.from, n: e.n, seen: state.seen[e.user] };
});
""".replace("  const names = stream_names;\n", "")


def test_a_merge_of_streams_has_every_event_once_and_each_in_its_order(database_url: str) -> None:
    chance = random.Random(7)
    with Cluster(database_url, workers=2) as cluster:
        cluster.db.execute("select jeet_internal.create_stream('left', 2, 'user')")
        cluster.db.execute("select jeet_internal.create_stream('right', 2, 'user')")
        cluster.deploy(MERGE_JS, "merged")
        for turn in range(6):
            for stream in ("left", "right"):
                events = [{"user": f"u{n % 7}", "from": stream, "n": turn * 100 + n} for n in range(100)]
                publish(cluster.db, stream, events)
            if turn % 2:
                os.kill(chance.choice(cluster.workers()).pid, signal.SIGKILL)
                cluster.start("worker")
        cluster.drain("merged")
        rows = cluster.sql(
            "select value::text from jeet.stream_events where stream = 'merged' order by partition, \"offset\""
        )
        made = [json.loads(row[0]) for row in rows]
        for user in {each["user"] for each in made}:
            mine = [each for each in made if each["user"] == user]
            assert [each["seen"] for each in mine] == list(range(1, len(mine) + 1))
            for stream in ("left", "right"):
                numbers = [each["n"] for each in mine if each["from"] == stream]
                assert numbers == sorted(set(numbers))
        assert len(made) == 1200


TIMERS_JS = """export const config = { source: 'orders', sink: 'reminders', key: 'id' };
stream.peek((e, context) => {
  if (e.paid) context.cancelTimer('unpaid');
  else context.timer('unpaid', { after: e.after, clock: e.clock });
}).filter(() => false);
stream.onTimer((name, context) => {
  if (context.key === 'bad' && !state.fixed.now) throw new Error('cannot remind');
  return { name, key: context.key };
});
"""


def test_timers_of_user_code_fire_once_unless_cancelled_and_a_failed_one_is_redriven(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TIMERS_JS, "reminders", "--partitions=2")
        orders = [
            {"id": "soon", "after": "300ms", "clock": "wall"},
            {"id": "bad", "after": "300ms", "clock": "wall"},
            {"id": "never", "after": "1h", "clock": "wall"},
            {"id": "paid", "after": "1s", "clock": "wall"},
            {"id": "paid", "paid": True},
        ]
        publish(cluster.db, "orders", orders)

        def reminded() -> list[str]:
            rows = cluster.sql("select value ->> 'key' from jeet.stream_events where stream = 'reminders'")
            return sorted(row[0] for row in rows)

        wait_for(lambda: cluster.value("select count(*) from jeet.dead_letters") == 1, "the one that fails")
        wait_for(lambda: reminded() == ["soon"], "the one that is due")
        assert cluster.value("select count(*) from jeet_internal.timer") == 1
        shown = json.loads(cluster.jeet("lag", "--watermarks", "--json").stdout)
        assert len(shown) == 2
        cluster.deploy(TIMERS_JS.replace("'bad'", "'none'"), "reminders")
        cluster.jeet("dlq", "redrive", "reminders", "--all")
        wait_for(lambda: reminded() == ["bad", "soon"], "the one that failed, redriven")
        assert cluster.value("select count(*) from jeet_internal.timer") == 1
