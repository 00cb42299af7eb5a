"""Tells tasks that go by event time what others know: how far those have come who write their inputs, which inputs are
idle, what the database's clock says, and when timers are due. One statement a worker, none where no task asks for it.

Promise: a watermark is read in the same snapshot as the head of the stream that it is about, and counts once everything
before that head is committed. It looks at most every 100 ms, as seldom as once a second while nothing changes.
On failure of a look the clocks stand still: they may be too low, never too high.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from jeet.clock import Clock
from jeet.db.sql import query
from jeet.errors import RetryLater
from jeet.ids import FunctionId, Offset, StreamId, TaskId
from jeet.task.data import DataConnection
from jeet.task.lane import Lane
from jeet.task.lane_settings import LaneSettings
from jeet.task.pause import pause
from jeet.task.program import Maker
from jeet.task.retry import backoff_s
from jeet.task.running import RunningTask
from jeet.task.turn import Cursor
from jeet.task.watermark import END_MS, Standing

SHORTEST_S = 0.1
LONGEST_S = 1.0
_SOON_S = 0.001


class Clocks:
    """Runs beside the lanes until cancelled."""

    def __init__(self, settings: LaneSettings, lanes: Sequence[Lane], clock: Clock, random: Random) -> None:
        self._lanes = lanes
        self._clock = clock
        self._random = random
        self._stir = asyncio.Event()
        self._seen: object = None
        self._reads = DataConnection(
            settings.database_url, "jeet-worker clocks", settings.session(), settings.commit_timeout_s + 5
        )

    def stir(self) -> None:
        """Something may have changed: look soon."""
        self._stir.set()

    async def run(self) -> None:
        pause_s = SHORTEST_S
        looked_at = float("-inf")
        failures = 0
        try:
            while True:
                tasks = self._tasks()
                if not tasks:
                    await pause(self._stir, None)
                    self._stir.clear()
                    continue
                now = self._clock.monotonic()
                if now >= looked_at + SHORTEST_S:
                    self._stir.clear()
                    looked_at = now
                    try:
                        changed = await self._look(tasks)
                        pause_s = SHORTEST_S if changed else min(2 * pause_s, LONGEST_S)
                        failures = 0
                    except RetryLater:
                        failures += 1
                        pause_s = max(SHORTEST_S, backoff_s(failures, self._random))
                next_at = looked_at + pause_s
                await self._wait(tasks, looked_at, next_at)
        finally:
            self._reads.terminate()

    def _tasks(self) -> list[RunningTask]:
        return [task for lane in self._lanes for task in lane.tasks.values() if task.time is not None]

    async def _wait(self, tasks: Sequence[RunningTask], looked_at: float, next_at: float) -> None:
        """Until the next look, or until a timer is due by the database's clock or a clock may be committed."""
        now = self._clock.monotonic()
        at = next_at
        for task in tasks:
            time = task.time
            if time is None or task.dropped:
                continue
            if time.has_due(now) or time.is_to_commit(now):
                task.stir()
            elif time.clock_ms != time.committed_ms:
                at = min(at, time.may_commit_at)
            if time.next_wall_ms is not None and time.ahead_ms is not None:
                due_at = (time.next_wall_ms - time.ahead_ms) / 1000
                if due_at > now:
                    at = min(at, due_at)
        await pause(self._stir, max(_SOON_S, at - now))
        if self._stir.is_set():
            # What stirs comes in bursts: the next look sees all of it.
            await asyncio.sleep(max(0.0, looked_at + SHORTEST_S - self._clock.monotonic()))

    async def _look(self, tasks: Sequence[RunningTask]) -> bool:
        """Whether anything is different from the last time."""
        makers = sorted(
            {(task.lease.function_id, maker.stage) for task in tasks for maker in task.program.makers.values()}
        )
        async with self._reads.use() as db:
            row = await db.fetchrow(
                query("read_clocks"),
                [task.lease.task_id for task in tasks],
                [function for function, _ in makers],
                [stage for _, stage in makers],
            )
        now = self._clock.monotonic()
        inputs = json.loads(row["inputs"] or "[]")
        timers = json.loads(row["timers"] or "[]")
        upstream = json.loads(row["upstream"] or "[]")
        by_task: dict[TaskId, dict[StreamId, Any]] = defaultdict(dict)
        for task_id, stream, *entry in inputs:
            by_task[TaskId(task_id)][StreamId(stream)] = entry
        by_stage: dict[tuple[FunctionId, int], list[Any]] = defaultdict(list)
        for function, stage, *entry in upstream:
            by_stage[FunctionId(function), stage].append(entry)
        due = {task_id: (event_ms, wall_ms) for task_id, event_ms, wall_ms in timers}
        for task in tasks:
            if task.time is None or task.dropped or task.gone is not None:
                continue
            task.time.ahead_ms = row["now_ms"] - now * 1000
            # Never later than known: what the task has committed since this snapshot is not in it.
            task.time.will_be_due(*due.get(task.lease.task_id, (None, None)))
            _tell(task, by_task[task.lease.task_id], by_stage)
            task.advance_time()
            if task.time.has_due(now) or task.time.is_to_commit(now):
                task.stir()
        seen = ([entry[:4] for entry in inputs], timers, [(*entry[:3], *entry[4:]) for entry in upstream])
        changed, self._seen = seen != self._seen, seen
        return changed


def _tell(task: RunningTask, inputs: Mapping[StreamId, Any], stages: Mapping[tuple[FunctionId, int], Any]) -> None:
    idle_ms = task.program.plan.idle_ms
    for cursor in task.cursors:
        if cursor.time is None or cursor.stream not in inputs:
            continue
        head, next_offset, age_ms = inputs[cursor.stream]
        if not cursor.time.internal:
            cursor.time.idle = _is_idle(cursor, head, next_offset, age_ms, idle_ms)
        elif (maker := task.program.makers.get(cursor.stream)) is not None:
            entries = stages.get((task.lease.function_id, maker.stage), ())
            cursor.time.heard(Offset(head), [standing(maker, idle_ms, *entry) for entry in entries])
            cursor.time.read_to(cursor.committed)


def _is_idle(cursor: Cursor, head: int, next_offset: int, age_ms: float | None, idle_ms: float) -> bool:
    """Whether the input is at its end and has been for so long."""
    at_end = head == next_offset == cursor.committed == cursor.read
    return at_end and age_ms is not None and age_ms >= idle_ms


def standing(
    maker: Maker, idle_ms: float, watermark_ms: float | None, age_ms: float | None, done: bool, next_ms: float | None
) -> Standing:
    """How far a task of an earlier stage has come, for those who read what it writes.

    What it writes may be older than its watermark by the stage's hold. While it rests it comes to its whole watermark,
    but not past what its timers are still to make.
    """
    if watermark_ms is None:
        return Standing(None, None, rests=done)
    rests = done and age_ms is not None and age_ms >= idle_ms
    if watermark_ms >= END_MS:
        return Standing(watermark_ms, watermark_ms, rests)
    highest_ms = watermark_ms if next_ms is None else min(watermark_ms, next_ms - maker.hold_ms - 1)
    return Standing(watermark_ms - maker.hold_ms, highest_ms, rests)
