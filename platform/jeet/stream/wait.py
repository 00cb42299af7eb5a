"""Waits at the end of partitions: a mark on the head makes the next append notify; heads tell what is there now.

Promise: who listens on CHANNEL, marks a head, and then finds its position equal to the head that was returned, is
notified of the next append to that partition. A head that is left out of the answer was locked by an append: look
again soon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jeet.db.sql import query
from jeet.ids import Offset, Partition, StreamId

if TYPE_CHECKING:
    from asyncpg import Connection

CHANNEL = "jeet_data"
"""the payload of its notifications: `stream:partition` joined by commas"""

Place = tuple[StreamId, Partition]


def places_of(payload: str) -> Iterator[Place]:
    """The partitions that a notification names; what is not of its form names none."""
    for part in payload.split(","):
        stream, colon, partition = part.partition(":")
        if colon and stream.isdecimal() and partition.isdecimal():
            yield StreamId(int(stream)), Partition(int(partition))


async def mark_waiting(db: Connection, places: Sequence[Place]) -> Mapping[Place, Offset]:
    """Mark these heads and say where they stand; those that are locked just now are left out. One statement."""
    return await _heads(db, "mark_waiting", places)


async def read_heads(db: Connection, places: Sequence[Place]) -> Mapping[Place, Offset]:
    """Say where these heads stand. One statement."""
    return await _heads(db, "read_heads", places)


async def _heads(db: Connection, statement: str, places: Sequence[Place]) -> dict[Place, Offset]:
    rows = await db.fetch(query(statement), [stream for stream, _ in places], [partition for _, partition in places])
    return {(row["stream_id"], row["partition"]): row["head"] for row in rows}
