"""A timed task made by hand, in a lane with clocks, with a guest whose answers the test decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg

from jeet.clock import SYSTEM_CLOCK
from jeet.control.lease import Lease
from jeet.ids import StreamId
from jeet.plan import Cut, StageInput, StageOutput, StagePlan
from jeet.sandbox.call import BatchInput, BatchResult, OutputGroup, TimerSet
from jeet.task.begin import cursors_of, time_of
from jeet.task.clocks import Clocks
from jeet.task.lane import Lane
from jeet.task.program import Maker
from jeet.task.running import RunningTask
from jeet.task.state import TaskState
from task.rows import Deployed
from task.test_lane import Guest, Program, running_lane, until

PLAN = StagePlan(inputs=(StageInput("totals_in"),), outputs=(StageOutput("totals_out"),), timed=True)
PASSES_ON = Cut(node=1, output=0, timed=True)


def fires(guest: Guest, batch: BatchInput, **more: Any) -> BatchResult:
    """Every timer puts its name out; events only move event time, which is what `at` of their value says."""
    values = [json.loads(line) for line in batch.values.split(b"\n")]
    if batch.timers:
        names = "\n".join(json.dumps(value["name"]) for value in values)
        outputs = [OutputGroup(0, batch.count, batch.keys.decode(), names, None)]
        return BatchResult(batch.count, outputs, (), (), (), guest.memory_bytes, guest.sequence, **more)
    times = [value["at"] for value in values if "at" in value]
    if batch.highest_ms is not None:
        times.append(batch.highest_ms)
    return BatchResult(
        batch.count, (), (), (), (), guest.memory_bytes, guest.sequence, highest_ms=max(times, default=None), **more
    )


@dataclass
class TimedProgram(Program):
    answer: Callable[[Guest, BatchInput], BatchResult] = fires
    plan: StagePlan = PLAN
    makers: Mapping[StreamId, Maker] = field(default_factory=dict)


def timed_task(lane: Lane, lease: Lease, program: TimedProgram) -> RunningTask:
    return RunningTask(
        lease=lease,
        program=program,  # type: ignore[arg-type]
        state=TaskState(lane.state, lease.task_id, lease.function_id, 0.0, {}),
        cursors=cursors_of(lease, program.plan, {}, 100),
        most_events=100,
        size=100,
        time=time_of(lease, program.plan),
        timers_recorded=lease.crashes > 0,
    )


class CountedClocks(Clocks):
    """Counts its looks, and tells of each."""

    looks = 0
    on_look: Callable[[], None] = staticmethod(lambda: None)

    async def _look(self, tasks: Sequence[RunningTask]) -> bool:
        changed = await super()._look(tasks)
        self.looks += 1
        self.on_look()
        return changed

    async def look_again(self, times: int = 2) -> None:
        """Until it has looked so often from now on."""
        for _ in range(times):
            before = self.looks
            self.stir()
            await until(lambda before=before: self.looks > before)  # type: ignore[misc]


@asynccontextmanager
async def running_clocks(database_url: str) -> AsyncIterator[tuple[Lane, CountedClocks]]:
    async with running_lane(database_url) as (lane, _):
        clocks = CountedClocks(lane._settings, [lane], SYSTEM_CLOCK, Random(1))
        looking = asyncio.create_task(clocks.run())
        try:
            yield lane, clocks
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


def set_timers(
    db: psycopg.Connection[Any], deployed: Deployed, *names: str, at_ms: int = 100, wall: bool = False
) -> None:
    for name in names:
        db.execute(
            "insert into jeet_internal.timer (task_id, operator, key, name, at, wall)"
            " values (%s, 'window', 'k', %s, to_timestamp(%s / 1000.0), %s)",
            (deployed.tasks[0], name, at_ms, wall),
        )


def timers(db: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in db.execute("select name from jeet_internal.timer order by at, name").fetchall()]


def publish(db: psycopg.Connection[Any], stream: int, *at_ms: int, partitions: int = 1) -> None:
    """Events with these event times."""
    values = "\n".join(json.dumps({"at": at}) for at in at_ms)
    keys = "\n".join(['"k"'] * len(at_ms))
    db.execute("select jeet_internal.append(%s, %s, %s)", ([stream], [keys], [values]))


def texts(db: psycopg.Connection[Any], stream: int) -> list[str]:
    rows = db.execute('select value::text from jeet_internal.event where stream_id = %s order by "offset"', (stream,))
    return [json.loads(row[0]) for row in rows.fetchall()]


def clock(db: psycopg.Connection[Any], task: int) -> tuple[float | None, float | None]:
    """What is committed of a task's clock, and its watermark, in ms."""
    row = db.execute(
        "select (extract(epoch from clock) * 1000)::float8, (extract(epoch from watermark) * 1000)::float8"
        " from jeet_internal.task where id = %s",
        (task,),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def sets(*timers: TimerSet) -> dict[str, Any]:
    return {"timers": list(timers)}
