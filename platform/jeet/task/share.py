"""Which of a worker's lanes runs what. Decisions only: lane.py acts on them.

While there is little to do one lane does it all, as one transaction for all tasks that have something to do costs far
less than one for each lane. Once there is much, or a cycle lasts, idle lanes take their part. Only tasks of which
nothing is under way change lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MUCH_EVENTS = 400
"""events known to wait that are worth another lane"""
LONG_S = 0.02
"""CPU time of a turn that is worth another lane"""
PATIENCE_S = 0.1
"""how long what is ready waits for a small cycle of its lane while another lane is idle: a host short of CPU time makes
cycles last, and more of them would not help it"""


@dataclass(frozen=True)
class Work:
    """What a task that may run has to do."""

    events: int
    """known to wait"""
    spent_s: float
    """CPU time of its last turn"""
    starts: bool = False
    """it has no instance yet: making one takes longer than a small batch"""


@dataclass(frozen=True)
class Waiting:
    """A lane as the others see it: what waits there, and the cycle at hand."""

    work: Sequence[Work]
    """of its tasks that may run and change lanes, first that which has waited longest"""
    began_at: float | None
    """when its cycle began; None: it is in none"""
    small: bool
    """there is not much in its cycle"""

    def is_worth_waiting_for(self, now: float) -> bool:
        """Whether its cycle will soon be over, as far as one can tell."""
        return self.began_at is not None and self.small and now < self.began_at + PATIENCE_S


def is_much(work: Sequence[Work]) -> bool:
    """Whether it is so much that more than one lane should work on it."""
    return sum(each.events for each in work) >= MUCH_EVENTS or any(
        each.starts or each.spent_s >= LONG_S for each in work
    )


def how_many_to_take(peer: Waiting, *, idle: bool, much: bool, now: float) -> int:
    """How many of the tasks that wait in another lane a lane takes over before its own cycle.

    `idle`: it has nothing to run itself; `much`: it has much to run.
    """
    if not peer.work or much:
        return 0
    if peer.began_at is None:  # about to run them: together with what is ready here they cost less
        return 0 if is_much(peer.work) else len(peer.work)
    if idle and (is_much(peer.work) or not peer.is_worth_waiting_for(now)):
        return (len(peer.work) + 1) // 2
    return 0


def how_many_to_run(work: Sequence[Work], *, peer_idle: bool) -> int:
    """How many of its ready tasks a lane runs now; the others are left to an idle lane."""
    return (len(work) + 1) // 2 if peer_idle and is_much(work) else len(work)
