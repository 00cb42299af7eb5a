"""Reads [start, end) of partitions as columns of newline-joined JSON: no Python for each event.

Promise: events come in offset order without a gap, as of one snapshot in which `head` was read too. What retention has
taken away is never skipped silently: EventsLost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jeet.db.sql import query
from jeet.errors import StopTask
from jeet.ids import Offset, Partition, StreamId

if TYPE_CHECKING:
    from asyncpg import Connection


@dataclass(frozen=True)
class Want:
    """Events of one partition from `start` on, at most so many and, beyond the first, of so many bytes."""

    stream_id: StreamId
    partition: Partition
    start: Offset
    max_events: int
    max_bytes: int


@dataclass(frozen=True)
class Fetched:
    """What was there: [start, start + count), columns as sandbox.call.BatchInput takes them."""

    stream_id: StreamId
    partition: Partition
    start: Offset
    count: int
    values: bytes
    """JSON texts joined by line breaks"""
    keys: bytes
    """JSON strings or nulls; empty: all null"""
    timestamps: bytes
    """milliseconds since the epoch: the publisher's time of the event, else when it was appended"""
    headers: bytes
    """JSON objects or nulls; empty: all null"""
    head: int
    """the offset that the partition's next event will get"""
    now_ms: float
    """the database clock, in milliseconds since the epoch"""


class EventsLost(StopTask):
    """Retention (a stream's max_bytes, which may pass checkpoints) dropped events before they were processed."""

    def __init__(self, want: Want, first_offset: int) -> None:
        self.want = want
        self.start = want.start
        self.end = Offset(first_offset)
        super().__init__(
            f"events lost to retention [{want.start},{first_offset}) in partition {want.partition}; nothing after them"
            " was read. To go on without them, start at a later offset; to keep more, raise the stream's max_bytes"
        )


async def fetch(db: Connection, wanted: Sequence[Want]) -> list[Fetched]:
    """Read what is wanted, in the order given, with one statement a stream; raise EventsLost for the first that is."""
    by_stream: dict[StreamId, list[int]] = defaultdict(list)
    for index, want in enumerate(wanted):
        by_stream[want.stream_id].append(index)
    found: dict[int, Fetched] = {}
    for stream_id, indexes in by_stream.items():
        of_stream = [wanted[index] for index in indexes]
        rows = await db.fetch(
            query("fetch_events"),
            stream_id,
            [want.partition for want in of_stream],
            [want.start for want in of_stream],
            [want.max_events for want in of_stream],
            [want.max_bytes for want in of_stream],
        )
        for row in rows:
            index = indexes[row["n"] - 1]
            want = wanted[index]
            if want.start < row["first_offset"]:
                raise EventsLost(want, row["first_offset"])
            found[index] = Fetched(
                stream_id,
                want.partition,
                want.start,
                row["count"],
                row["vals"],
                row["keys"],
                row["timestamps"],
                row["headers"],
                row["head"],
                row["now_ms"],
            )
    return [found[index] for index in range(len(wanted))]
