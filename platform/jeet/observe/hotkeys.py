"""Which keys bring most of a task's events, and most of its work: always on, as few events of a batch are looked at.

Promise: the true share is within `error` of the share that is told, with 99 % confidence; a key whose share exceeds a
tenth by more than that is found. Method: of each batch at most SAMPLE events, one at random out of each run of equal
length, count for all of the run. Sums are kept by the algorithm of Misra and Gries (1982), in the form that can be
merged (Agarwal et al., "Mergeable summaries", 2012): at most a few hundred keys are counted, and what a count may be
short of is known exactly. The work of a key is its share of the ticks of the engine's clock, 20 ms apart, at which one
of its events ran. The datasketches library has the same algorithm, but brings NumPy with it: half a second of each
worker's start, and 20 MB.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import random

SAMPLE = 32
"""events of one batch that are looked at"""
PANE_S = 30.0
"""shares are of the events of the pane at hand and the one before it"""
KEPT = 64
"""keys that a sum keeps when it has become too long"""
HOT = 0.1
"""share that a key must exceed beyond doubt"""
UNFAIR = 1.5
"""times a fair share that it must exceed too, where few keys are there"""
LEAST_EVENTS = 100
LEAST_TICKS = 50
MOST_TOLD = 10
_MOST_COUNTED = 4 * KEPT
_Z = 2.58
"""99 % of a normal distribution is within so many standard errors"""


@dataclass(frozen=True)
class HotKey:
    """A key and its share, give or take the error; of sandbox time None if too little of it was seen."""

    key: str
    share: float
    error: float
    sandbox_share: float | None
    sandbox_error: float | None


class Sum:
    """Weights by key; `short` is what any of them may be too low by."""

    def __init__(self) -> None:
        self.counts: dict[bytes, float] = {}
        self.total = 0.0
        self.squares = 0.0
        """of the weights added: how much less sure a share is for a few events that stood for many"""
        self.short = 0.0

    def add(self, keys: Sequence[bytes], weight: float) -> None:
        counts, looked_at = self.counts, len(keys)
        for key in keys:
            counts[key] = counts.get(key, 0.0) + weight
        self.total += looked_at * weight
        self.squares += looked_at * weight * weight
        self._shorten()

    def merged(self, other: Sum) -> Sum:
        both = Sum()
        both.counts = dict(self.counts)
        for key, count in other.counts.items():
            both.counts[key] = both.counts.get(key, 0.0) + count
        both.total, both.squares = self.total + other.total, self.squares + other.squares
        both.short = self.short + other.short
        return both

    def _shorten(self) -> None:
        if len(self.counts) > _MOST_COUNTED:
            cut = sorted(self.counts.values(), reverse=True)[KEPT]
            self.counts = {key: count - cut for key, count in self.counts.items() if count > cut}
            self.short += cut

    def highest(self) -> list[bytes]:
        """Keys worth a closer look, the one of the highest weight first."""
        return sorted(self.counts, key=self.counts.__getitem__, reverse=True)[: 2 * MOST_TOLD]

    @property
    def looks(self) -> float:
        """How many events, each picked by itself, would tell as much."""
        return self.total * self.total / self.squares if self.squares else 0.0

    def share(self, key: bytes) -> tuple[float, float]:
        """A key's share and its error: what the sum may be short of, and the luck of the draw (Agresti and Coull)."""
        share = self.counts.get(key, 0.0) / self.total
        looks = self.looks + _Z * _Z
        about = (share * self.looks + _Z * _Z / 2) / looks
        return share, self.short / self.total + _Z * math.sqrt(about * (1 - about) / looks)


class HotKeys:
    """Of one task and one input."""

    def __init__(self) -> None:
        self._events, self._events_before = Sum(), Sum()
        self._ticks, self._ticks_before = Sum(), Sum()
        self._pane_began: float | None = None
        self._told = True
        """keys were told as hot, by this or an earlier owner of the task"""

    def saw(self, keys: bytes, count: int) -> None:
        """A batch's keys, JSON texts joined by line breaks, of which the first `count` were processed."""
        lines = keys.split(b"\n")
        run = -(-count // SAMPLE)
        if run == 1:
            self._events.add(lines[:count], 1.0)
        else:
            starts = range(0, count - run + 1, run)
            self._events.add([lines[start + int(random() * run)] for start in starts], float(run))

    def ran(self, keys: bytes, ticks: Sequence[int]) -> None:
        """At each tick of the clock an event ran: their places in the batch."""
        lines = keys.split(b"\n")
        self._ticks.add([lines[index] for index in ticks if index < len(lines)], 1.0)

    def hottest(self, now: float) -> tuple[list[HotKey], int | None] | None:
        """Keys that are hot, hottest first, and how many there are, if few.

        None: nothing new. Too little was seen, or none is hot, as was said before.
        """
        if self._pane_began is None:
            self._pane_began = now
        elif now - self._pane_began >= PANE_S:
            self._events_before, self._events = self._events, Sum()
            self._ticks_before, self._ticks = self._ticks, Sum()
            self._pane_began = now
        if not (self._told or _may_be_hot(self._events, self._events_before, self._ticks, self._ticks_before)):
            return None
        events, ticks = self._events.merged(self._events_before), self._ticks.merged(self._ticks_before)
        if events.looks < LEAST_EVENTS:
            return None
        distinct = None if events.short else len(events.counts)
        bound = HOT if distinct is None or distinct == 1 else max(HOT, UNFAIR / distinct)
        found = []
        for key in dict.fromkeys([*events.highest(), *ticks.highest()]):
            text = None if key == b"null" else json.loads(key)
            if text is None:  # no key: nothing that could be chosen better
                continue
            share, error = events.share(key)
            work = ticks.share(key) if ticks.total >= LEAST_TICKS else None
            if share - error >= bound or (work is not None and work[0] - work[1] >= bound):
                found.append(HotKey(str(text), share, error, *(work or (None, None))))
        self._told = bool(found)
        return found[:MOST_TOLD], distinct


def _may_be_hot(*sums: Sum) -> bool:
    """Whether any key of them has as much as a hot one must; nearly always none has, which is quickly seen."""
    return any(max(each.counts.values()) + each.short >= HOT * each.total for each in sums if each.counts)
