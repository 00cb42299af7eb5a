"""Which workers are lost: judged from what one cheap statement saw, a pure decision.

A worker has crashed when its liveness lock can be had: its session is gone. It is frozen, or cut off, when its last
heartbeat is older than the timeout on the database clock. A coordinator that could not look for a while, because it or
the database stood still, does not judge by heartbeats until workers had the time to send new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from jeet.ids import WorkerId

Reason = Literal["crashed", "frozen", "left"]


@dataclass(frozen=True)
class Seen:
    """One worker as the statement saw it."""

    worker: WorkerId
    host: str
    pid: int
    status: str
    heartbeat_at: datetime
    silent_s: float
    """age of its last heartbeat on the database clock"""
    gone: bool
    """its liveness lock is free"""
    plugin: str | None = None
    """hash of its plugin"""


@dataclass(frozen=True)
class Lost:
    seen: Seen
    reason: Reason


class Patience:
    """Whether this process has watched without a gap for long enough to believe in silence."""

    def __init__(self, gap_s: float, needed_s: float) -> None:
        self._gap_s = gap_s
        self._needed_s = needed_s
        self._last_s: float | None = None
        self._since_s = 0.0

    def looked(self, now_s: float) -> bool:
        """Note a look; true if silence may be judged."""
        if self._last_s is None or now_s - self._last_s > self._gap_s:
            self._since_s = now_s
        self._last_s = now_s
        return now_s - self._since_s >= self._needed_s


def judge(workers: Sequence[Seen], heartbeat_timeout_s: float, believe_silence: bool) -> list[Lost]:
    """The workers that are lost, and why."""
    lost = []
    for seen in workers:
        if seen.gone:
            lost.append(Lost(seen, "crashed"))
        elif believe_silence and seen.silent_s > heartbeat_timeout_s:
            lost.append(Lost(seen, "frozen"))
    return lost
