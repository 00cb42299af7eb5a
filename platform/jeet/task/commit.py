"""Commits batches: checkpoint, state, outputs, dead letters and logs of one or several tasks, in one fenced statement.

Promise: `commit` either wrote everything it was given or nothing, and says which; when it cannot know, it says that
(CommitInDoubt) and the caller must read the checkpoints, `for update`, before anything else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jeet.db.connect import DRIVER_ERRORS
from jeet.db.sqlstates import Verdict, verdict
from jeet.errors import JeetError, RetryLater, StopTask
from jeet.ids import StreamId, TaskId
from jeet.task.data import InDoubt
from jeet.task.effects import Effects

if TYPE_CHECKING:
    from asyncpg import Connection

_COMMIT = "select jeet_internal.commit_tasks({})".format(", ".join(f"${number}" for number in range(1, 42)))


class LeaseLost(StopTask):
    """Some of the tasks have a new owner or were changed; nothing was written for any of the commit's tasks."""

    def __init__(self, tasks: frozenset[TaskId]) -> None:
        self.tasks = tasks
        listed = ", ".join(map(str, sorted(tasks)))
        super().__init__(
            f"task {listed} was taken over or changed; its batch was rolled back and the task's owner reads it again"
        )


class StateSwept(LeaseLost):
    """State that a batch read and refreshed expired and was swept meanwhile; nothing was written for any task.

    The lease is as it was: undone, the batch runs again and finds that state gone. A guest that refreshes what never
    was there fails like this each time.
    """

    def __init__(self, tasks: frozenset[TaskId]) -> None:
        super().__init__(tasks)
        listed = ", ".join(map(str, sorted(tasks)))
        self.args = (f"task {listed} refreshed state that is not there; its batch was rolled back and runs again",)


class CommitInDoubt(InDoubt):
    """Whether the commit took effect is unknown: close the connection, and take the tasks over anew."""


class DataRefused(JeetError):
    """The database cannot store what a guest made; nothing was written. Run singly, the event at fault is found."""


class SegmentMissing(JeetError):
    """The log lacks a segment for an output; nothing was written. Make segments and call again."""


async def commit(db: Connection, work: Sequence[Effects]) -> None:
    """Write it all, or nothing and raise LeaseLost (or StateSwept), DataRefused, SegmentMissing, RetryLater.

    Or raise CommitInDoubt.
    """
    try:
        await db.fetchval(_COMMIT, *_arguments(sorted(work, key=lambda effects: effects.lease.task_id)))
    except DRIVER_ERRORS as error:
        raise _meaning(error) from error


def _meaning(error: Exception) -> JeetError:
    match verdict(error):
        case Verdict.LEASE | Verdict.MOVED:
            kind = StateSwept if getattr(error, "table_name", None) == "state" else LeaseLost
            return kind(frozenset(TaskId(int(task)) for task in str(getattr(error, "detail", "")).split(",")))
        case Verdict.DATA:
            return DataRefused(f"{getattr(error, 'sqlstate', '')} {error}".strip())
        case Verdict.SEGMENT:
            return SegmentMissing(str(error))
        case Verdict.RETRY:
            return RetryLater(f"the commit was rolled back and will be tried again: {error}")
        case Verdict.DOUBT:
            return CommitInDoubt(f"the connection failed during a commit: {error or type(error).__name__}")
        case Verdict.BUG:
            return CommitInDoubt(
                f"the commit failed in a way that is not expected ({getattr(error, 'sqlstate', '')}): {error}"
            )


def output_streams(work: Sequence[Effects]) -> list[StreamId]:
    return sorted({output.stream for effects in work for output in effects.outputs})


def _arguments(work: Sequence[Effects]) -> tuple[Any, ...]:
    moved = [effects for effects in work if effects.stream is not None]
    puts = [(effects.lease.task_id, put) for effects in work for put in effects.puts]
    touches = [(effects.lease.task_id, touch) for effects in work for touch in effects.touches]
    deletes = [(effects.lease.task_id, delete) for effects in work for delete in effects.deletes]
    outputs = [output for effects in work for output in effects.outputs]
    timed = any(effects.timed for effects in work)
    timers = [(effects.lease.task_id, timer) for effects in work for timer in effects.timers]
    fired = [(effects.lease.task_id, timer) for effects in work for timer in effects.fired]
    return (
        [effects.lease.task_id for effects in work],
        [effects.lease.epoch for effects in work],
        [effects.lease.task_id for effects in moved],
        [effects.stream for effects in moved],
        [effects.start for effects in moved],
        [effects.end for effects in moved],
        [task for task, _ in puts],
        [put.collection for _, put in puts],
        [put.expires_at_ms for _, put in puts],
        [put.keys for _, put in puts],
        [put.values for _, put in puts],
        sum(put.rows for _, put in puts),
        [task for task, _ in touches],
        [touch.collection for _, touch in touches],
        [touch.expires_at_ms for _, touch in touches],
        [touch.keys for _, touch in touches],
        [task for task, _ in deletes],
        [delete.collection for _, delete in deletes],
        [delete.keys for _, delete in deletes],
        [output.stream for output in outputs],
        [output.keys for output in outputs],
        [output.values for output in outputs],
        _dead_letters(work),
        _logs(work),
        [letter for effects in work for letter in effects.redriven],
        [letter for effects in work for letter in effects.inbox],
        any(effects.clear_suspects for effects in work),
        [_whole(effects.clock_ms) for effects in work] if timed else None,
        [effects.late for effects in work] if timed else None,
        [_whole(effects.watermark_ms) for effects in moved] if timed else None,
        [task for task, _ in timers],
        [timer.operator for _, timer in timers],
        [timer.key for _, timer in timers],
        [timer.name for _, timer in timers],
        [timer.at_ms for _, timer in timers],
        [timer.wall for _, timer in timers],
        [task for task, _ in fired],
        [timer.operator for _, timer in fired],
        [timer.key for _, timer in fired],
        [timer.name for _, timer in fired],
        [output.times for output in outputs] if any(output.times for output in outputs) else None,
    )


def _whole(time_ms: float | None) -> float | None:
    """Never later than it is: a watermark may be too low, but not too high."""
    return None if time_ms is None else math.floor(time_ms)


def _dead_letters(work: Sequence[Effects]) -> str | None:
    rows = [
        {
            "task": effects.lease.task_id,
            "stream": effects.origin,
            "offset": letter.offset,
            "key": letter.key,
            "event": letter.event,
            "error": letter.error,
            "stack": letter.stack,
            "state_key": letter.state_key,
            "attempts": letter.attempts,
            "version": effects.lease.version,
        }
        for effects in work
        for letter in effects.dead_letters
    ]
    return json.dumps(rows) if rows else None


def _logs(work: Sequence[Effects]) -> str | None:
    rows = [
        {
            "task": effects.lease.task_id,
            "version": effects.lease.version,
            "offset": line.offset,
            "level": line.level,
            "message": line.message,
        }
        for effects in work
        for line in effects.logs
    ]
    return json.dumps(rows) if rows else None
