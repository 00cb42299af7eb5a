"""Which workers are lost: judged from what one cheap statement saw, a pure decision.

A worker has crashed when its liveness lock can be had: its session is gone. It is frozen, or cut off, when no heartbeat
has come for the timeout. The database clock tells the age of the last one, also to a coordinator that has just begun to
watch; but that clock may be set. So the age is believed only after a while in which no heartbeat was seen to come, and
a silence as long as the timeout, on the coordinator's own clock, is enough whatever the age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class Stillness:
    """How long each heart has not been seen to beat, on the clock of the one who watches, which nobody sets.

    It counts only while the watch has no gap: who could not look, because it or the database stood still, begins anew.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._looked_at_s: float | None = None
        self._last: dict[int, tuple[datetime, float]] = {}

    def seen(self, now_s: float, beats: Mapping[int, datetime]) -> dict[int, float]:
        """Note the last beat of each, as one look gave it; the seconds for which it has been the same."""
        gap = self._looked_at_s is None or now_s - self._looked_at_s > self._gap_s
        self._looked_at_s = now_s
        before = {} if gap else self._last
        self._last = {
            who: before[who] if who in before and before[who][0] == beat else (beat, now_s)
            for who, beat in beats.items()
        }
        return {who: now_s - since_s for who, (_, since_s) in self._last.items()}


def judge(
    workers: Sequence[Seen], still_s: Mapping[int, float], heartbeat_timeout_s: float, needed_s: float
) -> list[Lost]:
    """The workers that are lost, and why. `needed_s`: how long a heart is watched before its age is believed."""
    lost = []
    for seen in workers:
        still = still_s.get(seen.worker, 0.0)
        if seen.gone:
            lost.append(Lost(seen, "crashed"))
        elif still > heartbeat_timeout_s or (still >= needed_s and seen.silent_s > heartbeat_timeout_s):
            lost.append(Lost(seen, "frozen"))
    return lost
