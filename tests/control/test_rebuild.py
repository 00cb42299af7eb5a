"""Rebuild on its own: its phases, what tasks are told meanwhile, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from control.actors import workers
from control.test_restore import MINUTE, busy, publish, set_timer, stands
from control.test_stages import DeployGraph, deploy_graph, kept, tasks, windowed
from jeet.control import lifecycle, savepoints
from jeet.control.rebuild import rebuild, wait
from jeet.control.reset import reset
from jeet.control.spec import Start
from jeet.errors import DeployError, UsageError

__all__ = ["busy", "deploy_graph"]


def phase(db: psycopg.Connection) -> str | None:
    row = db.execute("select phase from jeet_internal.rebuild").fetchone()
    return None if row is None else row[0]


def advance(db: psycopg.Connection) -> int:
    row = db.execute("select jeet_internal.advance_rebuilds()").fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def through(db: psycopg.Connection, busy: None) -> None:
    """Nothing is under way between the stages of the busy function, nothing is due, and no dead letter is open."""
    db.execute("update jeet_internal.dead_letter set status = 'dropped'")
    db.execute(
        "update jeet_internal.checkpoint c set next_offset = h.head from jeet_internal.head h, jeet_internal.stream s,"
        " jeet_internal.task t where t.id = c.task_id and s.id = c.stream_id and s.internal and h.stream_id = s.id"
        " and h.partition = t.partition"
    )


def test_a_rebuild_goes_from_phase_to_phase_when_what_there_was_is_done(db: psycopg.Connection, busy: None) -> None:
    db.execute("update jeet_internal.dead_letter set status = 'dropped'")
    publish(db, 8)
    begun = rebuild(db, "f")
    assert (begun.phase, begun.begun, begun.events, begun.savepoint) == ("settle", True, 6, 1)
    # Something lies between the stages still.
    assert advance(db) == 0
    db.execute("update jeet_internal.checkpoint set next_offset = 3 where stop_at is null and next_offset < 3")
    db.execute(
        "update jeet_internal.checkpoint c set next_offset = h.head from jeet_internal.head h, jeet_internal.task t"
        " where t.id = c.task_id and h.stream_id = c.stream_id and h.partition = t.partition and c.stop_at is null"
    )
    epochs = "select array_agg(epoch order by id) from jeet_internal.task"
    before = db.execute(epochs).fetchone()
    assert advance(db) == 1
    assert db.execute(epochs).fetchone() != before
    assert phase(db) == "replay"
    assert kept(db) == []
    assert {row[3] for row in tasks(db) if row[2] == "events"} == {0}
    again = rebuild(db, "f")
    assert (again.phase, again.begun, again.events) == ("replay", False, 6)
    # Retention waits for what is to be read again.
    assert advance(db) == 0
    db.execute("update jeet_internal.checkpoint set next_offset = stop_at where stop_at is not null")
    # One stage after the other is brought to the time that it had; a timer that this makes due comes before the next.
    set_timer(db, "w")
    db.execute("update jeet_internal.task set clock_limit = %s where stage = 1", (MINUTE,))
    assert [advance(db), phase(db), advance(db), advance(db)] == [1, "close", 1, 0]
    assert db.execute(
        "select distinct stage, clock from jeet_internal.task where clock is not null order by 1"
    ).fetchall() == [
        (0, datetime(2026, 1, 1, tzinfo=UTC)),
        (1, MINUTE),
    ]
    db.execute("delete from jeet_internal.timer")
    assert [advance(db), advance(db), phase(db)] == [1, 1, None]
    assert db.execute("select count(*) from jeet_internal.checkpoint where stop_at is not null").fetchone() == (0,)
    assert db.execute("select count(*) from jeet_internal.task where clock_limit is not null").fetchone() == (0,)
    assert advance(db) == 0


def test_who_takes_a_task_of_a_rebuild_is_told_where_it_stops_and_what_it_may_not_send(
    db: psycopg.Connection, database_url: str, through: None
) -> None:
    def told() -> list[tuple[Any, ...]]:
        with workers(database_url, 1) as (worker,):
            worker.obedient = False
            db.execute("delete from jeet_internal.assignment")
            db.execute("insert into jeet_internal.assignment select id, %s from jeet_internal.task", (worker.id,))
            return db.execute(
                "select a.stage, a.stops, array(select s.name from jeet_internal.stream s where s.id = any (a.muted)),"
                " a.clock_limit_ms from jeet_internal.acquire_tasks(%s, 1, array(select id from jeet_internal.task)) a"
                " where a.partition = 0 order by 1",
                (worker.id,),
            ).fetchall()

    assert told() == [(0, [None], [], None), (1, [None], [], None), (2, [None], [], None)]
    rebuild(db, "f")
    assert told() == [(0, [3], [], None), (1, [None], [], None), (2, [None], [], None)]
    advance(db)
    january = datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000
    assert told() == [(0, [3], [], january), (1, [None], [], january), (2, [None], ["out"], float("-inf"))]
    savepoints.restore(db, "f", 1, wait_s=0)
    rebuild(db, "f", outputs=True)
    advance(db)
    assert [row[2] for row in told()] == [[], [], []]


def test_a_rebuild_that_cannot_be_right_is_refused(
    db: psycopg.Connection, busy: None, deploy_graph: DeployGraph
) -> None:
    with pytest.raises(UsageError, match=r"f has open dead letters \(1\).*dlq redrive or drop"):
        rebuild(db, "f")
    db.execute("update jeet_internal.dead_letter set error = 'late for window'")
    db.execute("update jeet_internal.head set first_offset = 2 where stream_id = 1 and partition = 1")
    with pytest.raises(UsageError, match=r"the first 2 events of partition 1 of events.*--partial"):
        rebuild(db, "f")
    lifecycle.pause(db, "f")
    with pytest.raises(UsageError, match="jeet resume f first"):
        rebuild(db, "f", partial=True)
    lifecycle.resume(db, "f", wait_s=0)
    assert phase(db) is None
    assert savepoints.savepoints(db, "f") == []
    assert rebuild(db, "f", partial=True).events == 4
    graph = windowed()
    graph.add("filter", 3)
    with pytest.raises(DeployError, match="f is being rebuilt: wait until"):
        deploy_graph(graph)
    with pytest.raises(UsageError, match="f is being rebuilt"):
        savepoints.take(db, "f", "a test")


def test_a_restore_or_a_reset_ends_a_rebuild(db: psycopg.Connection, through: None) -> None:
    before = stands(db)
    begun = rebuild(db, "f")
    advance(db)
    assert begun.savepoint is not None
    savepoints.restore(db, "f", begun.savepoint, wait_s=0)
    assert phase(db) is None
    assert stands(db) == before
    rebuild(db, "f")
    reset(db, "f", Start("latest"), wait_s=0)
    assert phase(db) is None
    rebuild(db, "f")
    lifecycle.delete(db, "f")
    assert phase(db) is None


@pytest.mark.parametrize(
    ("spoil", "partial", "why"),
    [
        (
            "update jeet_internal.head set first_offset = 2 where stream_id = 1 and partition = 1",
            False,
            "first 2 events",
        ),
        ("update jeet_internal.head set first_offset = 2 where stream_id = 1 and partition = 1", True, None),
        ("update jeet_internal.dead_letter set status = 'open'", False, "1 dead letters of f are open.*redrive"),
    ],
)
def test_a_rebuild_that_cannot_be_right_any_more_ends_before_it_forgets_anything(
    db: psycopg.Connection, through: None, spoil: str, partial: bool, why: str | None
) -> None:
    before = stands(db)[:-1]
    rebuild(db, "f", partial=partial)
    db.execute(spoil)
    if why is None:
        assert (advance(db), phase(db)) == (1, "replay")
        return
    advance(db)
    assert phase(db) is None
    with pytest.raises(DeployError, match=f"rebuild of f has ended, and changed nothing: .*{why}"):
        wait(db, "f", print)
    assert stands(db)[:-1] == before
    failed = "select rebuild_failed is not null from jeet_internal.function"
    assert db.execute(failed).fetchone() == (True,)
    reset(db, "f", Start("latest"), keep_state=True, wait_s=0)
    assert db.execute(failed).fetchone() == (False,)
