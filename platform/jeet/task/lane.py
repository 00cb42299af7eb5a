"""A lane runs tasks: one thread for their guests, connections of its own for their data. share.py says which tasks.

    pick -> prepare -> guest -> commit        the commit of one cycle overlaps reading and guests of the next

Promise: of each task at most one batch is uncommitted beyond the one that runs, and a commit carries all batches of a
cycle. A batch whose commit fails is undone together with what ran on top of it. On any doubt about a commit the
connection is closed, the instance is thrown away and the task is taken over anew, under a new epoch: that waits for
the old commit to end, and then reads where it left the checkpoint.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Literal

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.errors import RetryLater, SandboxError, StopTask
from jeet.ids import FunctionId, Offset, TaskId
from jeet.sandbox.call import BatchResult
from jeet.task.data import DataConnection
from jeet.task.guests import GuestThread
from jeet.task.lane_settings import LaneSettings
from jeet.task.pause import pause
from jeet.task.prepare import prepare
from jeet.task.retry import backoff_s
from jeet.task.running import RunningTask
from jeet.task.share import PATIENCE_S, Waiting, how_many_to_run, how_many_to_take, is_much
from jeet.task.state import StateConnection
from jeet.task.tally import count_run
from jeet.task.trouble import tell_failed, tell_unreadable
from jeet.task.turn import Halt, Turn
from jeet.task.wake import Wake
from jeet.task.writer import Writer
from jeet.telemetry import logger

log = logger(__name__)

CYCLE_BATCHES = 2
"""full batches, in events and in bytes, that one commit may carry; smaller ones of more tasks"""
CYCLE_TURNS = 64
"""tasks that one commit may carry, as each may bring one event of any size"""

_turn_numbers = itertools.count(1)
"""of the turns of all lanes"""


class Lane:
    """Runs the tasks it is given until it is told to drain; cancelled, it stops at once, nothing half done."""

    def __init__(
        self,
        name: str,
        settings: LaneSettings,
        wake: Wake,
        on_lost: Callable[[TaskId], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.name = name
        self.tasks: dict[TaskId, RunningTask] = {}
        self.peers: Sequence[Lane] = ()
        """the worker's other lanes"""
        self.state = StateConnection(settings.database_url, settings.commit_timeout_s)
        self._settings = settings
        self._wake = wake
        self._on_lost = on_lost
        self._clock = clock
        self._random = random or Random()
        self._stir = asyncio.Event()
        self._draining = False
        self._began_at: float | None = None
        """when the cycle at hand began"""
        self.busy_s = 0.0
        """in cycles that are over"""
        self._small = False
        """there is not much in the cycle at hand"""
        self._awake: set[RunningTask] = set()
        """tasks that may have something to do; the others have run dry"""
        self._spent_s: dict[FunctionId, float] = defaultdict(float)
        """guests' CPU time by function, counted from that of the function that had used least when it woke"""
        self._least_spent_s = 0.0
        self._halts: list[tuple[RunningTask, Halt]] = []
        self._writing: asyncio.Task[None] | None = None
        self._committing: frozenset[RunningTask] = frozenset()
        self._reads = DataConnection(
            settings.database_url, f"jeet-worker fetch {name}", settings.session(), settings.commit_timeout_s + 5
        )
        self._writer = Writer(
            settings.database_url,
            f"jeet-worker commit {name}",
            settings.session(),
            settings.commit_timeout_s + 5,
            on_lost=self._lost,
            on_halt=lambda task, halt: self._halts.append((task, halt)),
            clock=clock,
            random=self._random,
        )
        self._guests = GuestThread(
            f"lane-{name}",
            self.state,
            cycle_s=CYCLE_BATCHES * settings.slice_s,
            stall_s=settings.commit_timeout_s,
            clock=clock,
        )

    # ---- what the task loop calls ----

    def add(self, task: RunningTask) -> None:
        """Run a task from now on; nothing of it may be under way."""
        self.tasks[task.lease.task_id] = task
        task.state.use(self.state)
        task.stir = partial(self._wake_up, task)
        self._wake_up(task)

    def load(self, function: FunctionId) -> tuple[int, int]:
        """How much there is to do already, for that function and in all: who gives tasks out compares it."""
        return sum(task.lease.function_id == function for task in self.tasks.values()), len(self.tasks)

    def notice(self, task_id: TaskId, *, has_inbox: bool, sink_full: bool) -> None:
        """What a look at the database said about a task."""
        task = self.tasks.get(task_id)
        if task is not None and (task.has_inbox, task.sink_full) != (has_inbox, sink_full):
            task.has_inbox, task.sink_full = has_inbox, sink_full
            self._wake_up(task)

    async def remove(self, task_id: TaskId) -> None:
        """Stop a task after the batch it is at, which is committed."""
        task = self.tasks.get(task_id)
        if task is None:
            return
        if task.gone is None:
            task.gone = asyncio.get_running_loop().create_future()
            self._let_go_if_quiet(task)
        await asyncio.shield(task.gone)

    def drop(self, task_id: TaskId) -> None:
        """Stop a task at once: nothing of it can be committed any more."""
        task = self.tasks.pop(task_id, None)
        if task is not None:
            task.dropped = True
            task.undo()
            self._forget(task)

    def drain(self) -> None:
        """Finish the batches at hand, commit them, and end `run`."""
        self._draining = True
        self._stir.set()

    # ---- the cycle ----

    async def run(self) -> None:
        """Until drained or cancelled."""
        try:
            while True:
                self._stir.clear()
                for task, halt in self._take_halts():
                    await self._halt(task, halt)
                turns = [] if self._draining else self._next_turns()
                if turns:
                    await self._cycle(turns)
                elif self._writing is None and self._draining:
                    return
                else:
                    await self._rest()
        finally:
            await self._close()

    def _next_turns(self) -> list[Turn]:
        """What to run now: of this lane's own, and of what waits in others."""
        now = self._clock.monotonic()
        ready = self._ready(now)
        much = is_much([task.work for task in ready])
        for peer in self.peers:
            waiting = peer._may_go(now)
            seen = peer._seen(waiting)
            for task in waiting[: how_many_to_take(seen, idle=not ready, much=much, now=now)]:
                peer._hand_over(task, self)
        if not much:
            for peer in self.peers:
                if peer._seen(()).is_worth_waiting_for(now):
                    for task in self._may_go(now):
                        self._hand_over(task, peer)
        return self._pick(self._ready(now), now)

    def _ready(self, now: float) -> list[RunningTask]:
        ready = [task for task in self._awake if task.may_run(now)]
        self._awake = {task for task in self._awake if now < task.wait_until < float("inf")}.union(ready)
        return ready

    def _may_go(self, now: float) -> list[RunningTask]:
        """Tasks that are ready and could be so in another lane just as well; first who has waited longest."""
        if self._draining:
            return []
        going = [task for task in self._awake if task.may_run(now) and self._is_quiet(task)]
        return sorted(going, key=lambda task: task.last_turn)

    def _seen(self, waiting: Sequence[RunningTask]) -> Waiting:
        return Waiting([task.work for task in waiting], self._began_at, self._small)

    def _is_quiet(self, task: RunningTask) -> bool:
        return not task.in_cycle and not task.uncommitted and task not in self._committing

    def _hand_over(self, task: RunningTask, lane: Lane) -> None:
        del self.tasks[task.lease.task_id]
        self._awake.discard(task)
        self._guests.close_doomed(task)
        lane.add(task)

    def _pick(self, ready: list[RunningTask], now: float) -> list[Turn]:
        """Who runs next: functions that used least time, then who waited longest; no more than one commit carries."""
        if not ready:
            return []
        for task in ready:
            # A function that was idle is not owed the time that it did not use.
            function = task.lease.function_id
            self._spent_s[function] = max(self._spent_s[function], self._least_spent_s)
        self._least_spent_s = min(self._spent_s[task.lease.function_id] for task in ready)
        ready.sort(key=lambda task: (self._spent_s[task.lease.function_id], task.last_turn))
        work = [task.work for task in ready]
        idle = [peer for peer in self.peers if peer._began_at is None and not peer._awake]
        ready = ready[: how_many_to_run(work, peer_idle=bool(idle))]
        self._small = not is_much(work)
        turns: list[Turn] = []
        room = CYCLE_BATCHES * self._settings.batch_events
        share = max(1, room // len(ready))
        for task in ready:
            turn = task.turn(share, now)
            if turns and (turn.limit > room or len(turns) == CYCLE_TURNS):
                break
            room -= turn.limit
            turns.append(turn)
        return turns

    async def _cycle(self, turns: Sequence[Turn]) -> None:
        self._began_at = self._clock.monotonic()
        for turn in turns:
            turn.task.in_cycle = True
        self._stir_peers()
        try:
            if await self._prepare(turns):
                await self._guests.run(turns)
            if self._writing is not None:
                await asyncio.shield(self._writing)
        finally:
            self.busy_s += self._clock.monotonic() - self._began_at
            self._began_at = None
            for turn in turns:
                turn.task.in_cycle = False
        self._settle(turns)
        # Whoever has nothing to commit, for want of time or of events, is through: it may be waited for to let go.
        if through := [turn for turn in turns if turn.effects is None]:
            self._after(through)
        if work := [turn for turn in turns if turn.effects is not None]:
            self._committing = frozenset(turn.task for turn in work)
            self._writing = asyncio.create_task(self._write(work), name=f"commit {self.name}")

    async def _prepare(self, turns: Sequence[Turn]) -> bool:
        """Whether any turn has events to run. On failure nothing is lost, the tasks only wait a little."""
        began = self._clock.monotonic()
        try:
            async with self._reads.use() as db:
                found = await prepare(
                    db,
                    turns,
                    max_attempts=self._settings.max_attempts,
                    max_bytes=self._settings.batch_bytes * CYCLE_BATCHES // max(CYCLE_BATCHES, len(turns)),
                    clock=self._clock,
                )
        except RetryLater:
            for turn in turns:
                turn.events = None
                self._hold_off(turn.task)
            return False
        finally:
            self._took(turns, "fetch_s", began)
        for task, error in found.unreadable:
            tell_unreadable(task, error)
            self._hold_off(task)
        for task in found.lost:
            self._lost(task)
        self._halts.extend(found.halts)
        for task, _ in found.halts:
            task.wait_until = float("inf")
        return any(turn.events is not None and turn.effects is None for turn in turns)

    def _settle(self, turns: Sequence[Turn]) -> None:
        now = self._clock.monotonic()
        for turn in turns:
            task, outcome = turn.task, turn.outcome
            if outcome is not None or turn.effects is not None:
                # Whom the cycle had no time for keeps its place: it comes before those who ran.
                task.last_turn = next(_turn_numbers)
                task.spent_s = turn.spent_s
            self._spent_s[task.lease.function_id] += turn.spent_s
            if not turn.stale:
                count_run(turn)
            if outcome is not None and not isinstance(outcome, BatchResult | StopTask) and not turn.stale:
                tell_failed(turn, outcome)
                if not isinstance(outcome, SandboxError):
                    self._hold_off(task)
            halt = task.settle(turn, now)
            if halt is not None:
                task.wait_until = float("inf")
                self._halts.append((task, halt))
            self._mark_dry(turn)

    def _mark_dry(self, turn: Turn) -> None:
        task, cursor = turn.task, turn.cursor
        if cursor is None or cursor.behind or task.dropped or task.gone is not None:
            return

        def found(head: Offset | None) -> None:
            cursor.head = head
            task.stir()

        self._wake.dry(task.lease.task_id, cursor.stream, task.lease.partition, cursor.read, found)

    async def _write(self, turns: Sequence[Turn]) -> None:
        began = self._clock.monotonic()
        try:
            await self._writer.write(turns)
        finally:
            self._took(turns, "commit_s", began)
            self._writing, self._committing = None, frozenset()
            self._after(turns)
            self._stir_peers()

    def _after(self, turns: Sequence[Turn]) -> None:
        """Once the turns are committed or undone."""
        for turn in turns:
            self._guests.close_doomed(turn.task)
            self._let_go_if_quiet(turn.task)
            self._wake_up(turn.task)
        self._bound_memory()

    def _took(self, turns: Sequence[Turn], what: Literal["fetch_s", "commit_s"], began: float) -> None:
        """Each of the turns' tasks has waited for it since `began`."""
        took_s = self._clock.monotonic() - began
        for turn in turns:
            if (figures := turn.task.figures) is not None:
                setattr(figures, what, getattr(figures, what) + took_s)

    async def _rest(self) -> None:
        """Until something changes or somebody's pause is over."""
        # Whoever is awake and had no turn is waiting; its pause may have ended since turns were given out.
        now = self._clock.monotonic()
        ends = [] if self._draining else [task.wait_until for task in self._awake]
        if not self._draining:
            ends += [
                peer._began_at + PATIENCE_S for peer in self.peers if peer._began_at is not None and peer._may_go(now)
            ]
        await pause(self._stir, max(0.0, min(ends) - now) if ends else None)

    def _wake_up(self, task: RunningTask) -> None:
        """Consider the task when turns are given out."""
        if not task.dropped and task.lease.task_id in self.tasks:
            self._awake.add(task)
            if self._began_at is not None:
                self._stir_peers()
        self._stir.set()

    def _stir_peers(self) -> None:
        """Have idle lanes look at what waits here."""
        for peer in self.peers:
            peer._stir.set()

    # ---- tasks that go ----

    def _hold_off(self, task: RunningTask) -> None:
        task.hold_off(self._clock.monotonic(), backoff_s(task.failures, self._random))

    def _lost(self, task: RunningTask) -> None:
        self.drop(task.lease.task_id)
        self._on_lost(task.lease.task_id)

    def _take_halts(self) -> list[tuple[RunningTask, Halt]]:
        halts, self._halts = self._halts, []
        return halts

    async def _halt(self, task: RunningTask, halt: Halt) -> None:
        if task.dropped:
            return
        try:
            async with self._reads.use() as db:
                lease = task.lease
                await db.execute("select jeet_internal.halt_task($1, $2, $3)", lease.task_id, lease.epoch, halt.reason)
        except RetryLater:
            task.wait_until = 0.0  # it runs into the same event again
            self._hold_off(task)
            self._wake_up(task)
            return
        log.error("task halted", **task.lease.fields, reason=halt.reason)
        self._lost(task)

    def _let_go_if_quiet(self, task: RunningTask) -> None:
        if task.gone is not None and self._is_quiet(task):
            self.tasks.pop(task.lease.task_id, None)
            task.doom()
            self._forget(task)

    def _forget(self, task: RunningTask) -> None:
        self._awake.discard(task)
        self._wake.forget(task.lease.task_id)
        self._guests.close_doomed(task)
        if task.gone is not None and not task.gone.done():
            task.gone.set_result(None)

    # ---- instances ----

    def _bound_memory(self) -> None:
        """Drop idle instances, least lately used first, while all of the worker's together are too large."""
        held = [(task, lane) for lane in (self, *self.peers) for task in lane.tasks.values() if task.instance]
        excess = sum(task.memory_bytes for task, _ in held) - self._settings.memory_bytes
        if excess <= 0:
            return
        for task, lane in sorted(held, key=lambda pair: pair[0].last_turn):
            if lane._is_quiet(task):
                excess -= task.memory_bytes
                task.doom()
                lane._guests.close_doomed(task)
                if excess <= 0:
                    return

    async def _close(self) -> None:
        if self._writing is not None:
            # Cancelled: the connection is cut first, so that whether the commit happened is for the next owner to read.
            self._writer.terminate()
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        for task in self.tasks.values():
            task.doom()
            self._guests.close_doomed(task)
            if task.gone is not None and not task.gone.done():
                task.gone.set_result(None)
        self.tasks.clear()
        self._writer.terminate()
        self._reads.terminate()
        self._guests.end()
