"""A task as its lane runs it: how far it has read, what is not committed yet, what a failure means. No I/O here.

Promise: `committed <= read` for each input; `undo` returns to what is committed and dooms the instance, so that the
next one reads state from the database. An event is judged only when it failed alone; an undone batch has no effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from jeet.control.lease import Lease
from jeet.errors import RetryLater, SandboxError, StopTask
from jeet.ids import Offset, StreamId
from jeet.sandbox.call import BatchResult, Fault
from jeet.sandbox.instance import Instance
from jeet.task.effects import Effects, Events, dead_letters, effects_of
from jeet.task.program import Program
from jeet.task.retry import Careful, Verdict, judge
from jeet.task.share import Work
from jeet.task.state import TaskState

INBOX_SIZE = 256
"""redriven events in one batch"""
_HOPELESS = 5
"""failures of one event alone, in a way that nobody foresaw, after which it is set aside"""
_MOST_SWEEPS = 5
"""times in a row that state may be swept under a batch; beyond, the guest refreshes what was never there"""


@dataclass
class Cursor:
    """Where a task stands in one input."""

    stream: StreamId
    committed: Offset
    read: Offset
    head: Offset | None = None
    """the last known end of the partition; None: somebody has to look"""
    stopped: bool = False
    """the function drains, and this is one of its sources: it is read no further"""

    @property
    def behind(self) -> bool:
        return not self.stopped and (self.head is None or self.read < self.head)


@dataclass(frozen=True)
class Halt:
    """The task must stop here, and why."""

    reason: str


@dataclass(eq=False)
class Turn:
    """One batch of one task in one cycle."""

    task: RunningTask
    generation: int
    cursor: Cursor | None
    """None: events from the inbox"""
    limit: int
    alone: bool = False
    """one event by itself after a failure: it is judged by how this ends"""
    events: Events | None = None
    outcome: BatchResult | Exception | None = None
    """None: not run"""
    effects: Effects | None = None
    spent_s: float = 0.0
    """CPU time of the thread that ran it"""

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


@dataclass(eq=False)
class RunningTask:
    """Changed by the main thread only, except that `instance` is made and used in the lane's thread."""

    lease: Lease
    program: Program
    state: TaskState
    cursors: list[Cursor]
    most_events: int
    size: int
    """most events in the next batch; grows while batches are full, shrinks to what fits in a time slice"""
    careful: Careful | None = None
    crashed: Mapping[Offset, int] = field(default_factory=dict)
    """attempts on record for events of which one ended an earlier owner's process"""
    instance: Instance | None = None
    doomed: list[Instance] = field(default_factory=list)
    """to be closed by the lane's thread"""
    memory_bytes: int = 0
    generation: int = 0
    """rises when uncommitted work is undone; a result of an older one is thrown away"""
    committed_sequence: int = 0
    """batches of `instance` known to be committed"""
    uncommitted: int = 0
    in_cycle: bool = False
    dropped: bool = False
    failures: int = 0
    """in a row, for no fault of an event"""
    sweeps: int = 0
    """batches in a row that refreshed state which was not there"""
    wait_until: float = 0.0
    has_inbox: bool = False
    inbox_size: int = INBOX_SIZE
    sink_full: bool = False
    last_turn: int = 0
    spent_s: float = 0.0
    """CPU time of its last turn"""
    on_commit: Callable[[], None] = lambda: None
    stir: Callable[[], None] = lambda: None
    """has the task's lane consider it; set by the lane"""
    gone: asyncio.Future[None] | None = None
    """set when the task is to stop; done when nothing of it is under way"""

    # ---- what next ----

    def may_run(self, now: float) -> bool:
        if self.gone is not None or self.dropped or self.in_cycle or self.sink_full or now < self.wait_until:
            return False
        if self.uncommitted and (self.careful or self.has_inbox or self.instance is None or self.instance.recycle_due):
            return False  # what runs next reads state from the database, or must be alone in its commit
        return self.has_inbox or self._next_cursor() is not None

    @property
    def work(self) -> Work:
        """How much it is known to have to do; where nobody has looked yet, nothing."""
        known = sum(
            cursor.head - cursor.read for cursor in self.cursors if cursor.head is not None and not cursor.stopped
        )
        return Work(known, self.spent_s, starts=self.instance is None)

    def turn(self, share: int) -> Turn:
        """The next batch; only if `may_run`. Of `share` events at most where it is not known how many wait."""
        if self.instance is not None and self.instance.recycle_due:
            self.doom()
        cursor = self._next_cursor()
        if cursor is None or (self.has_inbox and self.careful is None):
            return Turn(self, self.generation, None, self.inbox_size, alone=self.inbox_size == 1)
        limit = min(self.size, share if cursor.head is None else cursor.head - cursor.read)
        if self.careful is None:
            return Turn(self, self.generation, cursor, limit)
        return Turn(
            self, self.generation, cursor, min(limit, self.careful.size(cursor.read)), self.careful.alone(cursor.read)
        )

    def _next_cursor(self) -> Cursor | None:
        behind = [cursor for cursor in self.cursors if cursor.behind]
        return min(behind, key=lambda cursor: cursor.read, default=None)

    # ---- what became of it ----

    def undo(self) -> None:
        """Forget everything that is not committed."""
        self.generation += 1
        self.uncommitted = 0
        for cursor in self.cursors:
            cursor.read = cursor.committed
        self.doom()

    def doom(self) -> None:
        if self.instance is not None:
            self.doomed.append(self.instance)
            self.instance = None
        self.committed_sequence = 0
        self.memory_bytes = 0

    def hold_off(self, now: float, wait_s: float) -> None:
        self.failures += 1
        self.wait_until = now + wait_s

    def settle(self, turn: Turn, now: float) -> Halt | None:
        """Draw the consequences of the turn's outcome; afterwards `turn.effects` is what to commit, if anything."""
        if turn.stale:
            self.doom()  # it has seen what was undone
            return None
        match turn.outcome:
            case None:
                pass
            case BatchResult() as result:
                return self._settle_result(turn, result, now)
            case RetryLater():
                self.undo()
            case StopTask() as error:  # no instance of this version can be made: no event is at fault
                self.undo()
                return Halt(str(error))
            case SandboxError() as error:
                suspects = getattr(error, "suspects", range(turn.events.batch.count if turn.events else 1))
                return self.failed(turn, suspects, str(error), now)
            case error if turn.alone and self.failures < _HOPELESS:
                self.undo()
            case error:
                everything = range(turn.events.batch.count if turn.events else 1)
                return self.failed(turn, everything, f"{type(error).__name__}: {error}", now)
        if turn.effects is not None:
            self._advance(turn)
        return None

    def _settle_result(self, turn: Turn, result: BatchResult, now: float) -> Halt | None:
        assert turn.events is not None
        self.memory_bytes = result.memory_bytes
        if result.faults and turn.cursor is not None and self.program.on_error.kind != "dead-letter":
            # The batch went on past the fault, so it cannot be used: nothing after it may be committed yet.
            first = result.faults[0]
            if turn.alone:
                return self._judge(turn, first, now)
            self._narrow(turn, range(first.index, first.index + 1))
            return None
        self.size = next_size(
            self.size,
            turn.events.batch.count,
            result.processed,
            turn.spent_s,
            self.program.slice_ms / 1000,
            self.most_events,
        )
        attempts = self.careful.attempt if self.careful is not None and turn.alone else 1
        effects = effects_of(self.lease, turn.events, result, self.state.ttl_ms, attempts=attempts)
        turn.effects = replace(effects, clear_suspects=self.careful is not None)
        self._advance(turn)
        return None

    def failed(self, turn: Turn, suspects: range, error: str, now: float) -> Halt | None:
        """The batch failed as a whole: look for the event at fault, or judge it if it was alone."""
        if turn.alone:
            return self._judge(turn, Fault(0, error, "", None), now)
        self._narrow(turn, suspects)
        return None

    def refused(self, turn: Turn, error: str, now: float) -> Halt | None:
        """The database cannot store what the batch made; then `turn.effects` is what to commit instead, if anything."""
        assert turn.events is not None
        turn.effects = None
        return self.failed(
            turn, range(turn.events.batch.count), f"the database refused what this event made: {error}", now
        )

    def swept(self, turn: Turn, now: float, wait_s: float) -> Halt | None:
        """State that the batch refreshed is gone: it runs again and no event is at fault, unless that does not help."""
        self.sweeps += 1
        if self.sweeps > _MOST_SWEEPS:
            return self.refused(turn, "it refreshes an entry of state that is not there", now)
        turn.effects = None
        self.undo()
        self.hold_off(now, wait_s)
        return None

    def _narrow(self, turn: Turn, suspects: range) -> None:
        assert turn.events is not None
        self.undo()
        suspects = suspects or range(turn.events.batch.count)
        if turn.cursor is None:
            self.inbox_size = 1
        else:
            self.careful = Careful(
                turn.events.offset(suspects.start), Offset(turn.events.offset(suspects.stop - 1) + 1)
            )

    def _judge(self, turn: Turn, fault: Fault, now: float) -> Halt | None:
        assert turn.events is not None
        self.undo()
        careful = self.careful or Careful(turn.events.start, Offset(turn.events.start + 1))
        judgement = judge(self.program.on_error, careful.attempt, careful.waited_s)
        if turn.cursor is None or judgement.verdict is Verdict.SET_ASIDE:
            self.set_aside(turn, fault, careful.attempt)
            self._advance(turn)
            return None
        if judgement.verdict is Verdict.HALT:
            return Halt(f"offset {turn.events.start}: {fault.error}")
        self.careful = replace(careful, start=turn.events.start).again(judgement.wait_s)
        self.wait_until = now + judgement.wait_s
        return None

    def set_aside(self, turn: Turn, fault: Fault, attempts: int) -> None:
        """Make the turn's effects those of skipping its one event, which becomes a dead letter."""
        events = turn.events
        assert events is not None
        turn.generation = self.generation
        turn.outcome = None
        turn.effects = Effects(
            lease=self.lease,
            stream=None if turn.cursor is None else events.stream,
            origin=events.stream,
            start=events.start,
            end=Offset(events.start + 1),
            dead_letters=dead_letters(events, [fault], attempts),
            inbox=events.inbox,
            clear_suspects=turn.cursor is not None,
        )

    def _advance(self, turn: Turn) -> None:
        assert turn.effects is not None
        self.uncommitted += 1
        if turn.cursor is not None:
            turn.cursor.read = turn.effects.end
        else:
            self.has_inbox = True  # there may be more; the look that finds nothing says so

    def committed(self, turn: Turn) -> None:
        """The turn's effects are in the database."""
        assert turn.effects is not None
        if turn.stale:
            return
        self.uncommitted -= 1
        self.on_commit()
        self.failures = self.sweeps = 0
        if isinstance(turn.outcome, BatchResult) and self.instance is not None:
            self.committed_sequence = turn.outcome.sequence
        if turn.cursor is not None:
            turn.cursor.committed = turn.effects.end
            if self.careful is not None:
                self.careful = self.careful.past(turn.effects.end)
