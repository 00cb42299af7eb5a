"""Savepoints, restore and reset on their own: what they hold, what they put back, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.torture.cluster import wait_for

from control.actors import make_function, workers
from control.test_stages import DeployGraph, deploy_graph, everything, kept, put, tasks, windowed
from jeet.control import lifecycle, savepoints
from jeet.control.change import at_rest, change
from jeet.control.reset import reset
from jeet.control.spec import Start
from jeet.errors import DeployError, NotFound, UsageError
from jeet.ids import FunctionId

__all__ = ["deploy_graph"]

MINUTE = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.fixture
def busy(db: psycopg.Connection, deploy_graph: DeployGraph) -> None:
    """A function of three stages that stands in the middle: something of everything."""
    deploy_graph(windowed())
    publish(db, 20)
    hand_on(db, "f/rekey1", 6)
    stand(db, "events", 3)
    stand(db, "f/rekey1", 1)
    db.execute("update jeet_internal.checkpoint set watermark = '2026-01-01'")
    db.execute("update jeet_internal.task set clock = '2026-01-01', watermark = '2026-01-01', late = 2 where stage < 2")
    for stage, collection in ((0, "mine"), (1, "window"), (2, "total")):
        put(db, stage, collection)
    set_timer(db, "w")
    db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", event, error, version)'
        " select id, (select id from jeet_internal.stream where name = 'events'), 0, '{}', 'e', 1"
        " from jeet_internal.task where stage = 0 and partition = 0"
    )


def stand(db: psycopg.Connection, stream: str, offset: int) -> None:
    db.execute(
        "update jeet_internal.checkpoint set next_offset = %s"
        " where stream_id = (select id from jeet_internal.stream where name = %s)",
        (offset, stream),
    )


def publish(db: psycopg.Connection, count: int) -> None:
    events = [json.dumps({"id": f"k{n}"}) for n in range(count)]
    db.execute("select count(*) from jeet.publish_many('events', %s::text[]::json[])", (events,))


def hand_on(db: psycopg.Connection, stream: str, count: int, first: int = 0) -> None:
    """What a commit of an earlier stage writes."""
    values = "\n".join(json.dumps({"n": n}) for n in range(first, first + count))
    keys = "\n".join(json.dumps(f"k{n}") for n in range(first, first + count))
    db.execute(
        "select jeet_internal.append(array[id], array[%s], array[%s]) from jeet_internal.stream where name = %s",
        (keys, values, stream),
    )


def set_timer(db: psycopg.Connection, name: str) -> None:
    db.execute(
        "insert into jeet_internal.timer (task_id, operator, key, name, at, wall)"
        " select id, 'window', 'k', %s, %s, false from jeet_internal.task where stage = 1 and partition = 1",
        (name, MINUTE),
    )


def ahead(db: psycopg.Connection, function: int = 1) -> list[tuple[Any, ...]]:
    """What each reader of a stream between stages still has to read."""
    return db.execute(
        "select t.stage, t.partition, e.key, e.value::text from jeet_internal.task t"
        " join jeet_internal.checkpoint c on c.task_id = t.id"
        " join jeet_internal.stream s on s.id = c.stream_id and s.internal"
        " join jeet_internal.event e on e.stream_id = s.id and e.partition = t.partition"
        ' and e."offset" >= c.next_offset'
        ' where t.function_id = %s order by t.stage, t.partition, e."offset"',
        (function,),
    ).fetchall()


def stands(db: psycopg.Connection, function: int = 1) -> list[Any]:
    """All that a savepoint is to bring back, as it means the same wherever it lies."""
    return [
        db.execute(
            "select t.stage, t.partition, s.name, c.next_offset, c.watermark from jeet_internal.task t"
            " join jeet_internal.checkpoint c on c.task_id = t.id join jeet_internal.stream s on s.id = c.stream_id"
            " where t.function_id = %s and not s.internal order by 1, 2, 3",
            (function,),
        ).fetchall(),
        ahead(db, function),
        db.execute(
            "select t.stage, t.partition, t.clock, t.watermark, t.late from jeet_internal.task t"
            " where t.function_id = %s order by 1, 2",
            (function,),
        ).fetchall(),
        db.execute(
            "select t.stage, t.partition, c.name, s.key, s.value::text, s.version from jeet_internal.state s"
            " join jeet_internal.task t on t.id = s.task_id"
            " join jeet_internal.collection c on c.function_id = t.function_id and c.id = s.collection_id"
            " where t.function_id = %s order by 1, 2, 3, 4",
            (function,),
        ).fetchall(),
        db.execute(
            "select t.stage, t.partition, r.operator, r.key, r.name, r.at, r.wall from jeet_internal.timer r"
            " join jeet_internal.task t on t.id = r.task_id where t.function_id = %s order by 1, 2, 3, 4, 5",
            (function,),
        ).fetchall(),
    ]


def letters(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute('select id, "offset", status from jeet_internal.dead_letter order by 1').fetchall()


def go_on(db: psycopg.Connection) -> None:
    """Everything moves: what came later must not be there after a restore."""
    publish(db, 10)
    hand_on(db, "f/rekey1", 8, first=6)
    db.execute("update jeet_internal.checkpoint set next_offset = next_offset + 2, watermark = '2026-02-02'")
    db.execute("update jeet_internal.task set clock = '2026-02-02', watermark = '2026-02-02', late = late + 1")
    db.execute("delete from jeet_internal.state where task_id = (select min(task_id) from jeet_internal.state)")
    db.execute("update jeet_internal.state set value = '2', version = 7")
    put(db, 1, "window", "later")
    db.execute("delete from jeet_internal.timer")
    set_timer(db, "later")
    db.execute("update jeet_internal.dead_letter set status = 'redriven'")
    db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", event, error, version)'
        " select id, 1, 4, '{}', 'later', 1 from jeet_internal.task where stage = 0 and partition = 0"
    )


def test_a_restore_brings_back_everything_as_it_was(db: psycopg.Connection, busy: None) -> None:
    before, epochs, open_letters = (
        stands(db),
        db.execute("select sum(epoch) from jeet_internal.task").fetchone(),
        letters(db),
    )
    made = savepoints.take(db, "f", "a test")
    assert (made.entries, made.timers, made.letters, made.version) == (3, 1, 1, 1)
    assert made.events == len(before[1]) > 0
    assert made.positions == {"events": [3, 3]}
    assert stands(db) == before
    go_on(db)
    assert stands(db) != before
    done = savepoints.restore(db, "f", made.id, wait_s=0)
    assert stands(db) == before
    assert letters(db) == open_letters
    assert (done.again, done.skipped) == (4, 0)
    assert done.notes == ("4 events are processed again: what f made of them stays in out, and comes there once more",)
    assert db.execute("select sum(epoch) from jeet_internal.task").fetchone() > epochs  # type: ignore[operator]
    # Again, and forward to a later one: what was handed on again is not lost by being copied from copies.
    again = savepoints.take(db, "f", "again")
    go_on(db)
    later, after = savepoints.take(db, "f", "later"), stands(db)
    savepoints.restore(db, "f", again.id, wait_s=0)
    assert stands(db) == before
    assert savepoints.restore(db, "f", later.id, wait_s=0).skipped == 4
    assert stands(db) == after


def test_the_clock_of_state_stands_still_in_a_savepoint(db: psycopg.Connection, busy: None) -> None:
    db.execute("update jeet_internal.state set expires_at = clock_timestamp() + interval '1 hour'")
    made = savepoints.take(db, "f", "a test")
    db.execute("update jeet_internal.savepoint set taken_at = taken_at - interval '1 day'")
    db.execute("update jeet_internal.savepoint_state set expires_at = expires_at - interval '1 day'")
    savepoints.restore(db, "f", made.id, wait_s=0)
    left = "select min(expires_at - clock_timestamp()) from jeet.state"
    assert timedelta(minutes=59) < db.execute(left).fetchone()[0] <= timedelta(hours=1)  # type: ignore[index]
    db.execute("update jeet_internal.function set hold_ttl = false")
    savepoints.restore(db, "f", made.id, wait_s=0)
    assert kept(db) == []


def test_a_second_function_goes_on_from_a_savepoint_and_writes_to_no_stream_of_the_first(
    db: psycopg.Connection, busy: None
) -> None:
    made = savepoints.take(db, "f", "a test")
    before, first = stands(db), everything(db)
    done = savepoints.restore_into(db, "f", made.id, "g", wait_s=0)
    assert done.streams == ("g.out",)
    assert "g.out for out" in done.notes[0]
    assert "open dead letters (1) stay with f" in done.notes[1]
    made_id = db.execute("select id from jeet_internal.function where name = 'g'").fetchone()[0]  # type: ignore[index]
    twin = stands(db, made_id)
    assert twin[1:] == before[1:]
    assert twin[0] == before[0]
    assert stands(db) == before
    assert [row for row in everything(db)[0] if row[1] == 1] == first[0]
    written = db.execute(
        "select distinct s.name from jeet_internal.stage g cross join unnest(g.outputs) o(id)"
        " join jeet_internal.stream s on s.id = o.id where g.function_id = %s order by 1",
        (made_id,),
    ).fetchall()
    assert written == [("g.out",), ("g/by_end",), ("g/rekey1",)]
    # Its sink by name; the code's own name for it stays.
    savepoints.restore_into(db, "f", made.id, "h", sink="elsewhere", wait_s=0)
    plans = db.execute(
        "select plan -> 'outputs' -> 0 from jeet_internal.stage g"
        " join jeet_internal.function f on f.id = g.function_id where f.name = 'h' and g.stage = 2"
    ).fetchall()
    assert [(each["stream"], each["name"]) for (each,) in plans] == [("elsewhere", "out")]
    with pytest.raises(UsageError, match="a function g exists already"):
        savepoints.restore_into(db, "f", made.id, "g", wait_s=0)
    for theirs, why in (("out", "writes to"), ("events", "reads")):
        with pytest.raises(UsageError, match=f"stream {theirs} is one that f {why}: choose another --sink"):
            savepoints.restore_into(db, "f", made.id, "i", sink=theirs, wait_s=0)
    # It lives on by itself.
    lifecycle.delete(db, "f")
    assert stands(db, made_id) == twin
    assert savepoints.take(db, "g", "its own").version == 1


def test_what_cannot_be_restored_is_refused_and_nothing_changes(
    db: psycopg.Connection, busy: None, deploy_graph: DeployGraph
) -> None:
    made = savepoints.take(db, "f", "a test")
    with pytest.raises(NotFound, match="f has no savepoint 99; jeet savepoints f lists them"):
        savepoints.restore(db, "f", 99, wait_s=0)
    db.execute("update jeet_internal.head set first_offset = 5 where stream_id = 1")
    before = [stands(db), letters(db)]
    with pytest.raises(UsageError, match=r"retention has taken the events before 5.*--to=earliest"):
        savepoints.restore(db, "f", made.id, wait_s=0)
    with pytest.raises(UsageError, match="retention has taken"):
        savepoints.restore_into(db, "f", made.id, "g", wait_s=0)
    assert [stands(db), letters(db)] == before
    assert db.execute("select count(*) from jeet_internal.function").fetchone() == (1,)
    db.execute("update jeet_internal.head set first_offset = 0")
    deploy_graph(windowed(300_000), how="reset")
    before = [stands(db), letters(db)]
    with pytest.raises(DeployError, match=r"tumbling 5m count.*jeet rollback f 1 --reset first, or .*--into=OTHER"):
        savepoints.restore(db, "f", made.id, wait_s=0)
    assert [stands(db), letters(db)] == before
    # With the version that it is of, it fits again, whatever became of the streams between stages.
    lifecycle.rollback(db, "f", wait_s=0, graph="reset")
    savepoints.restore(db, "f", made.id, wait_s=0)
    assert len(ahead(db)) == made.events


def test_a_crash_in_the_middle_of_a_restore_leaves_nothing_half_done(
    db: psycopg.Connection, database_url: str, busy: None
) -> None:
    made = savepoints.take(db, "f", "a test")
    go_on(db)
    before = stands(db)
    with psycopg.connect(database_url, autocommit=True) as dying:
        db.execute(
            "create function die() returns trigger language plpgsql as"
            " $$ begin perform pg_terminate_backend(pg_backend_pid()); return new; end $$;"
            " create trigger die before insert on jeet_internal.timer for each row execute function die()"
        )
        with pytest.raises(psycopg.OperationalError):
            savepoints.restore(dying, "f", made.id, wait_s=0)
    db.execute("drop trigger die on jeet_internal.timer")
    assert stands(db) == before
    savepoints.restore(db, "f", made.id, wait_s=0)


def test_while_a_long_change_is_under_way_nobody_waits_for_the_tasks_of_its_function(
    db: psycopg.Connection, database_url: str, busy: None
) -> None:
    other = make_function(db, "other", 1)
    with workers(database_url, 1) as (worker,), psycopg.connect(database_url, autocommit=True) as changing:
        worker.obedient = False
        db.execute("insert into jeet_internal.assignment select id, %s from jeet_internal.task", (worker.id,))
        everyone = "array(select id from jeet_internal.task)"
        take = f"select distinct function_name from jeet_internal.acquire_tasks(%s, 1, {everyone})"
        with at_rest(changing, FunctionId(1)), change(changing):
            changing.execute("select id from jeet_internal.task where function_id = 1 for update")
            db.execute("set lock_timeout = '2s'")
            assert db.execute(take, (worker.id,)).fetchall() == [("other",)]
        assert sorted(db.execute(take, (worker.id,)).fetchall()) == [("f",), ("other",)]
    assert other == 2


@pytest.mark.parametrize("how", ["restore", "reset"])
def test_who_publishes_does_not_wait_for_state_that_goes(
    db: psycopg.Connection, database_url: str, busy: None, how: str
) -> None:
    made = savepoints.take(db, "f", "a test")

    def go_back() -> None:
        with psycopg.connect(database_url, autocommit=True) as changing:
            if how == "restore":
                savepoints.restore(changing, "f", made.id, wait_s=0)
            else:
                reset(changing, "f", Start("earliest"), wait_s=0)

    with psycopg.connect(database_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        other.execute("begin")
        other.execute("select from jeet_internal.state for update")
        going = pool.submit(go_back)
        waits = (
            "select exists (select from pg_locks l join pg_locks w on w.pid = l.pid and not w.granted"
            " where l.mode = 'RowExclusiveLock' and l.relation = 'jeet_internal.state'::regclass)"
        )
        wait_for(lambda: db.execute(waits).fetchone() == (True,), "it is at state")
        db.execute("set lock_timeout = '1s'")
        publish(db, 8)
        other.execute("rollback")
        going.result()
    assert db.execute("select sum(head) from jeet_internal.head where stream_id = 1").fetchone() == (28,)


def test_a_savepoint_is_of_one_moment_whatever_is_committed_meanwhile(
    db: psycopg.Connection, database_url: str, busy: None
) -> None:
    # A commit moves checkpoint and state together, while the savepoint is between the two.
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("begin")
        other.execute("update jeet_internal.checkpoint set next_offset = next_offset + 5")
        made = savepoints.take(db, "f", "a test")  # does not wait for it
        other.execute("update jeet_internal.state set value = '99'")
        other.execute("commit")
    assert made.positions == {"events": [3, 3]}
    assert db.execute("select distinct value::text from jeet_internal.savepoint_state").fetchall() == [("1",)]


def test_a_dropped_savepoint_is_gone_and_old_automatic_ones_go(db: psycopg.Connection, busy: None) -> None:
    kept_one = savepoints.take(db, "f", "mine")
    taken = []
    for _ in range(4):
        with change(db):
            taken.append(savepoints.take_before(db, 1, "before a test"))  # type: ignore[arg-type]
    dropped = savepoints.take(db, "f", "not needed")
    savepoints.drop(db, "f", dropped.id)
    with pytest.raises(NotFound):
        savepoints.drop(db, "f", dropped.id)
    sweep: Callable[[], int] = lambda: db.execute("select jeet_internal.sweep_savepoints(2, 5)").fetchone()[0]  # type: ignore[index]  # noqa: E731
    while sweep() == 5:
        pass
    assert [each.id for each in savepoints.savepoints(db, "f")] == [taken[3], taken[2], kept_one.id]
    rest = db.execute("select distinct savepoint_id from jeet_internal.savepoint_state order by 1").fetchall()
    assert rest == [(kept_one.id,), (taken[2],), (taken[3],)]
    lifecycle.delete(db, "f")
    while sweep() == 5:
        pass
    for table in ("", "_task", "_checkpoint", "_state", "_timer", "_event", "_letter"):
        assert db.execute(f"select count(*) from jeet_internal.savepoint{table}").fetchone() == (0,)


def test_before_a_version_that_meets_state_a_savepoint_is_taken(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    deploy_graph(windowed())
    assert deploy_graph(windowed()).notes == ()
    put(db, 1, "window")
    before = stands(db)
    graph = windowed()
    graph.add("filter", 3)
    assert deploy_graph(graph).notes[0] == "savepoint 1 was taken: jeet restore f 1 goes back to it"
    deploy_graph(windowed(300_000), how="drain")
    assert stands(db) != before
    put(db, 1, "window")
    rolled = lifecycle.rollback(db, "f", 1, wait_s=0, graph="reset")
    assert rolled.notes == ("savepoint 3 was taken: jeet restore f 3 goes back to it",)
    assert [(each.why, each.version, each.entries) for each in savepoints.savepoints(db, "f")] == [
        ("before going back to version 1", 4, 1),
        ("before version 4", 3, 1),
        ("before version 3", 2, 1),
    ]
    savepoints.restore(db, "f", 2, wait_s=0)
    assert stands(db) == before
    # Not if it is refused, nor if nobody wants it.
    with pytest.raises(DeployError):
        deploy_graph(windowed(300_000))
    lifecycle.rollback(db, "f", 2, wait_s=0, savepoint=False)
    assert len(savepoints.savepoints(db, "f")) == 3


def test_a_reset_begins_anew_from_where_it_is_told(db: psycopg.Connection, busy: None) -> None:
    done = reset(db, "f", Start("earliest"), wait_s=0)
    assert (done.again, done.skipped, done.entries, done.letters, done.outputs) == (6, 0, 3, 1, ("out",))
    assert {row[3] for row in tasks(db) if row[2] == "events"} == {0}
    assert ahead(db) == []
    assert kept(db) == []
    assert stands(db)[2] == [(stage, p, None, None, 0) for stage, n in ((0, 2), (1, 2), (2, 3)) for p in range(n)]
    assert [status for _, _, status in letters(db)] == ["dropped"]
    assert reset(db, "f", Start("latest"), wait_s=0).skipped == 20
    assert reset(db, "f", Start("offset", offset=2), wait_s=0).again == 16
    assert reset(db, "f", Start("time", time=datetime(2020, 1, 1, tzinfo=UTC)), wait_s=0).again == 4


def test_before_a_reset_or_a_restore_a_savepoint_is_taken(db: psycopg.Connection, busy: None) -> None:
    before = stands(db)
    done = reset(db, "f", Start("latest"), wait_s=0)
    assert done.savepoint is not None
    assert savepoints.restore(db, "f", done.savepoint, wait_s=0).before is None  # there was nothing to keep any more
    assert stands(db) == before
    go_on(db)
    later = stands(db)
    kept = savepoints.restore(db, "f", done.savepoint, wait_s=0).before
    assert kept is not None
    savepoints.restore(db, "f", kept, keep=False, wait_s=0)
    assert stands(db) == later
    assert reset(db, "f", Start("latest"), savepoint=False, wait_s=0).savepoint is None
    assert [each.why for each in savepoints.savepoints(db, "f")] == ["before a restore", "before a reset"]


def test_a_reset_that_keeps_state_only_moves_the_positions(db: psycopg.Connection, busy: None) -> None:
    before, what = stands(db), kept(db)
    done = reset(db, "f", Start("offset", offset=1), keep_state=True, wait_s=0)
    assert (done.again, done.entries, done.late) == (4, 0, True)
    assert kept(db) == what
    assert stands(db)[1:] == before[1:]
    assert {row[3] for row in tasks(db) if row[2] == "events"} == {1}
    assert [status for _, _, status in letters(db)] == ["open"]


def test_what_had_halted_or_was_paused_before(db: psycopg.Connection, busy: None) -> None:
    made = savepoints.take(db, "f", "a test")
    db.execute("update jeet_internal.task set status = 'halted', halt_reason = 'x'")
    db.execute("update jeet_internal.function set status = 'failed'")
    savepoints.restore(db, "f", made.id, wait_s=0)
    assert db.execute("select distinct status from jeet_internal.task").fetchall() == [("running",)]
    assert db.execute("select status from jeet_internal.function").fetchone() == ("running",)
    lifecycle.pause(db, "f")
    assert savepoints.restore(db, "f", made.id, wait_s=0).status == "paused"
    assert reset(db, "f", Start("latest"), wait_s=0).status == "paused"


def test_what_is_not_whole_is_not_kept(db: psycopg.Connection, busy: None) -> None:
    db.execute(
        "delete from jeet_internal.event e using jeet_internal.stream s"
        " where s.id = e.stream_id and s.name = 'f/rekey1'"
    )
    with pytest.raises(DeployError, match=r"of f/rekey1 are not in the log; .*--no_savepoint"):
        savepoints.take(db, "f", "a test")
    assert savepoints.savepoints(db, "f") == []
