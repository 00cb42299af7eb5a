"""How far event time has come for a task: its clock, and what its inputs hold it to. Decisions only.

Promise: a clock never falls. It goes by the slowest of what the task reads from, with these exceptions. Who rests
holds nothing: an input without an event for long, or one in which there never was an event. When all rest, the clock
comes to the highest time that was seen. Who wakes up holds again once it has caught up with the clock; until then its
events are as late as the clock says, and the clock does not wait for them. Of whom no event's time is known yet, but
something waits, the clock waits where it is.
An input that another stage makes is as far as the tasks of that stage, each by the same rules. What they had come to
counts once everything is committed that they had written by then; that one rested counts no more once it is heard to
have gone on, as what it wrote since may still wait to be read.
Units: `_ms` is event time in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jeet.ids import Offset

EARLIEST_MS = -62_135_596_800_000.0
"""before any event: the year 1"""
END_MS = 253_402_300_799_999.0
"""after any event: the end of the year 9999; where sources that are not read any more have come to"""
RARELY_S = 0.25
"""how long a clock that moved waits to be committed by itself, after the last commit, where later stages go by it"""
SELDOM_S = 2.0
"""the same where only people look at it"""


@dataclass(frozen=True)
class Standing:
    """How far one of those has come that a task reads from: an input, or a task behind an input that a stage makes."""

    watermark_ms: float | None
    """everything before it is believed seen; None: there was nothing yet"""
    highest_ms: float | None
    """where it comes to when all rest"""
    rests: bool = False
    """nothing is to be expected of it for now"""


_UNKNOWN = (Standing(None, None),)
_ENDED = (Standing(END_MS, END_MS),)


def held_to(clock_ms: float | None, standings: Iterable[Standing]) -> float | None:
    """The time beyond which these do not let the clock go; None: they let it go anywhere."""
    now_ms = EARLIEST_MS if clock_ms is None else clock_ms
    # Of whom nothing is known yet may have events of any time: the clock waits where it is. After a takeover that is so
    # of all inputs that other stages make, until they have been heard of and read.
    held = [now_ms if each.watermark_ms is None else each.watermark_ms for each in standings if not each.rests]
    return min((each for each in held if each >= now_ms), default=None)


def advanced(clock_ms: float | None, standings: Sequence[Standing]) -> float | None:
    """Where the clock comes to; None: nowhere yet."""
    if all(each.rests for each in standings):
        seen = [each.highest_ms for each in standings if each.highest_ms is not None]
        to_ms = max(seen, default=EARLIEST_MS)
    else:
        held_ms = held_to(clock_ms, standings)
        to_ms = EARLIEST_MS if held_ms is None else held_ms
    if to_ms <= EARLIEST_MS:
        return clock_ms
    return to_ms if clock_ms is None else max(clock_ms, to_ms)


@dataclass(eq=False)
class InputTime:
    """How far one input of a task has come."""

    delay_ms: float = 0.0
    internal: bool = False
    """made by another stage: the events' own times say nothing of what is still to come"""
    ended: bool = False
    """it is not read any more"""
    highest_ms: float | None = None
    """highest time seen, also in what is not committed yet"""
    committed_ms: float | None = None
    """highest time in what is committed"""
    idle: bool = False
    upstream: Sequence[Standing] | None = None
    """where those who make it had come to; None: not known yet"""
    _unread: tuple[Offset, Sequence[Standing]] | None = None
    """where they have come to, and up to which offset it must be read for that to count"""
    _newest: tuple[Offset, Sequence[Standing]] | None = None

    @property
    def watermark_ms(self) -> float | None:
        if self.internal:
            held_ms = held_to(None, self._makers())
            return held_ms if held_ms is not None and held_ms > EARLIEST_MS else None
        return None if self.highest_ms is None else self.highest_ms - self.delay_ms

    def standings(self, *, has_more: bool) -> Sequence[Standing]:
        if self.ended:
            return _ENDED
        if self.internal:
            return self._makers()
        rests = not has_more and (self.idle or self.highest_ms is None)
        return (Standing(self.watermark_ms, self.highest_ms, rests),)

    def _makers(self) -> Sequence[Standing]:
        if self.upstream is None:
            return _UNKNOWN
        later = [heard for _, heard in filter(None, (self._unread, self._newest))]
        if any(len(heard) != len(self.upstream) for heard in later):
            return _UNKNOWN
        return [
            Standing(None, None) if each.rests and any(heard[n] != each for heard in later) else each
            for n, each in enumerate(self.upstream)
        ]

    def heard(self, head: Offset, upstream: Sequence[Standing]) -> None:
        """As of one moment: the input's head, and where those had come to that write it."""
        # What waits already to count is not put off for something newer: under load that would never end.
        if self._unread is None:
            self._unread = (head, upstream)
        else:
            self._newest = (head, upstream)

    def read_to(self, position: Offset) -> None:
        """Everything before `position` is committed."""
        while self._unread is not None and self._unread[0] <= position:
            self.upstream = self._unread[1]
            self._unread, self._newest = self._newest, None

    def saw(self, highest_ms: float | None) -> None:
        if highest_ms is not None and not self.internal:
            self.highest_ms = highest_ms if self.highest_ms is None else max(self.highest_ms, highest_ms)
        self.idle = False


@dataclass(eq=False)
class TaskTime:
    """The clock of a task, and when its next timers are due."""

    clock_ms: float | None = None
    committed_ms: float | None = None
    """the clock as committed"""
    passes_on: bool = False
    """a later stage goes by it"""
    limit_ms: float | None = None
    """it comes no further for now"""
    next_event_ms: float | None = EARLIEST_MS
    """no timer that goes by the clock is due before; None: there is none"""
    next_wall_ms: float | None = EARLIEST_MS
    """the same of timers that go by the database's clock"""
    ahead_ms: float | None = None
    """by how much the database's clock is ahead of this process's monotonic one; None: not known yet"""
    may_commit_at: float = 0.0
    """on the monotonic clock: when a clock that moved may be committed by itself"""

    def advance(self, standings: Sequence[Standing]) -> None:
        to_ms = advanced(self.clock_ms, standings)
        if to_ms is not None and self.limit_ms is not None and to_ms > self.limit_ms:
            to_ms = _later(self.clock_ms, self.limit_ms if self.limit_ms > EARLIEST_MS else None)
        self.clock_ms = to_ms

    def undo(self) -> None:
        self.clock_ms = self.committed_ms

    def now_ms(self, now: float) -> float | None:
        """The database's clock at `now` on the monotonic one."""
        return None if self.ahead_ms is None else now * 1000 + self.ahead_ms

    def has_due(self, now: float) -> bool:
        """Whether some timer may be due."""
        if self.next_event_ms is not None and self.clock_ms is not None and self.next_event_ms <= self.clock_ms:
            return True
        return (
            self.next_wall_ms is not None and (now_ms := self.now_ms(now)) is not None and self.next_wall_ms <= now_ms
        )

    def is_to_commit(self, now: float) -> bool:
        """Whether the clock should be committed even if there is nothing else to commit."""
        return self.clock_ms != self.committed_ms and now >= self.may_commit_at

    def wait_to_commit(self, now: float) -> None:
        """Something was committed, or is about to be."""
        self.may_commit_at = now + (RARELY_S if self.passes_on else SELDOM_S)

    def will_be_due(self, event_ms: float | None, wall_ms: float | None) -> None:
        """There are timers at these times, besides those known."""
        self.next_event_ms = _earlier(self.next_event_ms, event_ms)
        self.next_wall_ms = _earlier(self.next_wall_ms, wall_ms)


def _later(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
