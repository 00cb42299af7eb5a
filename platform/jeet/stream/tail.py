"""Reads a stream from all its partitions for people and pipes, and goes on as it grows.

Promise: events of one partition come in offset order without a gap, or EventsLost is raised; across partitions they
come by time as far as it is known. Following polls, and leaves no mark on what it reads.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jeet.db.sql import query
from jeet.errors import NotFound, UsageError
from jeet.ids import Offset, Partition, StreamId
from jeet.stream.fetch import Want, fetch
from jeet.stream.wait import read_heads

if TYPE_CHECKING:
    from asyncpg import Connection

CHUNK_EVENTS = 1000
CHUNK_BYTES = 1024 * 1024
POLL_S = 0.1

Start = Literal["earliest", "latest"] | int


@dataclass(frozen=True)
class Event:
    """One event as it is in the log."""

    partition: Partition
    offset: Offset
    timestamp_ms: int
    key: str | None
    headers: str | None
    """JSON"""
    value: str
    """JSON"""


class Tail:
    """Events of a stream from `start` on: from that offset of each partition, or from the first that is kept."""

    def __init__(self, db: Connection, stream: str, partition: int | None = None) -> None:
        """`partition`: only of this one."""
        self._db = db
        self._name = stream
        self._only = partition
        self._id = StreamId(0)
        self._next: dict[Partition, Offset] = {}
        self._heads: dict[Partition, Offset] = {}
        self._read: dict[Partition, deque[Event]] = {}

    async def events(self, start: Start, *, follow: bool) -> AsyncIterator[Event]:
        """All that is there now, and with `follow` all that comes, until the caller stops."""
        await self._begin(start)
        while True:
            await self._refill()
            waiting = [events for events in self._read.values() if events]
            if waiting:
                yield min(waiting, key=lambda events: (events[0].timestamp_ms, events[0].partition)).popleft()
            elif not follow:
                return
            else:
                await asyncio.sleep(POLL_S)
                places = [(self._id, partition) for partition in self._next]
                self._heads = {place[1]: head for place, head in (await read_heads(self._db, places)).items()}

    async def _begin(self, start: Start) -> None:
        rows = await self._db.fetch(query("stream_places"), self._name)
        if not rows:
            raise NotFound(f"there is no stream {json.dumps(self._name)}; see: jeet streams")
        self._id = rows[0]["id"]
        if self._only is not None and self._only not in {row["partition"] for row in rows}:
            raise UsageError(f"{self._name} has no partition {self._only}: the last one is {rows[-1]['partition']}")
        for row in rows:
            partition, first, head = row["partition"], row["first_offset"], row["head"]
            if self._only not in (None, partition):
                continue
            self._heads[partition] = head
            self._read[partition] = deque()
            self._next[partition] = head if start == "latest" else first if start == "earliest" else max(first, start)

    async def _refill(self) -> None:
        """Read on in every partition of which nothing is at hand, so that the earliest of all can be told."""
        wanted = [
            Want(self._id, partition, offset, CHUNK_EVENTS, CHUNK_BYTES)
            for partition, offset in self._next.items()
            if not self._read[partition] and offset < self._heads[partition]
        ]
        if not wanted:
            return
        for want, fetched in zip(wanted, await fetch(self._db, wanted), strict=True):
            values = fetched.values.decode().split("\n")
            keys = fetched.keys.decode().split("\n") if fetched.keys else ["null"] * fetched.count
            headers = fetched.headers.decode().split("\n") if fetched.headers else ["null"] * fetched.count
            times = fetched.timestamps.decode().split("\n")
            for index in range(fetched.count):
                self._read[want.partition].append(
                    Event(
                        want.partition,
                        Offset(want.start + index),
                        int(times[index]),
                        json.loads(keys[index]),
                        None if headers[index] == "null" else headers[index],
                        values[index],
                    )
                )
            self._next[want.partition] = Offset(want.start + fetched.count)
