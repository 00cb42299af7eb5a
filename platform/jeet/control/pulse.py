"""When a worker has to say that it lives, and when it must believe that it lives no more: decisions, no I/O.

Promise: it is silent for no longer than it has to be, and it gives up when no heartbeat was answered within the
timeout, at the latest: by then others may have taken its tasks. An answer counts from the moment its question was
sent, so that a slow way to the database makes it give up sooner and never later. Once given up, it stays so.
Units: seconds on the process's monotonic clock.
"""

from __future__ import annotations

from jeet.clock import Clock
from jeet.errors import StopWorker


class Pulse:
    """One incarnation's heartbeats. `lost` says why it is over; None while it lives."""

    def __init__(self, clock: Clock, heartbeat_s: float, timeout_s: float) -> None:
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._timeout_s = timeout_s
        self._answered_at_s = clock.monotonic()
        self._due_s = self._answered_at_s
        self.lost: StopWorker | None = None

    def joined(self) -> None:
        """The database knows this incarnation from now on."""
        self._answered_at_s = self._due_s = self._clock.monotonic()

    def due_in_s(self) -> float:
        """How long until the next heartbeat; 0: now."""
        return max(0.0, self._due_s - self._clock.monotonic())

    def answered(self, sent_at_s: float, known: bool) -> None:
        """The answer to a heartbeat; raises StopWorker if the database no longer counts this incarnation in."""
        if not known:
            raise StopWorker(
                "this worker was declared lost and its tasks have gone to others; nothing uncommitted was kept."
                " The worker joins again. If this repeats, the machine stalls for longer than JEET_HEARTBEAT_TIMEOUT_S."
            )
        self._answered_at_s = sent_at_s
        self._due_s = self._clock.monotonic() + self._heartbeat_s

    def overdue(self) -> StopWorker | None:
        """Why to give up, if no heartbeat was answered for too long."""
        silent_s = self._clock.monotonic() - self._answered_at_s
        if self.lost is not None or silent_s <= self._timeout_s:
            return None
        return StopWorker(
            f"no heartbeat was answered for {silent_s:.1f} s; others may have taken this worker's tasks over."
            " Nothing uncommitted was kept; the worker joins again."
        )

    def give_up(self, error: StopWorker) -> bool:
        """End it for this reason; False if it was over before."""
        if self.lost is not None:
            return False
        self.lost = error
        return True
