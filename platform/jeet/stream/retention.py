"""Lets go of old events, a segment of the log at a time, and of streams between stages that no function has any more.

Promise: no event goes before its retention, nor before every deployed function has processed it, unless the stream's
max_bytes demands it: that is logged as a warning, and the tasks concerned halt. Appends and reads never wait for this:
a segment is closed, detached and dropped in steps, and a step that meets a lock is left for the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg

from jeet.db.sql import query
from jeet.telemetry import logger

if TYPE_CHECKING:
    from asyncpg import Connection, Record

log = logger(__name__)


async def drop_segments(db: Connection) -> int:
    """Drop what may go, in all streams; returns how many segments went. The session's lock_timeout bounds each wait."""
    dropped = 0
    for stream in await db.fetch(query("streams_to_trim")):
        try:
            while (step := await db.fetchrow(query("retention_step"), stream["id"])) is not None:
                if not await _take(db, stream["name"], step):
                    break
                dropped += step["step"] == "drop"
        except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.DeadlockDetectedError) as error:
            log.info("old events are still in use; they go later", stream=stream["name"], error=str(error))
    return dropped


async def drop_streams(db: Connection) -> int:
    """Remove the streams that functions have let go of; returns how many went. Those still in use go later."""
    dropped = 0
    for stream in await db.fetch(query("streams_to_drop")):
        try:
            if stream["detach"] is not None:
                await db.execute(stream["detach"])
            dropped += bool(await db.fetchval("select jeet_internal.drop_stream($1)", stream["id"]))
        except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.DeadlockDetectedError) as error:
            log.info("a stream that is not needed any more is still in use; it goes later", error=str(error))
    return dropped


async def _take(db: Connection, stream: str, step: Record) -> bool:
    """Do one step; false if there is no more to do in this stream after all."""
    if step["step"] != "bar":
        await db.execute(step["statement"])
        return True
    unprocessed = await db.fetchval(step["statement"])
    if unprocessed is None:
        return False
    write = log.warning if unprocessed else log.info
    write("old events go", stream=stream, segment=step["segment"], reason=step["reason"], unprocessed=unprocessed)
    return True
