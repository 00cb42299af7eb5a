"""What the leader refreshes each second: which streams are over their lag limit, which functions have failed.

Publishers go by the first while nobody leads, too, as it was last; tasks judge for themselves how full their sinks are.

And, less often, notes of where streams and their readers stand, of which rates are made (sql/views/rates.sql).

It has a session of its own, as it can wait for a lock, and the watch over workers must not.
"""

from __future__ import annotations

import asyncio

import asyncpg

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.control.leadership import ANSWER_S, wait_for
from jeet.db.sql import query
from jeet.telemetry import logger

log = logger(__name__)

EVERY_S = 1.0
SAMPLE_S = 15.0
"""how often positions are noted, of which rates are made"""


async def refresh(db: asyncpg.Connection, stage_lag: int) -> None:
    """Bring both kinds of flags up to date; what somebody else holds locked is left for the next time.

    `stage_lag`: events that may lie between two stages of a function.
    """
    try:
        for row in await db.fetch(query("coordinator_over_lag"), stage_lag):
            state = "stream is over its lag limit" if row["over_lag"] else "stream is within its lag limit again"
            log.info(state, stream=row["name"], lag=row["lag"], max_lag=row["max_lag"])
        for row in await db.fetch(query("coordinator_roll_up")):
            write = log.warning if row["status"] == "failed" else log.info
            write("function status changed", function=row["name"], status=row["status"])
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError, asyncpg.QueryCanceledError) as error:
        log.debug("flags are refreshed next time", error=str(error))


async def keep_up(db: asyncpg.Connection, stage_lag: int, stop: asyncio.Event, clock: Clock = SYSTEM_CLOCK) -> None:
    """Refresh each second until `stop`, and note now and then where streams and their readers stand."""
    sampled_at_s = float("-inf")
    while not await wait_for(stop, EVERY_S):
        async with asyncio.timeout(ANSWER_S):
            await refresh(db, stage_lag)
            if clock.monotonic() - sampled_at_s >= SAMPLE_S:
                sampled_at_s = clock.monotonic()
                await db.fetchval(query("sample_positions"))
