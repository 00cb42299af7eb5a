"""Local time, replaceable in tests. The database clock decides; local time only gives up sooner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Clock:
    """Two readings: `monotonic` in seconds, `utcnow` as an aware datetime."""

    monotonic: Callable[[], float] = time.monotonic
    utcnow: Callable[[], datetime] = lambda: datetime.now(UTC)


SYSTEM_CLOCK = Clock()
