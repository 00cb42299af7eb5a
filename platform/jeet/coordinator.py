"""The coordinator process: stands by until it leads, leads until it cannot, runs maintenance jobs beside that.

Promise: a lost database, a schema that is not there yet or a failed statement ends nothing: the sessions are closed,
which gives leadership up, and the process stands by again. SIGTERM and SIGINT give it up at once and exit with 0.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import psycopg

from jeet import maintenance
from jeet.alive import alive
from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.control.coordinator import Coordinator
from jeet.control.leadership import LeadershipLost, become_leader, session, wait_for
from jeet.control.upkeep import keep_up
from jeet.db.connect import DRIVER_ERRORS
from jeet.db.migrate import SchemaMismatch, check_schema
from jeet.own_task import in_own_task
from jeet.settings import Settings
from jeet.telemetry import configure, logger

log = logger(__name__)

_RETRY_S = (0.1, 0.1, 0.2, 0.5, 1.0)


def main(settings: Settings, database_url: str) -> None:
    """Run until SIGTERM or SIGINT."""
    configure(log_format=settings.log_format, level=settings.log_level)
    asyncio.run(run(settings, database_url))


async def run(settings: Settings, database_url: str) -> None:
    """Lead or stand by, and do maintenance, until a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log.info("coordinator started")
    if settings.metrics_port is not None:
        await asyncio.to_thread(_serve_metrics, settings.metrics_host, settings.metrics_port, database_url)
    async with alive(settings.home, "coordinator"), asyncio.TaskGroup() as group:
        group.create_task(again_and_again("coordination", coordinate, settings, database_url, stop))
        group.create_task(again_and_again("maintenance", maintenance.run, settings, database_url, stop))
    log.info("coordinator stopped")


def _serve_metrics(host: str, port: int, database_url: str) -> None:
    from jeet.observe.metrics import ClusterMetrics, serve  # a tenth of a second's worth of imports

    serve(ClusterMetrics(database_url), host, port)


Work = Callable[[Settings, str, asyncio.Event], Awaitable[None]]


async def again_and_again(
    name: str, work: Work, settings: Settings, database_url: str, stop: asyncio.Event, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Do `work` over and over until `stop`, waiting a little longer after each failure in a row."""
    failures = 0
    while not stop.is_set():
        started_s = clock.monotonic()
        try:
            await asyncio.to_thread(_check_schema, database_url)
            await in_own_task(work(settings, database_url, stop))
        except* LeadershipLost as group:
            log.warning("leadership lost", reason=str(_first(group)))
        except* SchemaMismatch as group:
            log.warning(f"{name} waits for the schema", reason=str(_first(group)))
        except* (psycopg.Error, *DRIVER_ERRORS) as group:
            error = _first(group)
            log.warning(f"{name} lost the database; trying again", error=f"{type(error).__name__}: {error}")
        except* Exception as group:  # noqa: BLE001 - whatever it is, all that matters is in the database
            log.error(f"{name} failed in a way that nobody foresaw; trying again", exc=_first(group))
        failures = 0 if clock.monotonic() - started_s > 10 else failures + 1
        await wait_for(stop, _RETRY_S[min(failures, len(_RETRY_S) - 1)])


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _check_schema(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, connect_timeout=5, application_name="jeet-coordinator") as db:
        check_schema(db)


async def coordinate(settings: Settings, database_url: str, stop: asyncio.Event, clock: Clock = SYSTEM_CLOCK) -> None:
    """Stand by, then lead. The session ends with this call, and the lock with it."""
    async with session(database_url, "jeet-coordinator") as db:
        if not await become_leader(db, settings.heartbeat_timeout_s, stop, clock):
            return
        log.info("leading")
        # Its own session: it can wait for a lock, and the watch over workers must not.
        async with session(database_url, "jeet-coordinator upkeep") as second, asyncio.TaskGroup() as group:
            group.create_task(Coordinator(db, settings, clock).lead(stop))
            group.create_task(keep_up(second, settings.stage_lag, stop))
