"""A task as its lane runs it: how far it has read, what is not committed yet, what a failure means. No I/O here.

Promise: `committed <= read` for each input; `undo` returns to what is committed and dooms the instance, so that the
next one reads state from the database. An event is judged only when it failed alone; an undone batch has no effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jeet.control.lease import Lease
from jeet.errors import RetryLater, SandboxError, StopTask
from jeet.ids import Offset, StreamId
from jeet.observe.figures import TaskFigures
from jeet.sandbox.call import BatchResult, Fault, LogLine
from jeet.sandbox.instance import Instance
from jeet.task.effects import Effects, LoggedLine, dead_letters, effects_of, logged
from jeet.task.logs import LogBudget
from jeet.task.program import Program
from jeet.task.retry import Careful, Verdict, judge
from jeet.task.share import Work
from jeet.task.state import TaskState
from jeet.task.turn import Cursor, Halt, Turn, next_size
from jeet.task.watermark import Standing, TaskTime

INBOX_SIZE = 256
"""redriven events in one batch"""
TIMERS = 256
"""timers that fire in the first batch; those that go well let the next be larger"""
_NO_TRIAL = Careful(Offset(0), Offset(0))
_HOPELESS = 5
"""failures of one event alone, in a way that nobody foresaw, after which it is set aside"""
_MOST_SWEEPS = 5
"""times in a row that state may be swept under a batch; beyond, the guest refreshes what was never there"""


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
    time: TaskTime | None = None
    """None: it does not go by event time, and has no timers"""
    crashed: Mapping[tuple[StreamId, Offset], int] = field(default_factory=dict)
    """attempts on record for events, by stream and offset, of which one ended an earlier owner's process"""
    timers_recorded: bool = False
    """an earlier owner died: timers are put on record before they fire"""
    timers_size: int = TIMERS
    timer_trial: Careful = _NO_TRIAL
    """attempts at the first timer that is due"""
    fired: bool = False
    """timers had the last turn: events come next, if there are any"""
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
    turns: int = 0
    """of its inputs"""
    spent_s: float = 0.0
    """CPU time of its last turn"""
    logs: LogBudget = field(default_factory=LogBudget)
    on_commit: Callable[[], None] = lambda: None
    stir_clocks: Callable[[], None] = lambda: None
    """has clocks.py look soon"""
    stir: Callable[[], None] = lambda: None
    """has the task's lane consider it; set by the lane"""
    figures: TaskFigures | None = None
    """None: nobody wants them"""
    gone: asyncio.Future[None] | None = None
    """set when the task is to stop; done when nothing of it is under way"""

    # ---- what next ----

    def may_run(self, now: float) -> bool:
        if self.gone is not None or self.dropped or self.in_cycle or self.sink_full or now < self.wait_until:
            return False
        if self.uncommitted and (
            self.is_careful or self.has_inbox or self.instance is None or self.instance.recycle_due or self._fires(now)
        ):
            return False  # what runs next reads state from the database, or must be alone in its commit
        return self._has_events or self._fires(now)

    @property
    def is_careful(self) -> bool:
        """Whether an event at fault is looked for."""
        return any(cursor.careful is not None for cursor in self.cursors)

    @property
    def _has_events(self) -> bool:
        return self.has_inbox or any(cursor.behind for cursor in self.cursors)

    def _fires(self, now: float) -> bool:
        """Whether timers have the next turn, or the clock that moved. What is read then tells what is really due."""
        if self.time is None:
            return False
        if self.time.has_due(now):
            return not (self.fired and self._has_events)
        return not self._has_events and self.time.is_to_commit(now)

    @property
    def work(self) -> Work:
        """How much it is known to have to do; where nobody has looked yet, nothing."""
        known = sum(cursor.end - cursor.read for cursor in self.cursors if cursor.end is not None and cursor.behind)
        return Work(known, self.spent_s, starts=self.instance is None)

    def turn(self, share: int, now: float) -> Turn:
        """The next batch; only if `may_run`. Of `share` events at most where it is not known how many wait."""
        if self.instance is not None and self.instance.recycle_due:
            self.doom()
            if self.figures is not None:
                self.figures.recycled += 1
        self.fired = self._fires(now)
        if self.fired:
            return Turn(self, self.generation, "timers", None, self.timers_size)
        cursor = self._next_cursor()
        if cursor is None or (self.has_inbox and not self.is_careful):
            return Turn(self, self.generation, "inbox", None, self.inbox_size, alone=self.inbox_size == 1)
        self.turns += 1
        cursor.last_turn = self.turns
        limit = min(self.size, share if cursor.end is None else cursor.end - cursor.read)
        if cursor.stop is not None:
            limit = min(limit, cursor.stop - cursor.read)
        if cursor.careful is None:
            return Turn(self, self.generation, "events", cursor, limit)
        limit = min(limit, cursor.careful.size(cursor.read))
        return Turn(self, self.generation, "events", cursor, limit, cursor.careful.alone(cursor.read))

    def _next_cursor(self) -> Cursor | None:
        """Of several inputs: tables, then who is furthest behind in event time, then who has waited longest."""
        behind = [cursor for cursor in self.cursors if cursor.behind]
        if len(behind) < 2:
            return behind[0] if behind else None
        tables = [cursor for cursor in behind if cursor.table]
        return min(tables or behind, key=lambda cursor: (cursor.reached_ms, cursor.last_turn))

    # ---- event time ----

    def standings(self, apart_from: Cursor | None = None) -> list[Standing]:
        """How far those have come that the task reads from."""
        return [each for cursor in self.cursors if cursor is not apart_from for each in cursor.standings()]

    def advance_time(self) -> None:
        """Move the clock as far as what is known allows."""
        if self.time is not None:
            self.time.advance(self.standings())

    # ---- what became of it ----

    def undo(self) -> None:
        """Forget everything that is not committed."""
        self.generation += 1
        self.uncommitted = 0
        for cursor in self.cursors:
            cursor.read = cursor.committed
            if cursor.time is not None:
                cursor.time.highest_ms = cursor.time.committed_ms
        if self.time is not None:
            self.time.undo()
            self.advance_time()
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
            self._advance(turn, now)
        else:
            self.advance_time()  # the look that found nothing may have told that there is nothing
        return None

    def _settle_result(self, turn: Turn, result: BatchResult, now: float) -> Halt | None:
        assert turn.events is not None
        self.memory_bytes = result.memory_bytes
        if result.faults and turn.kind != "inbox" and self.program.on_error.kind != "dead-letter":
            # The batch went on past the fault, so it cannot be used: nothing after it may be committed yet.
            first = result.faults[0]
            if turn.alone:
                return self._judge(turn, first, now, result.logs)
            self._narrow(turn, range(first.index, first.index + 1))
            return None
        if turn.kind == "events":
            self.size = next_size(
                self.size,
                turn.events.batch.count,
                result.processed,
                turn.spent_s,
                self.program.slice_ms / 1000,
                self.most_events,
            )
        careful = self._careful(turn)
        attempts = careful.attempt if careful is not None and turn.alone else 1
        effects = effects_of(self.lease, turn.events, result, self.state.ttl_ms, attempts=attempts)
        turn.effects = replace(
            effects,
            logs=self.logs.admit(effects.logs, now),
            clear_suspects=turn.cursor is not None and careful is not None,
        )
        turn.highest_ms = result.highest_ms
        self._advance(turn, now)
        return None

    def _careful(self, turn: Turn) -> Careful | None:
        if turn.kind == "timers":
            return self.timer_trial
        return None if turn.cursor is None else turn.cursor.careful

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
        if turn.kind == "timers":
            # Those before the suspects, if any; else half of these. What goes well lets the next piece grow again.
            self.timers_size = max(1, suspects.start or len(suspects) // 2)
        elif turn.cursor is None:
            self.inbox_size = 1
        else:
            turn.cursor.careful = Careful(
                turn.events.offset(suspects.start), Offset(turn.events.offset(suspects.stop - 1) + 1)
            )

    def _judge(self, turn: Turn, fault: Fault, now: float, logs: Sequence[LogLine] = ()) -> Halt | None:
        """`logs`: what its last attempt wrote."""
        assert turn.events is not None
        self.undo()
        careful = self._careful(turn) or Careful(turn.events.start, Offset(turn.events.start + 1))
        judgement = judge(self.program.on_error, careful.attempt, careful.waited_s)
        if turn.kind == "inbox" or judgement.verdict is Verdict.SET_ASIDE:
            lines = self.logs.admit([logged(turn.events, line) for line in logs], now)
            self.set_aside(turn, fault, careful.attempt, lines)
            self._advance(turn, now)
            return None
        if judgement.verdict is Verdict.HALT:
            return Halt(f"{turn.events.name(0)}: {fault.error}")
        again = replace(careful, start=turn.events.start).again(judgement.wait_s)
        if turn.cursor is None:
            self.timer_trial = again
        else:
            turn.cursor.careful = again
        self.wait_until = now + judgement.wait_s
        return None

    def set_aside(self, turn: Turn, fault: Fault, attempts: int, logs: Sequence[LoggedLine] = ()) -> None:
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
            logs=logs,
            inbox=events.inbox,
            fired=events.timers[:1],
            clear_suspects=turn.cursor is not None,
        )

    def move_clock(self, turn: Turn) -> None:
        """Make the turn's effects those of the clock that moved, if it did: nothing was due."""
        if self.time is not None and self.time.clock_ms != self.time.committed_ms:
            turn.effects = Effects(self.lease, stream=None, start=Offset(0), end=Offset(0))

    def _advance(self, turn: Turn, now: float) -> None:
        assert turn.effects is not None
        self.uncommitted += 1
        if turn.cursor is not None:
            turn.cursor.read = turn.effects.end
        elif turn.kind == "inbox":
            self.has_inbox = True  # there may be more; the look that finds nothing says so
        if self.time is None:
            return
        watermark_ms = None
        if turn.cursor is not None and turn.cursor.time is not None:
            turn.cursor.time.saw(turn.highest_ms)
            turn.highest_ms = turn.cursor.time.highest_ms
            watermark_ms = turn.cursor.time.watermark_ms
        self.advance_time()
        self.time.wait_to_commit(now)
        turn.effects = replace(turn.effects, timed=True, clock_ms=self.time.clock_ms, watermark_ms=watermark_ms)

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
            if turn.cursor.careful is not None:
                turn.cursor.careful = turn.cursor.careful.past(turn.effects.end)
        if self.time is not None:
            self._committed_time(turn, turn.effects, self.time)

    def _committed_time(self, turn: Turn, effects: Effects, time: TaskTime) -> None:
        time.committed_ms = effects.clock_ms
        if turn.kind == "timers":
            # Of those on record each fires alone after a crash: no more of them at once.
            self.timers_size = min(TIMERS if self.timers_recorded else self.most_events, 2 * self.timers_size)
            self.timer_trial = _NO_TRIAL
            if turn.next_due is not None and len(effects.fired) == (turn.events.batch.count if turn.events else 0):
                time.next_event_ms, time.next_wall_ms = turn.next_due
        for cursor in self.cursors:
            if cursor.time is not None:
                if cursor is turn.cursor:
                    cursor.time.committed_ms = turn.highest_ms
                cursor.time.read_to(cursor.committed)
        time.will_be_due(
            min((timer.at_ms for timer in effects.timers if timer.at_ms is not None and not timer.wall), default=None),
            min((timer.at_ms for timer in effects.timers if timer.at_ms is not None and timer.wall), default=None),
        )
        self.advance_time()
        self.stir_clocks()
