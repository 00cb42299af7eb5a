"""A failed event: again later, set aside, or stop here. Decisions only; nothing here does anything.

A batch that failed as a whole hides the event at fault. `Careful` narrows it down: the suspects run in ever smaller
pieces, each in a commit of its own, until one event is left; only an event that failed alone is judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Any, Literal

from jeet.errors import UsageError
from jeet.ids import Offset

LONGEST_RETRY_S = 60.0
"""how long one event may hold up its partition, all its retries together"""
CRASH_PIECE = 64
"""events that run together after a crash of the process, while the one at fault is looked for"""

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class OnError:
    """What a function wants done with an event that fails."""

    kind: Literal["dead-letter", "retry", "halt"] = "dead-letter"
    retries: int = 0
    backoff_s: float = 1.0

    @staticmethod
    def parse(value: Any) -> OnError:
        """From the deployed setting: 'dead-letter', 'halt' or {"retry": n, "backoff": "1s"}."""
        match value:
            case None | "dead-letter":
                return OnError()
            case "halt":
                return OnError("halt")
            case {"retry": int(retries), **rest}:
                return OnError("retry", retries, _seconds(rest.get("backoff", "1s")))
        raise UsageError(f"on_error is {value!r}; use 'dead-letter', 'halt' or {{retry: n, backoff: '1s'}}")


class Verdict(Enum):
    RETRY = "retry"
    SET_ASIDE = "set aside"
    HALT = "halt"


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    wait_s: float = 0.0


def judge(policy: OnError, attempt: int, waited_s: float) -> Judgement:
    """What becomes of an event that failed alone for the `attempt`th time after waiting `waited_s` in all."""
    if policy.kind == "halt":
        return Judgement(Verdict.HALT)
    if policy.kind == "retry" and attempt <= policy.retries:
        # Doubling, but cut at what is left, and given up when nothing is.
        wait_s = min(policy.backoff_s * 2.0 ** (attempt - 1), LONGEST_RETRY_S - waited_s)
        if wait_s > 0 or policy.backoff_s == 0:
            return Judgement(Verdict.RETRY, max(wait_s, 0.0))
    return Judgement(Verdict.SET_ASIDE)


def backoff_s(failures: int, random: Random, *, first_s: float = 0.02, most_s: float = 2.0) -> float:
    """How long to wait before trying again something that failed `failures` times in a row for no fault of its own."""
    return min(most_s, first_s * 2.0 ** min(failures, 16)) * (0.5 + random.random())


@dataclass(frozen=True)
class Careful:
    """The event at fault is in `[start, end)`: these run in pieces, what comes before and after runs as usual."""

    start: Offset
    end: Offset
    piece: int | None = None
    """most events in a piece; None: half of what is left"""
    crashed: Mapping[Offset, int] | None = None
    """attempts recorded for events of which one ended the process"""
    attempt: int = 1
    """of the event at `start`, once it runs alone"""
    waited_s: float = 0.0

    def size(self, position: Offset) -> int:
        """How many events may run next from `position`."""
        if position < self.start:
            return self.start - position
        if self.crashed is not None and position in self.crashed:
            return 1
        left = self.end - position
        return max(1, min(left, self.piece or (left + 1) // 2))

    def alone(self, position: Offset) -> bool:
        """Whether the event at `position` runs by itself, to be judged."""
        return position >= self.start and self.size(position) == 1

    def narrowed(self, start: Offset, end: Offset) -> Careful:
        """After a failure that points at `[start, end)`."""
        return Careful(start, end)

    def again(self, wait_s: float) -> Careful:
        """The event at `start` failed alone and is to be tried once more."""
        return replace(self, attempt=self.attempt + 1, waited_s=self.waited_s + wait_s)

    def past(self, position: Offset) -> Careful | None:
        """What is left once everything before `position` is committed."""
        if position >= self.end:
            return None
        return self if position <= self.start else replace(self, start=position, attempt=1, waited_s=0.0)


def after_crashes(position: Offset, crashes: int, recorded: Mapping[Offset, int], window: int) -> Careful | None:
    """How to begin an input when earlier owners died: with care if events are on record, or after two without a commit.

    `recorded`: the events of this input that are on record. Where those of another input are, `crashes` says nothing of
    this one, and is given as 0.
    """
    if recorded:
        return Careful(position, Offset(max(recorded) + 1), piece=CRASH_PIECE, crashed=recorded)
    if crashes >= 2:
        return Careful(position, Offset(position + window), piece=CRASH_PIECE, crashed={})
    return None


def _seconds(text: Any) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(text))
    if match is None:
        raise UsageError(f"{text!r} is no duration; write it like '250ms', '10s' or '5m'")
    return float(match[1]) * _UNITS_S[match[2]]
