"""Reads the timers that are due, for the turns of a cycle; to the guest they come like events.

Promise: in order of (time, operator, key, name), and only when nothing of the task is uncommitted; those that fire are
gone with the commit of what they did, unless they were set again. One that may end the process is on record before it
fires, and is set aside when it has done so too often.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jeet.clock import Clock
from jeet.db.sql import query
from jeet.sandbox.call import BatchInput, Fault
from jeet.task.effects import Events, Timer
from jeet.task.running import TIMERS, RunningTask
from jeet.task.turn import Turn

if TYPE_CHECKING:
    from asyncpg import Connection


async def read_due(db: Connection, turns: Sequence[Turn], *, max_attempts: int, clock: Clock) -> list[RunningTask]:
    """Give each turn the timers that are due, the effects of setting one aside, or those of the clock if it only moved.

    Returns the tasks that turn out to be lost.
    """
    found: dict[int, list[Any]] = defaultdict(list)
    clocks = [turn.task.time.clock_ms if turn.task.time is not None else None for turn in turns]
    tasks = [turn.task.lease.task_id for turn in turns]
    for row in await db.fetch(query("read_timers"), tasks, clocks, [turn.limit for turn in turns]):
        found[row["n"]].append(row)
    read_at = clock.monotonic()
    lost = []
    for number, turn in enumerate(turns, 1):
        if not await _give(db, turn, found[number], read_at, max_attempts):
            lost.append(turn.task)
    return lost


async def _give(db: Connection, turn: Turn, rows: list[Any], read_at: float, max_attempts: int) -> bool:
    """False: the task is lost."""
    task, lease = turn.task, turn.task.lease
    assert task.time is not None
    next_due = (rows[0]["next_event_ms"], rows[0]["next_wall_ms"])
    task.time.ahead_ms = rows[0]["now_ms"] - read_at * 1000
    due = [row for row in rows if row["name"] is not None]
    if not due:
        task.time.next_event_ms, task.time.next_wall_ms = next_due
        task.timers_size, task.timers_recorded = max(TIMERS, task.timers_size), False
        task.move_clock(turn)
        return True
    deaths = due[0]["attempts"]
    well = next((index for index, row in enumerate(due) if row["attempts"]), len(due))
    taken = due[: 1 if deaths else well]
    if len(taken) == len(due) < turn.limit:
        turn.next_due = next_due
    turn.alone = bool(deaths) or turn.limit == 1
    timers = [Timer(row["operator"], row["key"], row["name"], row["at_ms"], row["wall"]) for row in taken]
    turn.events = Events(None, _batch(turn, timers, rows[0]["now_ms"], read_at), timers=timers)
    # The first death may have been that of a whole batch: one alone must have followed.
    if deaths >= max(max_attempts, 2):
        times = f"this timer ended the worker process {deaths} times; it did not fire again"
        task.set_aside(turn, Fault(0, times, "", None), deaths)
        return True
    if task.timers_recorded or deaths or turn.alone:
        held = await db.fetchval(
            "select jeet_internal.begin_timers($1, $2, $3, $4, $5)",
            lease.task_id,
            lease.epoch,
            [timer.operator for timer in timers],
            [timer.key for timer in timers],
            [timer.name for timer in timers],
        )
        if not held:
            turn.events = None
            return False
    return True


def _batch(turn: Turn, timers: Sequence[Timer], now_ms: float, read_at: float) -> BatchInput:
    task = turn.task
    clock_ms = task.time.clock_ms if task.time is not None else None
    values = [json.dumps({"operator": timer.operator, "name": timer.name, "wall": timer.wall}) for timer in timers]
    return BatchInput(
        first_offset=0,
        count=len(timers),
        values="\n".join(values).encode(),
        keys="\n".join(json.dumps(timer.key) for timer in timers).encode(),
        timestamps="\n".join(str(int(timer.at_ms)) for timer in timers).encode(),
        now_ms=now_ms,
        fetched_at=read_at,
        attempts=task.timer_trial.attempt if turn.alone else 1,
        timers=True,
        watermark_ms=clock_ms,
    )
