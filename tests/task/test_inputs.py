"""Several inputs of one task: in which order they are read, and that care for one leaves the others alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from jeet.control.lease import Lease
from jeet.ids import Offset, Partition, StreamId, TaskId
from jeet.plan import StageInput, StageOutput, StagePlan
from jeet.sandbox.call import BatchInput, BatchResult, GuestTrap
from jeet.task.begin import cursors_of
from jeet.task.retry import CRASH_PIECE
from task.rows import Deployed, deploy_by_hand
from task.test_lane import Guest, echo, running_lane, until
from task.timed import TimedProgram, timed_task

LEFT, RIGHT, TABLE = StreamId(1), StreamId(2), StreamId(3)


def lease(**more: Any) -> Lease:
    values: dict[str, Any] = {
        "inputs": ((LEFT, Offset(5)), (RIGHT, Offset(7)), (TABLE, Offset(0))),
        "outputs": (None,),
        "watermarks_ms": (None, None, None),
        **more,
    }
    return Lease(TaskId(1), 0, 1, "f", 0, Partition(0), 1, 0, 0.0, "dead-letter", **values)  # type: ignore[arg-type]


def plan(**more: Any) -> StagePlan:
    inputs = (StageInput("left"), StageInput("right"), StageInput("table", table=True))
    return StagePlan(inputs=inputs, outputs=(StageOutput(None),), **more)


def reading_order(task: Any, turns: int) -> list[int]:
    """Places of the inputs that the next turns read, one event each."""
    places = []
    for _ in range(turns):
        cursor = task.turn(1, 0.0).cursor
        cursor.read = Offset(cursor.read + 1)
        places.append(cursor.place)
    return places


class _NoLane:
    state = None


def a_task(given: Lease, given_plan: StagePlan, heads: tuple[int, int, int]) -> Any:
    task = timed_task(_NoLane(), given, TimedProgram(plan=given_plan))  # type: ignore[arg-type]
    for cursor, head in zip(task.cursors, heads, strict=True):
        cursor.head = Offset(head)
    return task


def test_tables_are_read_to_their_end_first_and_streams_in_turn() -> None:
    task = a_task(lease(), plan(), (10, 10, 2))
    assert reading_order(task, 6) == [2, 2, 0, 1, 0, 1]
    task.cursors[2].head = Offset(3)
    assert reading_order(task, 2) == [2, 0]


def test_of_streams_the_one_that_is_furthest_behind_in_event_time_is_read() -> None:
    task = a_task(lease(watermarks_ms=(100.0, 50.0, None)), plan(timed=True), (10, 10, 0))
    assert reading_order(task, 2) == [1, 1]
    task.cursors[1].time.saw(200)
    assert reading_order(task, 1) == [0]
    assert task.cursors[2].time is None  # a table holds nothing


def test_a_drained_function_reads_no_source_any_more() -> None:
    given = plan(timed=True)
    given = replace(given, inputs=(given.inputs[0], replace(given.inputs[1], internal=True), given.inputs[2]))
    task = a_task(lease(draining=True), given, (10, 10, 2))
    assert [cursor.place for cursor in task.cursors if cursor.behind] == [1]
    assert reading_order(task, 3) == [1, 1, 1]
    assert not task.may_run(0.0)


def test_a_source_is_read_no_further_than_where_it_stops_whatever_is_known_of_its_end() -> None:
    (_, left), (_, right), _ = lease().inputs
    task = a_task(replace(lease(), stops=(Offset(left + 3), right, None)), plan(), (10, 10, 0))
    turn = task.turn(100, 0.0)
    assert (turn.cursor, turn.limit) == (task.cursors[0], 3)
    task.cursors[0].head = None
    assert task.turn(100, 0.0).limit == 3
    task.cursors[0].read = Offset(left + 3)
    assert not task.may_run(0.0)
    assert task.work.events == 0


@pytest.mark.parametrize(
    ("crashes", "recorded", "expected"),
    [
        (0, {}, [None, None, None]),
        (1, {}, [None, None, None]),
        (2, {}, [CRASH_PIECE] * 3),  # nothing got through twice, and it may be any of them
        (1, {(RIGHT, Offset(8)): 1}, [None, CRASH_PIECE, None]),
        (2, {(RIGHT, Offset(8)): 1}, [None, CRASH_PIECE, None]),  # the one at fault is known to be there
    ],
)
def test_after_crashes_only_inputs_that_may_be_at_fault_are_read_with_care(
    crashes: int, recorded: dict[tuple[StreamId, Offset], int], expected: list[int | None]
) -> None:
    cursors = cursors_of(replace(lease(), crashes=crashes), plan(), recorded, 100)
    assert [cursor.careful and cursor.careful.piece for cursor in cursors] == expected


async def test_an_event_at_fault_is_found_in_whichever_input_it_is(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    one = deploy_by_hand(db, "one", partitions=1)
    other = deploy_by_hand(db, "other", partitions=1)
    db.execute(
        "update jeet_internal.stage set inputs = %s where function_id = %s", ([one.source, other.source], one.function)
    )
    db.execute(
        "insert into jeet_internal.checkpoint (task_id, stream_id) values (%s, %s)", (one.tasks[0], other.source)
    )
    for deployed in (one, other):
        values = "\n".join(json.dumps({"of": deployed.source, "n": n}) for n in range(60))
        db.execute("select jeet_internal.append(%s, %s, %s)", ([deployed.source], ["\n".join(['"k"'] * 60)], [values]))

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        events = [json.loads(value) for value in batch.values.split(b"\n")]
        assert {event["of"] for event in events} == {(one, other)[batch.input].source}
        if any(event == {"of": other.source, "n": 41} for event in events):
            raise GuestTrap("it trapped", kind="abort", suspects=range(batch.count))
        return echo(guest, batch)

    given = StagePlan(inputs=(StageInput("one_in"), StageInput("other_in")), outputs=(StageOutput("one_out"),))
    held = replace(one.lease(), inputs=((one.source, Offset(0)), (other.source, Offset(0))))

    def places() -> list[int]:
        rows = db.execute("select next_offset from jeet_internal.checkpoint where task_id = %s", (one.tasks[0],))
        return [row[0] for row in rows.fetchall()]

    async with running_lane(database_url) as (lane, _):
        lane.add(timed_task(lane, held, TimedProgram(answer, plan=given)))
        await until(lambda: places() == [60, 60])
    assert _of(db, one, one.source) == list(range(60))
    assert _of(db, one, other.source) == [n for n in range(60) if n != 41]
    assert db.execute('select stream, "offset", error from jeet.dead_letters').fetchall() == [
        ("other_in", 41, "it trapped")
    ]


def _of(db: psycopg.Connection[Any], deployed: Deployed, source: int) -> list[int]:
    rows = db.execute(
        "select (value ->> 'n')::int from jeet_internal.event where stream_id = %s and value ->> 'of' = %s"
        ' order by "offset"',
        (deployed.sink, str(source)),
    )
    return [row[0] for row in rows.fetchall()]
