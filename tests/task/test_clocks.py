"""What a worker's clocks learn from the database, and what the view of watermarks tells of it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from asyncpg import Connection

from jeet.db.sql import query
from jeet.ids import TaskId
from jeet.plan import StageInput, StageOutput, StagePlan
from jeet.sandbox.call import BatchInput, BatchResult
from jeet.task.program import Maker
from task.rows import Deployed, deploy_by_hand
from task.test_lane import Guest, until
from task.timed import TimedProgram, clock, fires, publish, running_clocks, set_timers, texts, timed_task

HOLD_MS = 20.0
LONG_MS = 3_600_000.0


def plan(stage: int, **more: Any) -> StagePlan:
    inputs = (StageInput("totals_in", internal=stage > 0),)
    return StagePlan(
        number=stage, inputs=inputs, outputs=(StageOutput("totals_out"),), timed=True, idle_ms=LONG_MS, **more
    )


@pytest.fixture
def second(db: psycopg.Connection[Any]) -> Deployed:
    """One task of a second stage; `totals_in` is what two tasks of the first stage make, from `source`."""
    deployed = deploy_by_hand(db, partitions=1)
    db.execute("select jeet_internal.create_stream('source', 2)")
    db.execute("update jeet_internal.stream set internal = true where id = %s", (deployed.source,))
    db.execute("update jeet_internal.task set stage = 1")
    db.execute("update jeet_internal.stage set stage = 1, plan = %s", (json.dumps(plan(1).to_json()),))
    db.execute(
        "insert into jeet_internal.stage (function_id, version, stage, inputs, outputs, plan)"
        " select %s, 1, 0, array[s.id], array[null, %s], %s from jeet_internal.stream s where s.name = 'source'",
        (deployed.function, deployed.source, json.dumps(plan(0, hold_ms=HOLD_MS).to_json())),
    )
    db.execute(
        "with made as (insert into jeet_internal.task (function_id, stage, partition, version)"
        " select %s, 0, p, 1 from generate_series(0, 1) p returning id)"
        " insert into jeet_internal.checkpoint (task_id, stream_id)"
        " select m.id, s.id from made m, jeet_internal.stream s where s.name = 'source'",
        (deployed.function,),
    )
    return deployed


def first_stage(db: psycopg.Connection[Any], partition: int, at_ms: float | None, *, timers_due: bool = False) -> None:
    """Where a task of the first stage has come to."""
    db.execute(
        "update jeet_internal.task set clock = to_timestamp(%s / 1000.0), watermark = to_timestamp(%s / 1000.0),"
        " committed_at = clock_timestamp() where stage = 0 and partition = %s",
        (at_ms, None if timers_due else at_ms, partition),
    )


def waits(db: psycopg.Connection[Any], partition: int, events: int) -> None:
    """So many events wait for a task of the first stage."""
    db.execute(
        "update jeet_internal.head set head = %s where partition = %s"
        " and stream_id = (select id from jeet_internal.stream where name = 'source')",
        (events, partition),
    )


def program(deployed: Deployed, **more: Any) -> TimedProgram:
    return TimedProgram(plan=plan(1), makers={deployed.source: Maker(0, HOLD_MS)}, **more)


async def test_a_watermark_counts_only_once_everything_is_committed_that_was_written_up_to_it(
    database_url: str, db: psycopg.Connection[Any], second: Deployed
) -> None:
    set_timers(db, second, "due", at_ms=900)
    publish(db, second.source, *range(500, 505))
    for partition in (0, 1):
        first_stage(db, partition, 1000)
    looked = threading.Event()
    watermarks: list[float | None] = []
    fired_after: list[int] = []

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        if batch.timers:
            fired_after.append(len(watermarks))
        else:
            watermarks.append(batch.watermark_ms)
            looked.clear()
            assert looked.wait(20)  # the heads and watermarks have been read, and again, before this event is committed
        return fires(guest, batch)

    async with running_clocks(database_url) as (lane, clocks):
        clocks.on_look = looked.set
        task = timed_task(lane, second.lease(), program(second, answer=answer))
        task.size = task.most_events = 1
        lane.add(task)
        clocks.stir()
        await until(lambda: texts(db, second.sink) == ["due"])
    assert watermarks == [None] * 5
    assert fired_after == [5]
    assert clock(db, second.tasks[0]) == (1000 - HOLD_MS, 1000 - HOLD_MS)


@pytest.mark.parametrize(
    ("rule", "stand", "reached"),
    [
        ("the slower one holds it", {0: 1000, 1: 700}, 680),
        ("one that never had an event holds nothing", {0: 1000}, 980),
        ("one that has events to read holds it", {0: 1000, "waits": 1}, None),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
async def test_a_later_stage_goes_by_the_tasks_of_the_stage_before(
    database_url: str,
    db: psycopg.Connection[Any],
    second: Deployed,
    rule: str,
    stand: dict[int | str, float],
    reached: float | None,
) -> None:
    for partition in (0, 1):
        if partition in stand:
            first_stage(db, partition, stand[partition])
    waits(db, 1, int(stand.get("waits", 0)))
    async with running_clocks(database_url) as (lane, clocks):
        task = timed_task(lane, second.lease(), program(second))
        lane.add(task)
        await until(lambda: not task.cursors[0].behind)
        await clocks.look_again()
        assert task.time is not None
        assert task.time.clock_ms == reached


async def test_who_has_stages_above_is_no_more_at_rest_than_they_are(
    data: Connection, db: psycopg.Connection[Any], second: Deployed
) -> None:
    """Else a later stage runs ahead of what it is still to get: at the start, from tasks that got nothing yet."""

    async def told() -> tuple[float | None, bool]:
        row = await data.fetchrow(query("read_clocks"), [], [second.function], [1])
        ((_, _, _, age_ms, done, _),) = json.loads(row["upstream"])
        return age_ms, done

    assert await told() == (None, True)  # nobody has seen anything, and nothing waits
    waits(db, 1, 1)
    assert await told() == (None, False)
    waits(db, 1, 0)
    first_stage(db, 0, 1000)
    assert (await told())[1] is False  # a watermark is on its way to it
    db.execute("update jeet_internal.task set clock = to_timestamp(1), watermark = to_timestamp(1),"
               " committed_at = clock_timestamp() - interval '1 day' where stage = 1")  # fmt: skip
    age_ms, done = await told()
    assert done
    assert age_ms is not None
    assert age_ms < LONG_MS  # the stage above has only just gone on


async def test_no_statement_is_sent_where_no_task_goes_by_event_time(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    async with running_clocks(database_url) as (lane, clocks):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram(plan=replace(plan(0), timed=False))))
        clocks.stir()
        publish(db, deployed.source, 1)
        await until(lambda: db.execute("select sum(next_offset) from jeet_internal.checkpoint").fetchone() == (1,))
        assert clocks._reads._db is None


def test_the_view_tells_who_holds_event_time_back(db: psycopg.Connection[Any], second: Deployed) -> None:
    def held_by() -> list[Any]:
        return [row[0] for row in db.execute("select held_by from jeet.watermarks order by stage, partition")]

    assert held_by() == [None, None, None]  # nobody has seen anything, and nothing waits
    waits(db, 0, 1)
    assert held_by() == ["source", None, "stage 0 partition 0"]
    waits(db, 0, 0)
    first_stage(db, 0, 1000)
    first_stage(db, 1, 700)
    db.execute("update jeet_internal.checkpoint c set watermark = t.clock, committed_at = clock_timestamp()"
               " from jeet_internal.task t where t.id = c.task_id and t.stage = 0")  # fmt: skip
    assert held_by() == ["source", "source", "stage 0 partition 1"]
    first_stage(db, 1, 1100, timers_due=True)
    assert held_by()[1] == "timers that are due"
    db.execute("update jeet_internal.task set committed_at = committed_at - interval '1 day' where stage = 0")
    db.execute("update jeet_internal.checkpoint set committed_at = committed_at - interval '1 day'")
    first_stage(db, 0, 1000)
    db.execute("update jeet_internal.task set committed_at = committed_at - interval '1 day' where stage = 0")
    assert held_by() == [None, "timers that are due", "stage 0 partition 1"]
    set_timers(db, replace(second, tasks=(TaskId(second.tasks[0]),)), "a", "b", at_ms=5000)
    assert db.execute("select next_timer is not null from jeet.watermarks where stage = 1").fetchone() == (True,)
