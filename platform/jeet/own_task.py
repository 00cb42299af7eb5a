"""Running a coroutine in a task of its own, where what it leaves behind in its task harms nobody.

A TaskGroup that fails leaves its task counted as being cancelled. With early releases of Python 3.11 (Debian 12 has
3.11.2) each later timeout in that task, also those within asyncpg, then ends in a cancellation instead of TimeoutError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def in_own_task(work: Awaitable[T]) -> T:
    """The result of `work`, or what it raises; cancelled, it cancels `work` and waits for its end."""

    async def run() -> T:
        return await work

    return await asyncio.create_task(run())
