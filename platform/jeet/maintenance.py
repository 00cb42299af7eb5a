"""pgqueuer's scheduled jobs: delete what has expired, record where tasks stand, drop what is past its retention.

Promise: no event, batch or commit waits for a job: rows are taken with SKIP LOCKED, a thousand at a time, each slice a
statement of its own that leaves no transaction open. A job may run twice, or at the same time in two coordinators, and
does no harm. A job that fails is logged with what it met and runs again at its next time.
Every coordinator runs the scheduler; pgqueuer's rows see to it that each run is done by one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import asyncpg

from jeet.control.leadership import session, wait_for
from jeet.db.connect import DRIVER_ERRORS
from jeet.db.sql import query
from jeet.settings import Settings
from jeet.stream import retention
from jeet.telemetry import logger

if TYPE_CHECKING:
    from pgqueuer.adapters.persistence.queries import Queries
    from pgqueuer.domain.models import Schedule
    from pgqueuer.domain.settings import DBSettings

log = logger(__name__)

SLICE = 1000
"""rows that one statement may delete"""
_MINUTES_H = 2.0
"""how long figures are kept by the minute"""
_STATE_PAGES = 2000
"""of the table of state that are read to estimate its size: 16 MB"""
# A job gives way: it would rather be late than keep somebody waiting.
_SESSION = {"lock_timeout": "200ms", "statement_timeout": "60s"}


@dataclass(frozen=True)
class Job:
    """One kind of upkeep."""

    name: str
    every_s: int
    work: Callable[[asyncpg.Connection, Settings], Awaitable[int]]
    """does all that is due and says how many rows that were"""


def jobs(settings: Settings) -> tuple[Job, ...]:
    """All jobs and how often they run."""
    return (
        Job("state_ttl", settings.ttl_sweep_s, sweep_state),
        Job("rebuilds", 2, advance_rebuilds),
        Job("checkpoint_history", settings.maintenance_s, record_checkpoints),
        Job("publish_ids", settings.maintenance_s, expire_publish_ids),
        Job("logs", settings.maintenance_s, expire_logs),
        Job("workers", settings.maintenance_s, forget_lost_workers),
        Job("savepoints", settings.maintenance_s, sweep_savepoints),
        Job("retention", settings.maintenance_s, drop_segments),
        Job("streams", settings.maintenance_s, drop_streams),
        Job("figures", settings.maintenance_s, roll_up_figures),
        Job("state_size", 10 * settings.maintenance_s, measure_state),
    )


async def sweep_state(db: asyncpg.Connection, settings: Settings) -> int:
    """Delete state that expired a while ago, task by task, each by its own clock."""
    total = 0
    for row in await db.fetch(query("maintenance_expired_tasks"), settings.ttl_grace_s):
        total += await _in_slices(db, "maintenance_sweep_state", row["id"], settings.ttl_grace_s)
    return total


async def advance_rebuilds(db: asyncpg.Connection, settings: Settings) -> int:
    """Bring functions whose state is built again into their next phase."""
    await db.execute("set statement_timeout = 0")  # state that goes may be large
    return int(await db.fetchval("select jeet_internal.advance_rebuilds()"))


async def record_checkpoints(db: asyncpg.Connection, settings: Settings) -> int:
    """Note where each task stands if it has moved, and forget what is too old."""
    recorded = int(await db.fetchval(query("maintenance_record_checkpoints")))
    return recorded + await _in_slices(db, "maintenance_expire_history", settings.checkpoint_history_h)


async def expire_publish_ids(db: asyncpg.Connection, settings: Settings) -> int:
    """Forget ids of events whose window for repeats is over."""
    return await _in_slices(db, "maintenance_expire_publish_ids")


async def expire_logs(db: asyncpg.Connection, settings: Settings) -> int:
    """Delete console output that is too old."""
    return await _in_slices(db, "maintenance_expire_logs", settings.log_ttl_h)


async def sweep_savepoints(db: asyncpg.Connection, settings: Settings) -> int:
    """Remove what dropped savepoints hold, and the oldest of those that Jeet took by itself."""
    return await _in_slices(db, "maintenance_sweep_savepoints", settings.savepoints_kept)


async def forget_lost_workers(db: asyncpg.Connection, settings: Settings) -> int:
    """Take lost workers off the list, unless a task still counts the time since it lost its owner by them."""
    return int(await db.fetchval(query("maintenance_forget_workers"), settings.lost_worker_h))


async def drop_segments(db: asyncpg.Connection, settings: Settings) -> int:
    """Drop segments of the log that are past their stream's retention."""
    return await retention.drop_segments(db)


async def drop_streams(db: asyncpg.Connection, settings: Settings) -> int:
    """Remove the streams between stages that functions have let go of."""
    return await retention.drop_streams(db)


async def roll_up_figures(db: asyncpg.Connection, settings: Settings) -> int:
    """Turn minutes of figures into hours, and forget what is too old."""
    total = await _in_slices(db, "maintenance_roll_up_figures", _MINUTES_H)
    total += await _in_slices(db, "maintenance_expire_figures", settings.figures_h)
    total += await _in_slices(db, "maintenance_expire_lease_changes", settings.figures_h)
    total += await _in_slices(db, "maintenance_expire_hot_keys", _MINUTES_H)
    total += await _in_slices(db, "maintenance_expire_positions")
    return total + await _in_slices(db, "maintenance_expire_state_sizes")


async def measure_state(db: asyncpg.Connection, settings: Settings) -> int:
    """Estimate how much state each collection holds."""
    return int(await db.fetchval(query("maintenance_measure_state"), _STATE_PAGES))


async def _in_slices(db: asyncpg.Connection, name: str, *values: object) -> int:
    """Repeat a statement that deletes at most SLICE rows (its last parameter) until it finds fewer."""
    total = 0
    while True:
        rows = int(await db.fetchval(query(name), *values, SLICE))
        total += rows
        if rows < SLICE:
            return total


def cron(every_s: int) -> str:
    """The schedule that fires about every so many seconds; from a minute up it counts in whole minutes."""
    return f"* * * * * */{every_s}" if every_s < 60 else f"*/{min(every_s // 60, 59)} * * * *"


async def run(settings: Settings, database_url: str, stop: asyncio.Event) -> None:
    """Run the scheduler until `stop`; raise the driver's error when its session is lost."""
    # A second's worth of imports, which the watch over workers must not wait for.
    SchedulerManager = (await asyncio.to_thread(import_module, "pgqueuer.core.sm")).SchedulerManager

    async with session(database_url, "jeet-maintenance scheduler") as db:
        scheduler = SchedulerManager(_queries(db))
        for job in jobs(settings):
            scheduler.schedule(job.name, cron(job.every_s), clean_old=True)(
                _scheduled(job, settings, database_url, stop)
            )
        async with asyncio.TaskGroup() as group:
            scheduling = group.create_task(scheduler.run())
            while not await wait_for(stop, 0.5) and not scheduling.done():
                if db.is_closed():
                    raise asyncpg.InterfaceError("the scheduler's session is closed")
            scheduler.shutdown.set()


def _scheduled(
    job: Job, settings: Settings, database_url: str, stop: asyncio.Event
) -> Callable[[Schedule], Awaitable[None]]:
    async def run_job(_schedule: Schedule) -> None:
        # Told to stop, a job is dropped between two of its slices, or with the one at hand: the rest is done next time.
        working = asyncio.create_task(run_once(job, settings, database_url), name=f"maintenance {job.name}")
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        for each in (working, stopping):
            each.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)

    return run_job


async def run_once(job: Job, settings: Settings, database_url: str) -> int:
    """Run a job on a session of its own, log what it did, return how many rows; -1 if it failed."""
    started_s = time.monotonic()
    try:
        async with session(database_url, f"jeet-maintenance {job.name}", _SESSION) as db:
            rows = await job.work(db, settings)
    except DRIVER_ERRORS as error:
        log.warning(
            "maintenance failed; it runs again at its next time", job=job.name, error=f"{type(error).__name__}: {error}"
        )
        return -1
    write = log.info if rows else log.debug
    write("maintenance", job=job.name, rows=rows, elapsed_ms=round((time.monotonic() - started_s) * 1000, 1))
    return rows


def names() -> DBSettings:
    """What pgqueuer's tables are called here (sql/migrations/0005_pgqueuer.sql), whatever the environment says."""
    from pgqueuer.domain.settings import DBSettings, Durability
    from pgqueuer.domain.types import Channel

    return DBSettings(
        prefix="",
        db_schema="jeet_pgqueuer",
        channel=Channel("jeet_pgqueuer"),
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
        durability=Durability.durable,
    )


def _queries(db: asyncpg.Connection) -> Queries:
    from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
    from pgqueuer.adapters.persistence.qb import (
        QueryBuilderEnvironment,
        QueryQueueBuilder,
        QuerySchedulerBuilder,
    )
    from pgqueuer.adapters.persistence.queries import Queries

    settings = names()
    return Queries(
        AsyncpgDriver(db),
        qbe=QueryBuilderEnvironment(settings),
        qbq=QueryQueueBuilder(settings),
        qbs=QuerySchedulerBuilder(settings),
    )
