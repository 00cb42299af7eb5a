"""What a lane logs of turns that went wrong."""

from __future__ import annotations

from jeet.errors import RetryLater, SandboxError
from jeet.task.running import RunningTask
from jeet.task.turn import Turn
from jeet.telemetry import logger

log = logger(__name__)

_TELL_EACH = 30
"""of failures in a row of one task, how many go by between two log lines: a minute or so"""


def tell_failed(turn: Turn, error: Exception) -> None:
    """Its guest call failed, or its batch was undone."""
    fields = turn.task.lease.fields
    if turn.events is not None:
        fields |= {"timer": turn.events.timers[0].name} if turn.events.timers else {"offset": turn.events.start}
    if isinstance(error, SandboxError):
        log.info("guest call failed; looking for the event at fault", error=str(error), **fields)
    elif isinstance(error, RetryLater):
        log.warning("batch undone, to run again", error=str(error), **fields)
    else:
        log.error("guest call failed in a way nobody foresaw; the batch is undone", exc=error, **fields)


def tell_unreadable(task: RunningTask, error: Exception) -> None:
    """Its events cannot be read."""
    if task.failures % _TELL_EACH == 2:  # not at once: a segment that is being detached is gone soon
        log.error(
            "events cannot be read; their partition stands still, and is tried again",
            **task.lease.fields,
            offset=min(cursor.read for cursor in task.cursors),
            error=str(error),
        )
