"""Brings the effects of turns into the database, together if possible, and tells the tasks what became of them.

Promise: when `write` returns, each task's batch is committed, or undone, or its task was given up; nothing is left
open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from random import Random

from jeet.clock import Clock
from jeet.errors import RetryLater
from jeet.task.commit import CommitInDoubt, DataRefused, LeaseLost, SegmentMissing, StateSwept, commit, output_streams
from jeet.task.data import DataConnection
from jeet.task.effects import Effects
from jeet.task.retry import backoff_s
from jeet.task.running import RunningTask
from jeet.task.tally import count_commit, count_failure
from jeet.task.turn import Halt, Turn
from jeet.telemetry import logger

log = logger(__name__)

_PERSISTENT = 5
"""failures in a row after which the log says so"""


class Writer:
    """The committing half of a lane."""

    def __init__(
        self,
        database_url: str,
        application: str,
        settings: Mapping[str, str],
        statement_s: float,
        *,
        on_lost: Callable[[RunningTask], None],
        on_halt: Callable[[RunningTask, Halt], None],
        clock: Clock,
        random: Random,
    ) -> None:
        self._connection = DataConnection(database_url, application, settings, statement_s)
        self._on_lost = on_lost
        self._on_halt = on_halt
        self._clock = clock
        self._random = random

    async def write(self, turns: Sequence[Turn]) -> None:
        """Commit the turns in one transaction; if the reason for a failure may lie in one of them, each in its own."""
        failures = 0
        while pending := [turn for turn in turns if turn.effects is not None and not turn.stale]:
            try:
                async with self._connection.use() as db:
                    await commit(db, _effects(pending))
            except StateSwept as error:
                for turn in pending:
                    if turn.task.lease.task_id in error.tasks:
                        self._swept(turn)
            except LeaseLost as error:
                for turn in pending:
                    if turn.task.lease.task_id in error.tasks:
                        self._on_lost(turn.task)
            except CommitInDoubt as error:
                log.warning("commit in doubt; its tasks are taken over anew", tasks=_tasks(pending), error=str(error))
                for turn in pending:
                    self._on_lost(turn.task)
            except SegmentMissing:
                await self._make_segments(pending)
                failures += 1
                await asyncio.sleep(backoff_s(failures, self._random))
            except (DataRefused, RetryLater) as error:
                if len(pending) > 1:
                    for turn in pending:
                        await self.write([turn])
                    return
                if isinstance(error, DataRefused):
                    self._refused(pending[0], error)
                    continue
                failures += 1
                if failures == _PERSISTENT:
                    log.warning("a batch cannot be committed yet; trying on", tasks=_tasks(pending), error=str(error))
                await asyncio.sleep(backoff_s(failures, self._random))
            else:
                for turn in pending:
                    count_commit(turn)
                    turn.task.committed(turn)
                return

    def _swept(self, turn: Turn) -> None:
        count_failure(turn)
        wait_s = backoff_s(turn.task.failures, self._random)
        self._halt_if(turn, turn.task.swept(turn, self._clock.monotonic(), wait_s))

    def _refused(self, turn: Turn, error: DataRefused) -> None:
        count_failure(turn)
        self._halt_if(turn, turn.task.refused(turn, str(error), self._clock.monotonic()))

    def _halt_if(self, turn: Turn, halt: Halt | None) -> None:
        if halt is not None:
            self._on_halt(turn.task, halt)

    async def _make_segments(self, turns: Sequence[Turn]) -> None:
        with contextlib.suppress(RetryLater):  # the commit is tried again, and fails again if they are still missing
            async with self._connection.use() as db:
                for stream in output_streams(_effects(turns)):
                    await db.execute("select jeet_internal.ensure_segments($1)", stream)

    def terminate(self) -> None:
        """Cut the connection; a `write` under way ends."""
        self._connection.terminate()


def _effects(turns: Sequence[Turn]) -> list[Effects]:
    return [turn.effects for turn in turns if turn.effects is not None]


def _tasks(turns: Sequence[Turn]) -> list[int]:
    return sorted(turn.task.lease.task_id for turn in turns)
