"""Each view tells what was planted: rows made by hand, no worker."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from house.deployed import deploy
from jeet.db.sql import query

FIGURES = {
    "events": 0,
    "outputs": 0,
    "bytes_in": 0,
    "batches": 0,
    "cut": 0,
    "errors": 0,
    "dead_letters": 0,
    "cpu_s": 0.0,
    "sandbox_s": 0.0,
    "fetch_s": 0.0,
    "state_s": 0.0,
    "commit_s": 0.0,
    "state_requests": 0,
    "state_misses": 0,
    "instances": 0,
    "recycled": 0,
    "memory_bytes": 0,
    "seconds": 5.0,
}
ABOUT = {
    "memory_bytes": 100,
    "guest_bytes": 50,
    "instances": 1,
    "lanes": 2,
    "busy": 0.5,
    "clock_offset_ms": 1500.0,
    "clock_error_ms": 0.2,
    "python": "3",
    "wasmtime": "50",
}


@pytest.fixture
def worker(db: psycopg.Connection) -> int:
    """A deployed function, one of whose tasks this worker has."""
    deploy(db, n=2)
    row = db.execute(
        "insert into jeet_internal.worker (host, pid, version, backend_pid, backend_start)"
        " values ('here', 1, '0', 1, now()) returning id"
    ).fetchone()
    assert row is not None
    return int(row[0])


def record(db: psycopg.Connection, worker: int, figures: list[dict[str, Any]], hot: list[dict[str, Any]] = []) -> None:  # noqa: B006
    db.execute(
        "select jeet_internal.record_figures(%s, %s, %s, %s)",
        (worker, Jsonb([FIGURES | each for each in figures]), Jsonb(hot), Jsonb(ABOUT)),
    )


def rows(db: psycopg.Connection, query: str, *values: object) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values).fetchall()


def one(db: psycopg.Connection, query: str, *values: object) -> dict[str, Any]:
    (row,) = rows(db, query, *values)
    return row


def test_rates_come_from_positions_a_minute_apart(db: psycopg.Connection, worker: int) -> None:
    db.execute("select jeet_internal.sample_positions()")
    db.execute("update jeet_internal.position_sample set at = at - interval '100 seconds'")
    db.execute("update jeet_internal.head set head = 1000 where stream_id = 1 and partition = 0")
    db.execute("update jeet_internal.checkpoint set next_offset = 600 where task_id = 1")
    busy, idle = rows(db, "select * from jeet.rates order by partition")
    assert busy["arrival_per_s"] == pytest.approx(10.0, rel=0.02)
    assert busy["processed_per_s"] == pytest.approx(6.0, rel=0.02)
    assert (busy["lag"], busy["drain_s"], busy["batch_events"]) == (400, None, None)
    assert (idle["arrival_per_s"], idle["processed_per_s"], idle["lag"], idle["drain_s"]) == (0, 0, 0, 0)
    db.execute("update jeet_internal.checkpoint set next_offset = 990 where task_id = 1")
    db.execute(
        "update jeet_internal.position_sample set offsets = array[900, 0] where function_id = 0 and stream_id = 1"
    )
    row = one(db, "select * from jeet.rates where partition = 0")
    assert row["drain_s"] == pytest.approx(10 / (9.9 - 1.0), rel=0.02)


def test_shares_tell_where_the_time_went(db: psycopg.Connection, worker: int) -> None:
    did = {"task_id": 1, "events": 500, "batches": 5, "cut": 1, "cpu_s": 0.01, "seconds": 10.0, "state_misses": 100}
    record(db, worker, [did | {"sandbox_s": 2.0, "fetch_s": 0.5, "commit_s": 1.5, "state_s": 1.0}])
    row = one(db, "select * from jeet.rates where partition = 0")
    assert row["share_sandbox"] == pytest.approx(0.2, abs=0.001)
    assert row["share_database"] == pytest.approx(0.3, abs=0.001)
    assert row["share_waiting"] == pytest.approx(0.5, abs=0.001)
    assert (row["busiest_statement"], row["batch_events"], row["share_cut"]) == ("commit", 100, 0.2)
    assert row["cpu_us_per_event"] == pytest.approx(20)
    assert row["cache_hit_rate"] == pytest.approx(0.8)


def test_figures_add_up_and_the_slowest_event_stays(db: psycopg.Connection, worker: int) -> None:
    slow = {"slowest_s": 0.08, "slowest_stream": 1, "slowest_offset": 7}
    record(db, worker, [{"task_id": 1, "events": 10, "batches": 1} | slow])
    record(db, worker, [{"task_id": 1, "events": 5, "batches": 1, "slowest_s": 0.03, "slowest_stream": 1}])
    record(db, worker, [{"task_id": 1, "events": 1, "batches": 1}])
    total = one(db, "select sum(events) as events, sum(batches) as batches from jeet_internal.task_figures")
    assert total == {"events": 16, "batches": 3}
    row = rows(db, "select * from jeet.slowest_events order by cpu_ms desc")[0]
    assert (row["function"], row["stream"], row["partition"], row["offset"]) == ("totals", "events", 0, 7)
    assert row["cpu_ms"] == pytest.approx(80)


def test_minutes_become_hours_and_nothing_is_lost(db: psycopg.Connection, worker: int) -> None:
    for minutes in (130, 140, 150, 10):
        record(db, worker, [{"task_id": 1, "events": minutes, "batches": 1, "slowest_s": minutes / 1e3}])
        db.execute(
            "update jeet_internal.task_figures set at = date_trunc('minute', now()) - %s * interval '1 minute'"
            " where events = %s and span_s = 60",
            (minutes, minutes),
        )
    before = one(db, "select sum(events) as n from jeet.history")
    assert db.execute("select jeet_internal.roll_up_figures('2 hours', 2)").fetchone() == (2,)
    assert db.execute("select jeet_internal.roll_up_figures('2 hours', 10)").fetchone() == (1,)
    assert db.execute("select jeet_internal.roll_up_figures('2 hours', 10)").fetchone() == (0,)
    assert one(db, "select sum(events) as n from jeet.history") == before
    spans = rows(
        db, "select span_s, sum(events)::int as n, max(slowest_s) as s from jeet_internal.task_figures group by 1"
    )
    assert {row["span_s"]: (row["n"], row["s"]) for row in spans} == {60: (10, 0.01), 3600: (420, 0.15)}


def test_a_look_at_the_last_minutes_of_history_reads_no_others(db: psycopg.Connection) -> None:
    db.execute("set enable_seqscan = off")  # what the planner may do, not what a small table makes it do
    plan = db.execute(f"explain {query('overview_history')}".encode(), {"minutes": 30}).fetchall()
    assert re.search(r"Index Cond: \(\(span_s = .*\) AND \(at >= ", "\n".join(line for (line,) in plan))


def test_history_tells_how_far_behind_a_function_was_even_if_it_did_nothing(
    db: psycopg.Connection, worker: int
) -> None:
    db.execute("update jeet_internal.head set head = 70 where stream_id = 1")
    db.execute("select jeet_internal.sample_positions()")
    row = one(db, "select * from jeet.history")
    assert (row["function"], row["lag"], row["events"]) == ("totals", 140, 0)


def test_positions_are_noted_when_they_moved_and_once_a_minute(db: psycopg.Connection, worker: int) -> None:
    def noted() -> int:
        return int(db.execute("select jeet_internal.sample_positions()").fetchone()[0])  # type: ignore[index]

    assert noted() == 3  # two streams and a reader
    assert noted() == 0
    db.execute("update jeet_internal.head set head = 1 where stream_id = 1 and partition = 1")
    assert noted() == 2  # the stream, and the lag of its reader
    db.execute("update jeet_internal.position_sample set at = at - interval '61 seconds'")
    assert noted() == 3
    kept = rows(
        db, "select keep_until - at as kept from jeet_internal.position_sample where function_id > 0 order by at"
    )
    assert kept[0]["kept"].days >= 7


def hot(key: str, share: float) -> dict[str, Any]:
    return {"key": key, "share": share, "error": 0.02, "sandbox_share": None, "sandbox_error": None}


def test_hot_keys_stay_as_long_as_they_are_hot(db: psycopg.Connection, worker: int) -> None:
    look = {"task_id": 1, "stream_id": 1, "distinct_keys": None}
    figures = [{"task_id": 1, "events": 80, "batches": 1}, {"task_id": 2, "events": 20, "batches": 1}]
    record(db, worker, figures, [look | {"keys": [hot("a", 0.9), hot("b", 0.2)]}])
    since = {row["key"]: row["since"] for row in rows(db, "select * from jeet.hot_keys")}
    assert set(since) == {"a", "b"}
    record(db, worker, [], [look | {"keys": [hot("a", 0.5)]}])
    row = one(db, "select * from jeet.hot_keys")
    assert (row["key"], row["share"], row["since"]) == ("a", 0.5, since["a"])
    assert row["share_of_stage"] == pytest.approx(0.4)
    record(db, worker, [], [look | {"keys": []}])
    assert rows(db, "select * from jeet.hot_keys") == []


def test_a_partitions_only_key_is_hot_only_if_its_partition_is(db: psycopg.Connection, worker: int) -> None:
    for task, events in ((1, 50), (2, 50)):
        only = {"task_id": task, "stream_id": 1, "distinct_keys": 1, "keys": [hot(f"k{task}", 1.0)]}
        record(db, worker, [{"task_id": task, "events": events, "batches": 1}], [only])
    assert rows(db, "select * from jeet.hot_keys") == []
    record(db, worker, [{"task_id": 1, "events": 900, "batches": 1}])
    assert [row["key"] for row in rows(db, "select * from jeet.hot_keys")] == ["k1"]


def test_state_is_counted_while_it_is_small_and_estimated_beyond(db: psycopg.Connection, worker: int) -> None:
    db.execute("insert into jeet_internal.collection (function_id, id, name) values (1, 1, 'few')")

    def put(collection: int, start: int, end: int) -> None:
        db.execute(
            "insert into jeet_internal.state (task_id, collection_id, key, value)"
            " select 1 + n %% 2, %s, 'k' || n, to_json(repeat('x', 100)) from generate_series(%s::int, %s) n",
            (collection, start, end - 1),
        )

    put(0, 0, 20_000)
    put(1, 0, 7)
    db.execute("select jeet_internal.measure_state(2000)")
    db.execute("update jeet_internal.state_size set at = at - interval '2 hours'")
    put(0, 20_000, 30_000)
    db.execute("select jeet_internal.measure_state(2000)")
    large, few = rows(db, "select * from jeet.state_size order by rows desc")
    assert (large["collection"], large["rows"], large["error"], large["ttl"]) == ("totals", 30_000, 0, None)
    assert large["growth_rows_per_hour"] == pytest.approx(5000, rel=0.01)
    assert large["bytes"] > 30_000 * 100
    assert (few["rows"], few["growth_rows_per_hour"]) == (7, 0)
    db.execute("delete from jeet_internal.state_size")
    db.execute("select jeet_internal.measure_state(200)")
    guess = rows(db, "select * from jeet.state_size order by rows desc")[0]
    assert 0.05 < guess["error"] < 0.15
    assert abs(guess["rows"] - 30_000) <= 4 * guess["error"] * 30_000


def test_who_takes_a_task_from_whom_is_told_with_the_reason(db: psycopg.Connection, worker: int) -> None:
    db.execute("insert into jeet_internal.assignment (task_id, worker_id) values (1, %s)", (worker,))
    other = db.execute(
        "insert into jeet_internal.worker (host, pid, version, backend_pid, backend_start)"
        " values ('there', 2, '0', 2, now()) returning id"
    ).fetchone()
    assert other is not None

    def take(by: int) -> None:
        db.execute("update jeet_internal.assignment set worker_id = %s", (by,))
        db.execute("select jeet_internal.acquire_tasks(%s, 1, array[1])", (by,))

    take(worker)
    take(worker)
    db.execute(
        "update jeet_internal.worker set heartbeat_at = heartbeat_at - interval '1 second' where id = %s", (worker,)
    )
    take(other[0])
    db.execute("select jeet_internal.release_tasks(%s, array[1])", (other[0],))
    take(worker)
    found = rows(db, "select * from jeet.lease_changes order by at")
    assert [(row["from_worker"], row["to_worker"], row["reason"]) for row in found] == [
        (None, worker, "deployed"),
        (worker, worker, "changed"),
        (worker, other[0], "lost"),
        (other[0], worker, "released"),
    ]
    assert found[1]["elapsed_ms"] is None
    assert found[2]["elapsed_ms"] >= 1000
    assert 0 <= found[3]["elapsed_ms"] < 60_000


def test_workers_tell_how_they_are(db: psycopg.Connection, worker: int) -> None:
    assert one(db, "select busy from jeet.workers")["busy"] is None
    record(db, worker, [])
    row = one(db, "select * from jeet.workers")
    assert (row["memory_bytes"], row["lanes"], row["busy"], row["clock_offset_ms"]) == (100, 2, 0.5, 1500.0)


def test_an_open_transaction_and_dead_rows_are_seen(db: psycopg.Connection, database_url: str, worker: int) -> None:
    with psycopg.connect(database_url, application_name="forgotten") as holder:
        holder.execute("select 1")
        row = one(db, "select * from jeet.database_health")
        assert (row["oldest_application"], row["oldest_pid"]) == ("forgotten", holder.info.backend_pid)
        assert row["oldest_state"] == "idle in transaction"
    assert 0 <= row["notification_queue"] < 0.01
    tables = {row["name"]: row for row in rows(db, "select * from jeet.table_health")}
    assert {"event", "task", "head", "state", "checkpoint"} <= set(tables)
    assert tables["head"]["bytes"] > 0
