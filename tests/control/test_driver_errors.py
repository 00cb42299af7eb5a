"""Whatever the driver raises when a server ends in mid-answer, the coordinator stands by again."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from jeet import coordinator
from jeet.settings import Settings


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.AdminShutdownError("terminating connection due to administrator command"),
        ConnectionResetError("reset"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_work_that_loses_the_database_is_begun_again(error: Exception, database_url: str) -> None:
    stop = asyncio.Event()
    runs = 0

    async def work(_settings: Settings, _url: str, stop: asyncio.Event) -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            stop.set()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(_fail(error))

    async with asyncio.timeout(30):
        await coordinator.again_and_again("work", work, Settings(), database_url, stop)
    assert runs == 3


async def _fail(error: Exception) -> None:
    raise error
