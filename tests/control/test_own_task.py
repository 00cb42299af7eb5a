"""After a failed TaskGroup, time limits still end in TimeoutError, on every Python that Jeet runs on."""

from __future__ import annotations

import asyncio

import pytest

from jeet.own_task import in_own_task


async def failing() -> None:
    async def fail() -> None:
        raise ValueError("on purpose")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


async def test_a_group_that_fails_in_a_task_of_its_own_leaves_the_callers_alone() -> None:
    for _ in range(3):
        with pytest.raises(ExceptionGroup):
            await in_own_task(failing())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)


async def test_whoever_is_cancelled_cancels_the_work_and_waits_for_its_end() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    caller = asyncio.create_task(in_own_task(work()))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
