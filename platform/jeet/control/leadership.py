"""One coordinator leads; the others stand by.

Promise: a leader whose session ends is followed within a second; one that is frozen, after the heartbeat timeout and a
little more, its session being ended by the one that follows. Two that both believe to lead do no harm: they only write
hints and end sessions of workers that the database calls lost.
The advisory lock elects. The leader's row carries its heartbeat, by which a standby sees that it has frozen.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.control.watch import Stillness
from jeet.db.connect import connect
from jeet.db.keys import COORDINATOR_LOCK
from jeet.db.sql import query
from jeet.errors import JeetError
from jeet.telemetry import logger

log = logger(__name__)

STAND_BY_S = 0.2
"""how often a standby tries"""
ANSWER_S = 10.0
"""a database that does not answer for longer is given up, and with it the session"""
# A statement of the coordinator's is small; one that hangs must not keep the leader from looking at workers.
_SESSION = {"statement_timeout": "5s", "lock_timeout": "500ms", "idle_in_transaction_session_timeout": "5s"}


class LeadershipLost(JeetError):
    """Another coordinator leads, or the database no longer knows this session; stand by again."""


async def become_leader(
    db: asyncpg.Connection, heartbeat_timeout_s: float, stop: asyncio.Event, clock: Clock = SYSTEM_CLOCK
) -> bool:
    """Wait until this session leads; False if `stop` came first."""
    needed_s = heartbeat_timeout_s / 2
    stillness = Stillness(gap_s=needed_s)
    standing_by = False
    while not stop.is_set():
        if await _elect(db):
            return True
        if not standing_by:
            log.info("standing by")
            standing_by = True
        async with asyncio.timeout(ANSWER_S):
            leader = await db.fetchrow(query("coordinator_leader"), heartbeat_timeout_s)
        beats = {} if leader is None else {leader["backend_pid"]: leader["heartbeat_at"]}
        still_s = max(stillness.seen(clock.monotonic(), beats).values(), default=0.0)
        # As with workers (watch.py): neither a pause of the database nor its clock, when it is set, makes a leader look
        # frozen, or keeps a frozen one in office.
        if leader and (still_s > heartbeat_timeout_s or (leader["silent"] and still_s >= needed_s)):
            log.warning("leader is silent; ending its session", host=leader["host"], pid=leader["pid"])
            await db.execute(
                query("coordinator_end_leader"), leader["backend_pid"], leader["backend_start"], leader["heartbeat_at"]
            )
            continue
        await wait_for(stop, STAND_BY_S)
    return False


async def _elect(db: asyncpg.Connection) -> bool:
    async with asyncio.timeout(ANSWER_S):
        row = await db.fetchrow(query("coordinator_lead"), *COORDINATOR_LOCK, socket.gethostname(), os.getpid())
    return row is not None


async def beat(db: asyncpg.Connection) -> None:
    """Say that the leader lives; raise LeadershipLost if it leads no more."""
    if not await db.fetchval(query("coordinator_beat")):
        raise LeadershipLost("another coordinator leads now; nothing was changed, this one stands by")


async def wait_for(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event came within the time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False


@asynccontextmanager
async def session(
    database_url: str, application: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[asyncpg.Connection]:
    """A session of the coordinator's that ends with the block, whatever it is doing then."""
    db = await connect(database_url, application, {**_SESSION, **(settings or {})}, timeout_s=5)
    try:
        yield db
    finally:
        # Closing politely could wait for a server that does not answer.
        db.terminate()
