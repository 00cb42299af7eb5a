"""Wakes tasks that have run dry: LISTEN to be quick, polling to be sure. One connection and one statement a worker.

Promise: an event committed after a task ran dry wakes the task. The mark on the partition's head makes the next append
notify; the head is compared in the statement that marks; a head that was locked just then is tried again within
milliseconds; and all heads waited for are looked at twice a second whatever happens.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from jeet.clock import Clock
from jeet.db.connect import DRIVER_ERRORS, connect
from jeet.ids import Offset, Partition, StreamId, TaskId
from jeet.stream.wait import CHANNEL, mark_waiting, places_of, read_heads
from jeet.task.pause import pause
from jeet.task.retry import backoff_s
from jeet.telemetry import logger

if TYPE_CHECKING:
    from asyncpg import Connection

log = logger(__name__)

SHORTEST_POLL_S = 0.001
LONGEST_LOCKED_S = 0.05
"""how long a head that somebody keeps locked is left alone at most"""
LONGEST_POLL_S = 0.5

Place = tuple[StreamId, Partition]
Found = Callable[[Offset | None], None]
"""told the new head, or None if there is something but the head is not known"""


@dataclass(eq=False)
class _Waiter:
    place: Place
    position: Offset
    found: Found


class Wake:
    """Runs beside the lanes; `dry` registers, and its `found` is called once, in the event loop."""

    def __init__(self, database_url: str, clock: Clock, random: Random) -> None:
        self._url = database_url
        self._clock = clock
        self._random = random
        self._waiters: dict[Place, dict[TaskId, _Waiter]] = defaultdict(dict)
        self._unmarked: dict[Place, float] = {}
        """heads to mark, and when"""
        self._delay_s: dict[Place, float] = {}
        """of heads that were locked when they were to be marked"""
        self._rung = asyncio.Event()

    def dry(self, task: TaskId, stream: StreamId, partition: Partition, position: Offset, found: Found) -> None:
        """`task` has read its input up to `position`; replaces what it said of that input before."""
        place = (stream, partition)
        self._waiters[place][task] = _Waiter(place, position, found)
        self._unmarked.setdefault(place, 0.0)
        self._rung.set()

    def forget(self, task: TaskId) -> None:
        """The task is not run here any more."""
        for waiting in self._waiters.values():
            waiting.pop(task, None)

    async def run(self) -> None:
        """Until cancelled. Goes on through outages: what was missed is seen by looking."""
        failures = 0
        while True:
            try:
                settings = {"statement_timeout": "3000", "synchronous_commit": "off"}
                db = await connect(self._url, "jeet-worker wake", settings, statement_s=3.0)
                try:
                    db.add_termination_listener(lambda _: self._rung.set())
                    await db.add_listener(CHANNEL, self._heard)
                    failures = 0
                    await self._serve(db)
                finally:
                    db.terminate()
            except DRIVER_ERRORS as error:
                failures += 1
                if failures == 1:
                    log.warning("cannot listen for events; trying again", error=str(error) or type(error).__name__)
                await asyncio.sleep(backoff_s(failures, self._random))

    async def _serve(self, db: Connection) -> None:
        # Marks of an earlier connection may have been spent on notifications that nobody heard.
        self._unmarked = dict.fromkeys(self._waiters, 0.0)
        look_at = self._clock.monotonic()
        while True:
            await pause(self._rung, max(0.0, min([look_at, *self._unmarked.values()]) - self._clock.monotonic()))
            self._rung.clear()
            if db.is_closed():
                raise ConnectionError("the listening connection was closed")
            now = self._clock.monotonic()
            due = [place for place, at in self._unmarked.items() if at <= now]
            if due:
                await self._mark(db, due)
            if now >= look_at:
                places = [place for place, waiting in self._waiters.items() if waiting]
                if places:
                    self._compare(await read_heads(db, places))
                look_at = self._clock.monotonic() + LONGEST_POLL_S

    async def _mark(self, db: Connection, due: Sequence[Place]) -> None:
        """Mark heads; those that are locked, as something is being appended there, again very soon."""
        for place in due:
            del self._unmarked[place]
        wanted = sorted(place for place in due if self._waiters.get(place))
        if not wanted:
            return
        heads = await mark_waiting(db, wanted)
        self._compare(heads)
        for place in heads:
            self._delay_s.pop(place, None)
        locked = [place for place in wanted if place not in heads]
        if locked:
            self._compare(await read_heads(db, locked))
        for place in locked:
            if self._waiters.get(place):
                delay_s = self._delay_s.get(place, SHORTEST_POLL_S)
                self._delay_s[place] = min(2 * delay_s, LONGEST_LOCKED_S)
                self._unmarked.setdefault(place, self._clock.monotonic() + delay_s)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        for place in places_of(str(payload)):
            for waiter in self._waiters.pop(place, {}).values():
                waiter.found(None)

    def _compare(self, heads: Mapping[Place, Offset]) -> None:
        for place, head in heads.items():
            waiting = self._waiters.get(place, {})
            for task in [task for task, waiter in waiting.items() if waiter.position < head]:
                waiting.pop(task).found(head)
