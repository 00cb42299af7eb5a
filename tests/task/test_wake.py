"""Waking: no event waits for the slow poll, whichever way a task ran dry. The slow poll is put off for these tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from jeet.clock import SYSTEM_CLOCK
from jeet.ids import Offset, Partition, StreamId, TaskId
from jeet.task import wake as module
from jeet.task.wake import Wake
from task.rows import Deployed, deploy_by_hand


@pytest.fixture
def deployed(db: psycopg.Connection[Any]) -> Deployed:
    return deploy_by_hand(db, partitions=1)


@pytest_asyncio.fixture
async def wake(database_url: str, monkeypatch: pytest.MonkeyPatch, deployed: Deployed) -> AsyncIterator[Wake]:
    monkeypatch.setattr(module, "LONGEST_POLL_S", 3600.0)
    wake = Wake(database_url, SYSTEM_CLOCK, Random(1))
    running = asyncio.create_task(wake.run())
    await dry(wake, deployed.source, -1)  # answered by the mark: the first look is over
    yield wake
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def dry(wake: Wake, stream: StreamId, position: int, task: int = 1) -> Offset | None:
    """What a task that ran dry at `position` is told, and when."""
    found: asyncio.Future[Offset | None] = asyncio.get_running_loop().create_future()
    wake.dry(TaskId(task), stream, Partition(0), Offset(position), found.set_result)
    async with asyncio.timeout(20):
        return await found


def append(db: psycopg.Connection[Any], deployed: Deployed, count: int = 1) -> None:
    keys, values = "\n".join(["null"] * count), "\n".join(json.dumps(n) for n in range(count))
    db.execute("select jeet_internal.append(%s, %s, %s)", ([deployed.source], [keys], [values]))


async def test_what_came_between_reading_and_marking_is_seen_by_the_mark(
    wake: Wake, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    db.execute("update jeet_internal.head set waiting = false")  # so that the append notifies nobody
    append(db, deployed, 5)
    assert await dry(wake, deployed.source, 3) == 5


async def test_what_comes_after_the_mark_notifies(wake: Wake, db: psycopg.Connection[Any], deployed: Deployed) -> None:
    waiting = asyncio.create_task(dry(wake, deployed.source, 0))
    async with asyncio.timeout(20):
        while db.execute(
            "select waiting from jeet_internal.head where stream_id = %s", (deployed.source,)
        ).fetchone() != (True,):
            await asyncio.sleep(0.005)
    append(db, deployed)
    assert await waiting is None


async def test_what_is_being_appended_while_the_mark_is_tried_is_seen_when_it_is_committed(
    wake: Wake, db: psycopg.Connection[Any], database_url: str, deployed: Deployed
) -> None:
    with psycopg.connect(database_url) as publisher:
        append(publisher, deployed)
        waiting = asyncio.create_task(dry(wake, deployed.source, 0))
        for _ in range(20):  # many tries, none of which may mark, or see, anything
            await asyncio.sleep(0.01)
        assert not waiting.done()
        publisher.commit()
        assert await waiting in (1, None)


async def test_a_head_that_stays_locked_holds_up_no_other(
    wake: Wake, db: psycopg.Connection[Any], database_url: str, deployed: Deployed
) -> None:
    other = deploy_by_hand(db, "other", partitions=1)
    with psycopg.connect(database_url) as publisher:
        append(publisher, deployed)
        waiting = asyncio.create_task(dry(wake, deployed.source, 0))
        for number in range(5):
            append(db, other)
            assert await dry(wake, other.source, number, task=2) in (number + 1, None)
        assert not waiting.done()
        publisher.rollback()
        append(db, deployed)
        assert await waiting in (1, None)


async def test_all_tasks_that_wait_at_a_partition_are_woken(
    wake: Wake, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    waiting = [asyncio.create_task(dry(wake, deployed.source, 0, task=task)) for task in range(1, 6)]
    await asyncio.sleep(0)
    append(db, deployed)
    async with asyncio.timeout(20):
        await asyncio.gather(*waiting)


async def test_a_lost_connection_loses_no_event(wake: Wake, db: psycopg.Connection[Any], deployed: Deployed) -> None:
    for number in range(5):
        waiting = asyncio.create_task(dry(wake, deployed.source, number))
        await asyncio.sleep(0)
        db.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jeet-worker wake'")
        append(db, deployed)
        assert await waiting in (number + 1, None)
