"""What one task does in one cycle of its lane, and where it stands in what it reads. Values; running.py decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jeet.ids import Offset, StreamId
from jeet.sandbox.call import BatchResult
from jeet.task.effects import Effects, Events
from jeet.task.retry import Careful
from jeet.task.watermark import EARLIEST_MS, InputTime, Standing

if TYPE_CHECKING:
    from jeet.task.running import RunningTask


@dataclass
class Cursor:
    """Where a task stands in one input."""

    stream: StreamId
    committed: Offset
    read: Offset
    head: Offset | None = None
    """the last known end of the partition; None: somebody has to look"""
    place: int = 0
    """among the stage's inputs"""
    table: bool = False
    """read to its end before anything else"""
    stopped: bool = False
    """the function drains, and this is one of its sources: it is read no further"""
    stop: Offset | None = None
    """where it is read no further for now, though there may be more: state is built again up to there"""
    careful: Careful | None = None
    """where among its events one at fault is looked for"""
    time: InputTime | None = None
    """how far it has come, if the task goes by event time and this counts"""
    last_turn: int = 0

    @property
    def end(self) -> Offset | None:
        """Up to where it may be read, as far as known."""
        if self.head is None or self.stop is None:
            return self.head
        return min(self.head, self.stop)

    @property
    def behind(self) -> bool:
        if self.stopped or (self.stop is not None and self.read >= self.stop):
            return False
        return self.end is None or self.read < self.end

    @property
    def reached_ms(self) -> float:
        """How far it has come in event time, as far as known."""
        watermark_ms = None if self.time is None else self.time.watermark_ms
        return EARLIEST_MS if watermark_ms is None else watermark_ms

    def standings(self) -> tuple[Standing, ...]:
        return () if self.time is None else tuple(self.time.standings(has_more=self.behind))


@dataclass(frozen=True)
class Halt:
    """The task must stop here, and why."""

    reason: str


@dataclass(frozen=True)
class Run:
    """What a guest's call took."""

    took_s: float
    cpu_s: float
    """of the thread, reading of state included"""
    state_s: float
    """of `took_s`, time of reading state"""
    ticks: Sequence[int]
    """events that ran when the engine's clock ticked, by their places in the batch"""
    slowest: tuple[int, float] | None
    """the event that the clock saw for longest, and the CPU time between; None: none twice"""


@dataclass(eq=False)
class Turn:
    """One batch of one task in one cycle."""

    task: RunningTask
    generation: int
    kind: Literal["events", "inbox", "timers"]
    """events in order; redriven ones, out of order; timers that are due"""
    cursor: Cursor | None
    """of events that are read in order; else None"""
    limit: int
    alone: bool = False
    """one event by itself after a failure: it is judged by how this ends"""
    events: Events | None = None
    outcome: BatchResult | Exception | None = None
    """None: not run"""
    effects: Effects | None = None
    next_due: tuple[float | None, float | None] | None = None
    """of a turn with timers: when those that are not due yet will be, by the task's clock and by the database's"""
    highest_ms: float | None = None
    """highest event time that its input has shown with this"""
    spent_s: float = 0.0
    """CPU time of the thread that ran it"""
    run: Run | None = None
    """None: it did not get as far as the guest"""

    @property
    def stale(self) -> bool:
        return self.task.dropped or self.generation != self.task.generation


def next_size(size: int, count: int, processed: int, spent_s: float, slice_s: float, most: int) -> int:
    """How many events the next batch may have, after one of `count`: as many as fit well into a time slice.

    What does not fit is read again, which costs; so a batch aims at less than a slice, and grows by steps.
    """
    if processed < count:
        return max(1, processed * 4 // 5)
    if count < size or spent_s <= 0:
        return size
    return max(1, min(most, size * 2, int(count / spent_s * slice_s * 0.8)))
