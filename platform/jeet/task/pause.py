"""Waiting for something or for a while, whichever comes first."""

from __future__ import annotations

import asyncio


async def pause(event: asyncio.Event, within_s: float | None) -> None:
    """Until the event is set, at most so long; None: until it is set.

    Not `asyncio.wait_for`: that swallows a cancellation which comes together with the event, and then whoever cancelled
    waits for ever.
    """
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return
