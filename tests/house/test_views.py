"""What people read in SQL: the documented views, their columns, and that no stored value breaks them."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
import pytest

from house.deployed import deploy, put_state
from jeet.db.keys import TASK_CLASS

COLUMNS = {
    "state": "function, stage, partition, collection, key, value, expires_at, updated_at",
    "lag": "function, stage, stream, partition, head, next_offset, lag, oldest_age, worker",
    "leases": "function, stage, partition, worker, epoch, acquired_at, backend_pid",
    "workers": "id, host, pid, version, started_at, heartbeat_age, tasks, status",
    "checkpoints": "function, stage, stream, partition, next_offset, watermark, epoch, version, committed_at",
    "dead_letters": "id, function, stage, partition, offset, key, event, error, stack, attempts, version, failed_at,"
    " status",
    "streams": "name, partitions, key, retention, first_offset, head, bytes",
    "functions": "name, version, status, source, sink, deployed_at",
    "stream_events": "stream, partition, offset, key, value, headers, published_at",
    "diagnosis": "observation, likely_cause, evidence, action, since",
    "logs": "id, function, version, partition, offset, level, message, logged_at",
    "savepoints": "function, id, version, taken_at, why, automatic, positions, entries, timers, events, letters, bytes",
    "watermarks": "function, stage, partition, watermark, held_by, since, late, next_timer",
    "thresholds": "name, value, preset, unit, meaning",
}
TYPES = {
    ("state", "value"): "jsonb",
    ("stream_events", "value"): "json",
    ("lag", "oldest_age"): "interval",
    ("workers", "heartbeat_age"): "interval",
}


def rows(db: psycopg.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    return db.execute(query, values).fetchall()


@pytest.mark.parametrize("view", COLUMNS)
def test_each_view_begins_with_its_documented_columns(db: psycopg.Connection, view: str) -> None:
    found = rows(
        db,
        "select column_name, data_type from information_schema.columns"
        " where table_schema = 'jeet' and table_name = %s order by ordinal_position",
        view,
    )
    wanted = COLUMNS[view].split(", ")
    assert [name for name, _ in found][: len(wanted)] == wanted
    for name, kind in found:
        assert TYPES.get((view, name), kind) == kind


def test_every_view_and_column_has_a_comment(db: psycopg.Connection) -> None:
    bare = rows(
        db,
        """
        select c.relname, a.attname from pg_class c
          left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relnamespace = 'jeet'::regnamespace and c.relkind = 'v'
           and (obj_description(c.oid, 'pg_class') is null or col_description(c.oid, a.attnum) is null)
        """,
    )
    assert bare == []


def test_a_task_has_its_lag_from_the_moment_it_is_deployed(db: psycopg.Connection) -> None:
    deploy(db, n=4)
    assert rows(
        db, "select partition, head, next_offset, lag, oldest_age, worker from jeet.lag order by partition"
    ) == [(p, 0, 0, 0, None, None) for p in range(4)]


def append(db: psycopg.Connection, stream: str, count: int) -> None:
    (stream_id,) = rows(db, "select id from jeet_internal.stream where name = %s", stream)[0]
    values = "\n".join(json.dumps({"n": n}) for n in range(count))
    keys = "\n".join(json.dumps(f"k{n}") for n in range(count))
    db.execute("select jeet_internal.append(%s::int[], %s::text[], %s::text[])", ([stream_id], [keys], [values]))


def test_lag_counts_what_waits_and_since_when(db: psycopg.Connection) -> None:
    deploy(db, n=2)
    append(db, "events", 10)
    db.execute("update jeet_internal.event set published_at = now() - interval '1 hour' where \"offset\" = 1")
    db.execute(
        "update jeet_internal.checkpoint c set next_offset = 1 from jeet_internal.task t"
        " where t.id = c.task_id and t.partition = 0"
    )
    found = rows(
        db, "select partition, head - next_offset = lag, oldest_age from jeet.lag where function = 'totals' order by 1"
    )
    assert [same for _, same, _ in found] == [True, True]
    assert found[0][2].total_seconds() >= 3600
    assert 0 <= found[1][2].total_seconds() < 600
    assert rows(db, "select sum(lag) from jeet.lag")[0][0] == 9


def test_lag_follows_the_inputs_of_the_version_that_runs(db: psycopg.Connection) -> None:
    deploy(db)
    db.execute("select jeet_internal.create_stream('other', 4)")
    db.execute(
        """
        with s as (select id from jeet_internal.stream where name = 'other'),
             v as (insert into jeet_internal.function_version
                   select function_id, 2, filename, source, bytecode, plugin_hash, graph, spec, digest
                     from jeet_internal.function_version),
             g as (insert into jeet_internal.stage
                   select function_id, 2, 0, array[s.id], outputs from jeet_internal.stage, s),
             c as (insert into jeet_internal.checkpoint (task_id, stream_id)
                   select t.id, s.id from jeet_internal.task t, s)
        update jeet_internal.function set version = 2
        """
    )
    assert {stream for (stream,) in rows(db, "select stream from jeet.lag")} == {"other"}


STRANGE_VALUES = [
    '"\\u0000"',
    '"\\ud800"',
    '{"a": "\\udc00\\ud800", "b": 1}',
    "1e400000",
    "9007199254740993",
    "-0",
    '{"a": 1, "a": 2}',
    "[" * 128 + "]" * 128,
    '"' + "x" * 1_000_000 + '"',
    " null ",
]


def test_no_stored_value_breaks_the_state_view(db: psycopg.Connection) -> None:
    deploy(db)
    for number, value in enumerate(STRANGE_VALUES):
        put_state(db, f"k{number}", value)
    put_state(db, "good", '{"a": [1, null]}')
    found = dict(rows(db, "select key, value::text from jeet.state where function = 'totals'"))
    assert len(found) == len(STRANGE_VALUES) + 1
    assert json.loads(found["good"]) == {"a": [1, None]}
    assert json.loads(found["k4"]) == 9007199254740993
    # What jsonb refuses is shown as its text.
    assert json.loads(found["k0"]) == '"\\u0000"'
    assert json.loads(found["k3"]) == "1e400000"


def test_expired_state_is_not_shown_and_a_held_clock_counts(db: psycopg.Connection) -> None:
    deploy(db)
    put_state(db, "gone", "1", expires_in="-1 second")
    put_state(db, "stays", "1", expires_in="1 hour")
    put_state(db, "for ever", "1")
    assert rows(db, "select key from jeet.state order by key") == [("for ever",), ("stays",)]
    db.execute("update jeet_internal.task set ttl_hold = '1 minute'")
    shown = dict(rows(db, "select key, expires_at > now() from jeet.state"))
    assert shown == {"gone": True, "stays": True, "for ever": None}


def test_a_lease_is_shown_only_while_its_lock_is_held(database_url: str, db: psycopg.Connection) -> None:
    deploy(db)
    (task,) = rows(db, "select id from jeet_internal.task where partition = 2")[0]
    with psycopg.connect(database_url, autocommit=True) as worker:
        worker.execute("select pg_advisory_lock(%s, %s)", (TASK_CLASS, task))
        db.execute(
            "update jeet_internal.task set worker_id = 7, backend_pid = %s, epoch = 3, acquired_at = now()"
            " where id = %s",
            (worker.info.backend_pid, task),
        )
        assert rows(db, "select function, partition, worker, epoch from jeet.leases") == [("totals", 2, 7, 3)]
    deadline = time.monotonic() + 10
    while rows(db, "select from jeet.leases"):
        assert time.monotonic() < deadline, "the lease outlived its session"
    assert rows(db, "select worker_id from jeet_internal.task where id = %s", task) == [(7,)]


def test_streams_sum_over_partitions_and_tell_their_size(db: psycopg.Connection) -> None:
    deploy(db, n=2)
    append(db, "events", 10)
    found = rows(db, "select name, partitions, key, first_offset, head, bytes > 8192 from jeet.streams order by name")
    assert found == [("events", 2, "userId", 0, 10, True), ("sums", 2, None, 0, 0, True)]


def test_events_can_be_read_by_the_name_of_their_stream(db: psycopg.Connection) -> None:
    deploy(db, n=2)
    append(db, "events", 5)
    found = rows(db, "select partition, \"offset\", key, value ->> 'n' from jeet.stream_events where stream = 'events'")
    assert sorted(int(n) for *_, n in found) == [0, 1, 2, 3, 4]
    assert {key for _, _, key, _ in found} == {f"k{n}" for n in range(5)}


def test_diagnosis_tells_what_is_wrong_and_nothing_else(database_url: str, db: psycopg.Connection) -> None:
    assert rows(db, "table jeet.diagnosis") == []
    deploy(db)
    assert {o for (o,) in rows(db, "select observation from jeet.diagnosis")} == {
        "no worker is running, 4 tasks wait",
        "no coordinator leads",
    }
    db.execute("insert into jeet_internal.leader (host, pid, backend_pid, backend_start) values ('h', 1, 1, now())")
    db.execute(
        "insert into jeet_internal.worker (host, pid, version, backend_pid, backend_start)"
        " values ('h', 1, '1', 1, now())"
    )
    db.execute("update jeet_internal.task set worker_id = 1, unowned_since = null")
    assert rows(db, "table jeet.diagnosis") == []
    db.execute("update jeet_internal.task set status = 'halted', halt_reason = 'TypeError: x' where partition = 1")
    db.execute("update jeet_internal.stream set over_lag = true, max_lag = 5 where name = 'events'")
    db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", event, error, version)'
        " select id, 1, 0, '{}', 'RangeError: y', 1 from jeet_internal.task where partition = 0"
    )
    found = dict(rows(db, "select observation, evidence from jeet.diagnosis"))
    assert set(found) == {
        "partition 1 of totals is halted",
        "stream events refuses publishers",
        "1 open dead letter of totals",
    }
    assert found["partition 1 of totals is halted"] == "TypeError: x"
    assert "RangeError: y" in found["1 open dead letter of totals"]
    db.execute(
        "with s as (insert into jeet_internal.stream (name, partitions, internal, over_lag)"
        "           values ('totals/next', 4, true, true) returning id),"
        "     b as (update jeet_internal.stage g set outputs = g.outputs || s.id from s),"
        "     a as (insert into jeet_internal.stage (function_id, version, stage, inputs, outputs)"
        "           select 1, 1, 1, array[s.id], array[null]::int[] from s)"
        " insert into jeet_internal.task (function_id, version, stage, partition, status) values (1, 1, 1, 3, 'halted')"
    )
    found = dict(rows(db, "select observation, evidence from jeet.diagnosis"))
    assert found["partition 3 of totals is halted"].endswith(
        "; too much waits behind it: stage 0 stands still in all partitions"
    )
    actions = [action for (action,) in rows(db, "select action from jeet.diagnosis")]
    assert any(action.endswith("jeet dlq redrive totals --all") for action in actions)
    db.execute("update jeet_internal.worker set heartbeat_at = now() - interval '1 minute'")
    assert any("no worker is running" in o for (o,) in rows(db, "select observation from jeet.diagnosis"))


def test_a_lost_worker_is_told_while_its_tasks_are_not_taken_over_and_for_some_minutes(db: psycopg.Connection) -> None:
    deploy(db)
    db.execute(
        "insert into jeet_internal.worker (host, pid, version, backend_pid, backend_start, status)"
        " values ('h', 1, '1', 1, now(), 'lost')"
    )

    def told() -> bool:
        return any("was lost" in text for (text,) in rows(db, "select observation from jeet.diagnosis"))

    assert not told()  # as no worker is left, that is what is told
    db.execute(
        "insert into jeet_internal.worker (host, pid, version, backend_pid, backend_start)"
        " values ('h', 2, '1', 2, now())"
    )
    assert told()
    db.execute("update jeet_internal.worker set heartbeat_at = now() - interval '6 minutes' where id = 1")
    assert not told()
    db.execute("update jeet_internal.task set worker_id = 1 where partition = 0")
    assert told()


def test_a_long_transaction_is_seen_with_its_pid(database_url: str, db: psycopg.Connection) -> None:
    with psycopg.connect(database_url, application_name="forgotten") as other:
        other.execute("select 1")
        found = rows(db, "select pid, application_name from jeet_internal.long_transactions('0 s')")
        assert found == [(other.info.backend_pid, "forgotten")]


def plan(db: psycopg.Connection, query: str) -> dict[str, Any]:
    (found,) = db.execute(b"explain (analyze, format json) " + query.encode()).fetchone() or ()
    return dict(found[0])


def scanned(node: dict[str, Any]) -> list[str]:
    """Relations that a plan read at least once."""
    here = [node["Relation Name"]] if node.get("Relation Name") and node.get("Actual Loops") else []
    return here + [name for child in node.get("Plans", []) for name in scanned(child)]


def test_one_streams_events_are_found_without_touching_other_streams(db: psycopg.Connection) -> None:
    for number in range(40):
        db.execute("select jeet_internal.create_stream(%s, 2)", (f"s{number}",))
    append(db, "s7", 100)
    db.execute("analyze")
    (stream_id,) = rows(db, "select id from jeet_internal.stream where name = 's7'")[0]
    found = plan(db, "select * from jeet.stream_events where stream = 's7'")
    touched = {name for name in scanned(found["Plan"]) if name.startswith("event_")}
    assert touched
    assert all(name.startswith(f"event_{stream_id}_") for name in touched)


def test_one_functions_lag_and_state_are_found_by_index(db: psycopg.Connection) -> None:
    for number in range(30):
        deploy(db, f"f{number}", f"in{number}", f"out{number}")
    for number in range(300):
        put_state(db, f"k{number}", "1", function=f"f{number % 30}")
    db.execute("analyze")
    text = json.dumps(
        plan(db, "select * from jeet.state where function = 'f3' and collection = 'totals' and key = 'k3'")
    )
    assert "state_pkey" in text
    assert '"Relation Name": "event' not in json.dumps(plan(db, "select * from jeet.lag where function = 'f3'"))
