"""Tells the database every few seconds what a worker's tasks did.

Promise: the data path never waits for it. What could not be told waits, as sums in memory, and is told with the next;
an answer that was lost may count a few seconds twice. A worker whose tasks are idle says how it is once a minute.
"""

from __future__ import annotations

import asyncio
import json
import platform
import resource
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jeet.clock import Clock
from jeet.db.sql import query
from jeet.errors import RetryLater
from jeet.ids import TaskId, WorkerId
from jeet.observe.figures import SUMS, Figures, Slowest, TaskFigures
from jeet.telemetry import logger

if TYPE_CHECKING:
    from asyncpg import Connection

log = logger(__name__)

FLUSH_S = 5.0
_IDLE_S = 60.0
"""how often a worker with nothing else to tell says how it is"""
_AT_ONCE = 16
"""tasks whose hot keys are looked for before others have their turn"""


@dataclass(frozen=True)
class Look:
    """A worker as it is now."""

    tasks: Collection[TaskId]
    guest_bytes: int
    instances: int
    lanes: int
    busy_s: float
    """time in which its lanes had something to do, in all"""


class Collector:
    """Runs until cancelled."""

    def __init__(
        self,
        figures: Figures,
        worker: WorkerId,
        look: Callable[[], Look],
        connection: Callable[[], AbstractAsyncContextManager[Connection]],
        clock: Clock,
    ) -> None:
        """`connection` is used by nobody else at the time; it raises RetryLater when it fails."""
        self._figures = figures
        self._worker = worker
        self._look = look
        self._connection = connection
        self._clock = clock
        self._told_at = clock.monotonic()
        self._self_at = float("-inf")
        self._busy = (self._told_at, 0.0)

    async def run(self) -> None:
        """Tell, wait, tell."""
        while True:
            await self.tell_if_possible()
            await asyncio.sleep(FLUSH_S)

    async def tell_if_possible(self, within_s: float | None = None) -> None:
        """Tell what there is to tell; no failure of that is anybody else's."""
        try:
            await asyncio.wait_for(self.tell(), within_s)
        except Exception as error:  # noqa: BLE001 - figures may be wrong, but must not stop a worker
            log.warning("figures could not be told", exc=None if isinstance(error, TimeoutError) else error)

    async def tell(self) -> bool:
        """Tell what there is to tell; False: it could not be told and waits."""
        now = self._clock.monotonic()
        look = self._look()
        active = [task for task in self._figures.tasks.values() if _did_something(task)]
        if not active and now - self._self_at < _IDLE_S:
            self._told_at = now
            self._forget()
            return True
        sums = [{name: getattr(task, name) for name in SUMS} for task in active]
        slowest = [task.slowest for task in active]
        rows = [self._row(task, sum_, slow, now) for task, sum_, slow in zip(active, sums, slowest, strict=True)]
        hot = await _hot_keys(active, now)
        try:
            async with self._connection() as db:
                offset_ms, error_ms = await self._clock_offset(db)
                about = self._about(look, now) | {"clock_offset_ms": offset_ms, "clock_error_ms": error_ms}
                await db.fetchval(
                    query("record_figures"), self._worker, json.dumps(rows), json.dumps(hot), json.dumps(about)
                )
        except RetryLater:
            return False
        for task, told, slow in zip(active, sums, slowest, strict=True):
            task.told = told
            if task.slowest is slow:
                task.slowest = None
        self._told_at = self._self_at = now
        self._busy = (now, look.busy_s)
        self._forget()
        return True

    def _forget(self) -> None:
        """Let go of tasks that are not here now and have nothing left to tell; they may have come back meanwhile."""
        here = self._look().tasks
        self._figures.forget(
            [
                each.task_id
                for each in self._figures.tasks.values()
                if each.task_id not in here and not _did_something(each)
            ]
        )

    def _row(self, task: TaskFigures, sums: dict[str, float], slowest: Slowest | None, now: float) -> dict[str, Any]:
        row: dict[str, Any] = {name: value - task.told.get(name, 0) for name, value in sums.items()}
        row |= {
            "task_id": task.task_id,
            "seconds": now - max(task.began, self._told_at),
            "memory_bytes": task.memory_bytes,
        }
        if slowest is not None:
            row |= {
                "slowest_s": slowest.cpu_s,
                "slowest_stream": slowest.stream,
                "slowest_offset": slowest.offset,
            }
        return row

    async def _clock_offset(self, db: Connection) -> tuple[float, float]:
        """By how many milliseconds this machine's clock is ahead of the database's, and how far off that may be."""
        began, began_s = self._clock.utcnow(), self._clock.monotonic()
        there = await db.fetchval(query("clock"))
        error_ms = (self._clock.monotonic() - began_s) * 500
        return (began - there).total_seconds() * 1000 + error_ms, error_ms

    def _about(self, look: Look, now: float) -> dict[str, Any]:
        since, busy_s = self._busy
        return {
            "memory_bytes": resident_bytes(),
            "guest_bytes": look.guest_bytes,
            "instances": look.instances,
            "lanes": look.lanes,
            "busy": min(1.0, (look.busy_s - busy_s) / (look.lanes * (now - since))) if now > since else 0.0,
            "python": platform.python_version(),
            "wasmtime": version("wasmtime"),
        }


async def _hot_keys(tasks: list[TaskFigures], now: float) -> list[dict[str, Any]]:
    found = []
    for number, task in enumerate(tasks):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        for stream, keys in task.hot.items():
            if (hottest := keys.hottest(now)) is not None:
                hot, distinct = hottest
                found.append(
                    {
                        "task_id": task.task_id,
                        "stream_id": stream,
                        "distinct_keys": distinct,
                        "keys": [asdict(key) for key in hot],
                    }
                )
    return found


def _did_something(task: TaskFigures) -> bool:
    told = task.told
    return task.batches != told.get("batches", 0) or task.errors != told.get("errors", 0)


def resident_bytes() -> int:
    """Memory of this process that is in use; where the system does not tell, the most that it ever was."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
