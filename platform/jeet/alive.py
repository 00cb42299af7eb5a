"""A file that a process touches while its main loop turns: what a liveness probe looks at.

Promise: the file is fresh exactly while the loop that does the work is running; a database that is away does not make
it stale, as starting the process again would not bring the database back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from jeet.telemetry import logger

log = logger(__name__)

BEAT_S = 1.0
STALE_S = 15.0
"""longer than any pause that a healthy process makes, the freezing of a container while it is moved left out"""
FORGET_S = 3600.0


@contextlib.asynccontextmanager
async def alive(home: Path, kind: str) -> AsyncIterator[None]:
    """Touch `<home>/alive/<kind>.<pid>` each second while the block runs; without a writable home, do without."""
    path = _folder(home) / f"{kind}.{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.iterdir():
            # Left by processes that were killed.
            if time.time() - other.stat().st_mtime > FORGET_S:
                other.unlink(missing_ok=True)
        path.touch()
    except OSError as error:
        log.info("liveness cannot be shown", path=path, error=str(error))
        yield
        return
    beating = asyncio.create_task(_beat(path), name="alive")
    try:
        yield
    finally:
        beating.cancel()
        path.unlink(missing_ok=True)


async def _beat(path: Path) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        # A full disk must not end the process; the probe will tell.
        with contextlib.suppress(OSError):
            path.touch()


def freshest_s(home: Path, kind: str) -> float | None:
    """How long ago a process of this kind last touched its file; None if there is none."""
    ages = []
    for path in _folder(home).glob(f"{kind}.*"):
        with contextlib.suppress(OSError):
            ages.append(time.time() - path.stat().st_mtime)
    return min(ages, default=None)


def _folder(home: Path) -> Path:
    return home / "alive"
