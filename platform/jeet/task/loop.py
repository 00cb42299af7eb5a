"""Keeps what a worker runs equal to what it is assigned: takes leases, hands tasks to lanes, gives them back.

Promise: a task is in a lane only while its advisory lock is held and its epoch is ours as far as we know; the commit's
fence has the last word. A look at the database each heartbeat is the truth, a notification only makes it come sooner.
On failure of a look nothing is given up: running tasks go on without the database's control tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from jeet.clock import Clock
from jeet.control.lease import Lease, Owner, acquire, release
from jeet.db.sql import query
from jeet.errors import DeployError, PluginError, RetryLater, SandboxError, StopTask, UsageError
from jeet.ids import Epoch, Offset, StreamId, TaskId
from jeet.observe.figures import Figures, TaskName
from jeet.task.begin import cursors_of, time_of
from jeet.task.data import DataConnection
from jeet.task.lane import Lane
from jeet.task.pause import pause
from jeet.task.program import OtherPlugin, Program, Programs
from jeet.task.retry import CRASH_PIECE, backoff_s
from jeet.task.running import TIMERS, RunningTask
from jeet.task.state import TaskState
from jeet.telemetry import logger

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    from jeet.control.membership import Membership

log = logger(__name__)

_LOCK_RETRY_S = 0.05
"""how soon a task whose lock somebody still holds is tried again"""
_REFUSAL_S = 1.0
"""how soon a task is looked at again that only other workers can run"""
FIRST_BATCH = 500


@dataclass
class _Held:
    """A task whose advisory lock this worker holds."""

    running: bool = False
    """in one of the lanes; else to be taken, or being given back"""
    epoch: Epoch | None = None
    leaving: asyncio.Task[None] | None = None
    losses: int = 0
    """times in a row that its commits failed the fence or ended in doubt"""
    not_before: float = 0.0


@dataclass(frozen=True)
class LoopSettings:
    """The few values that the loop needs."""

    database_url: str
    heartbeat_s: float
    batch_events: int
    stage_lag: int
    """events that may lie between two stages of a function"""


class TaskLoop:
    """Runs until cancelled, or until everything is given back after `drain`."""

    def __init__(
        self,
        settings: LoopSettings,
        owner: Owner,
        membership: Membership,
        programs: Programs,
        clock: Clock,
        random: Random,
        figures: Figures | None = None,
    ) -> None:
        self._settings = settings
        self._owner = owner
        self._membership = membership
        self._programs = programs
        self._clock = clock
        self._random = random
        self._figures = figures
        self.lanes: Sequence[Lane] = ()
        self.stir_clocks: Callable[[], None] = lambda: None
        """has the clocks of tasks looked at soon"""
        self._held: dict[TaskId, _Held] = {}
        self._stir = asyncio.Event()
        self._draining = False
        bounded = {"statement_timeout": "10000", "lock_timeout": "10000"}
        self._control = DataConnection(settings.database_url, "jeet-worker control", bounded, 15.0)
        self._helper = DataConnection(settings.database_url, "jeet-worker helper", bounded, 15.0)

    def look_again(self) -> None:
        """Something may have changed: look now."""
        self._stir.set()

    def lost(self, task_id: TaskId) -> None:
        """A lane gave a task up: its epoch moved or its commit is in doubt. It is taken anew if it is still ours."""
        held = self._held.get(task_id)
        if held is not None and held.leaving is None:
            held.running, held.epoch = False, None
            held.losses += 1
            if held.losses > 1:
                held.not_before = self._clock.monotonic() + backoff_s(held.losses, self._random)
        self._stir.set()

    def drain(self) -> None:
        """Give all tasks back, each after the batch it is at, and end `run`."""
        self._draining = True
        self._stir.set()

    async def run(self) -> None:
        """Look, act, wait."""
        try:
            while not (self._draining and not self._held):
                self._stir.clear()
                try:
                    async with self._control.use() as db:
                        waiting = await self._reconcile(db)
                    pause_s = _LOCK_RETRY_S if waiting else self._settings.heartbeat_s
                except RetryLater:
                    pause_s = backoff_s(3, self._random)
                await pause(self._stir, pause_s)
        finally:
            leaving = [held.leaving for held in self._held.values() if held.leaving is not None]
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            self._control.terminate()
            self._helper.terminate()

    async def _reconcile(self, db: Connection) -> bool:
        """One look, and what follows from it; whether some task is still waited for."""
        rows: dict[TaskId, Record] = {}
        if not self._draining:
            mine = await db.fetch(query("my_tasks"), self._owner.worker_id, self._settings.stage_lag)
            rows = {TaskId(row["task_id"]): row for row in mine}
        for task_id, held in self._held.items():
            if task_id not in rows:
                self._begin_leaving(task_id, held)
            elif held.running and held.leaving is None and rows[task_id]["epoch"] != held.epoch:
                # A control change: a deploy, a reset, a pause and back. Nothing that runs now can be committed.
                if (lane := self._lane_of(task_id)) is not None:
                    lane.drop(task_id)
                held.running, held.epoch = False, None
        await self._finish_leaving(db)
        missing = [task_id for task_id in rows if task_id not in self._held]
        for task_id in await self._membership.lock(missing) if missing else ():
            self._held[task_id] = _Held()
        await self._take(db, [task_id for task_id in rows if self._may_take(task_id)])
        for task_id, row in rows.items():
            if (lane := self._lane_of(task_id)) is not None:
                lane.notice(task_id, has_inbox=row["has_inbox"], sink_full=row["sink_full"])
        return any(task_id not in self._held or not self._held[task_id].running for task_id in rows)

    # ---- taking ----

    def _may_take(self, task_id: TaskId) -> bool:
        held = self._held.get(task_id)
        return (
            held is not None
            and not held.running
            and held.leaving is None
            and held.not_before <= self._clock.monotonic()
        )

    async def _take(self, db: Connection, tasks: Sequence[TaskId]) -> None:
        if not tasks:
            return
        async with self._helper.use() as helper:
            leases = await acquire(db, helper, self._owner, tasks)
        suspects = await db.fetch(query("read_suspects"), [lease.task_id for lease in leases])
        for lease in leases:
            recorded = {
                (StreamId(row["stream_id"]), Offset(row["offset"])): int(row["attempts"])
                for row in suspects
                if row["task_id"] == lease.task_id
            }
            try:
                program = await self._programs.load(db, lease)
            except (StopTask, DeployError, PluginError, UsageError) as error:
                if isinstance(error, OtherPlugin) and await db.fetchval(query("plugin_runs"), error.plugin_hash):
                    await self._refuse(db, lease)
                    continue
                await db.execute("select jeet_internal.halt_task($1, $2, $3)", lease.task_id, lease.epoch, str(error))
                log.error("task halted", **lease.fields, reason=str(error))
                continue
            except (RetryLater, SandboxError) as error:
                self._hold_off(lease, error)
                continue
            self._start(lease, program, recorded)

    def _hold_off(self, lease: Lease, error: Exception) -> None:
        """Its program cannot be loaded now. The others go on."""
        held = self._held[lease.task_id]
        held.losses += 1
        held.not_before = self._clock.monotonic() + backoff_s(held.losses, self._random)
        if held.losses == 1:  # one line: what follows says the same until it runs
            log.error("task waits", exc=error, **lease.fields)

    async def _refuse(self, db: Connection, lease: Lease) -> None:
        """Another worker can run the task: it is for the coordinator to move it there."""
        await release(db, self._owner, [lease.task_id])
        self._held[lease.task_id].not_before = self._clock.monotonic() + _REFUSAL_S
        log.info("task left to a worker that has its plugin", **lease.fields)

    def _start(self, lease: Lease, program: Program, recorded: Mapping[tuple[StreamId, Offset], int]) -> None:
        lane = min(self.lanes, key=lambda lane: lane.load(lease.function_id))
        figures = None
        if self._figures is not None:
            name = TaskName(lease.function, lease.stage, lease.partition)
            figures = self._figures.of(lease.task_id, lease.function_id, name, self._clock.monotonic())
        task = RunningTask(
            lease=lease,
            program=program,
            state=TaskState(lane.state, lease.task_id, lease.function_id, lease.ttl_hold_ms, program.state),
            cursors=cursors_of(lease, program.plan, recorded, 2 * self._settings.batch_events),
            most_events=self._settings.batch_events,
            size=min(FIRST_BATCH, self._settings.batch_events),
            time=time_of(lease, program.plan),
            crashed=recorded,
            timers_recorded=lease.crashes > 0,
            timers_size=CRASH_PIECE if lease.crashes > 0 else TIMERS,
            on_commit=partial(self._went_well, lease.task_id),
            stir_clocks=self.stir_clocks,
            figures=figures,
        )
        task.state.figures = figures
        if task.is_careful:
            log.warning(
                "earlier owners died; going on with care",
                **lease.fields,
                crashes=lease.crashes,
                suspects=len(recorded),
            )
        lane.add(task)
        self.stir_clocks()
        held = self._held[lease.task_id]
        held.running, held.epoch = True, lease.epoch

    def _lane_of(self, task_id: TaskId) -> Lane | None:
        """Where the task runs now: lanes hand tasks to one another."""
        return next((lane for lane in self.lanes if task_id in lane.tasks), None)

    def _went_well(self, task_id: TaskId) -> None:
        held = self._held.get(task_id)
        if held is not None:
            held.losses = 0

    # ---- giving back ----

    def _begin_leaving(self, task_id: TaskId, held: _Held) -> None:
        if held.leaving is None:
            held.leaving = asyncio.create_task(self._quiet(task_id), name=f"leaving task {task_id}")

    async def _quiet(self, task_id: TaskId) -> None:
        if (lane := self._lane_of(task_id)) is not None:
            await lane.remove(task_id)
        self._stir.set()

    async def _finish_leaving(self, db: Connection) -> None:
        quiet = [task_id for task_id, held in self._held.items() if held.leaving is not None and held.leaving.done()]
        if quiet:
            await release(db, self._owner, quiet)
            await self._membership.unlock(quiet)
            for task_id in quiet:
                del self._held[task_id]
