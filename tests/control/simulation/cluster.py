"""Processes of Jeet as the simulation runs them: the real coordinator, leader election, worker, task loop and lease.

Replaced are only their edges: the way to Postgres (network.py, postgres.py), the thread that holds a membership (the
decisions in it, `Pulse`, are the real ones) and what runs events: a lane here commits batches that nobody computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import asyncpg
import psycopg

from control.simulation.network import Connection, Link, connect
from control.simulation.postgres import COMMIT, LEAVE, LeaseLost, Postgres
from control.simulation.schedule import ACTOR, Actor, Loop
from jeet.clock import Clock
from jeet.control.membership import Identity, Joined
from jeet.control.pulse import Pulse
from jeet.coordinator import again_and_again, coordinate
from jeet.db.keys import TASK_CLASS, WORKER_CLASS
from jeet.db.sql import query
from jeet.errors import RetryLater, StopWorker
from jeet.ids import FunctionId, TaskId, WorkerId
from jeet.plan import WHOLE
from jeet.settings import Settings
from jeet.task.data import DataConnection
from jeet.task.pause import pause
from jeet.task.running import RunningTask
from jeet.worker import Worker

SETTINGS = Settings(lanes=1, detect_s=0.2, figures="off")
BATCH_S = 0.25
"""a task makes a batch about this often"""


class Process:
    """What can crash, freeze and be cut off as one."""

    def __init__(self, name: str, loop: Loop, server: Postgres, latency_s: float) -> None:
        self.name = name
        self.loop = loop
        self.server = server
        self.link = Link(loop, latency_s)
        self.connections: list[Connection] = []
        self.main = loop.actor(f"{name} main", self)
        self.actors = [self.main]
        self.alive = True
        self.gone = False
        """frozen or cut off for ever, or on its way out: not to be counted on"""
        self.random = Random(loop.random.random())
        # No two machines agree about how long a second is.
        pace, origin_s = 1.0 + 0.002 * (self.random.random() - 0.5), 1000 * self.random.random()
        self.clock = Clock(monotonic=lambda: origin_s + loop.time() * pace)

    def thread(self, name: str) -> Actor:
        actor = self.loop.actor(f"{self.name} {name}", self)
        self.actors.append(actor)
        return actor

    def freeze(self, seconds: float) -> None:
        for actor in self.actors:
            self.loop.freeze(actor, seconds)

    def crash(self) -> None:
        if not self.alive:
            return
        self.alive = False
        for actor in self.actors:
            self.loop.bury(actor)
        for connection in self.connections:
            connection.dies(self.loop.random.random() * 0.05)
        self.connections.clear()


class CoordinatorProcess(Process):
    def __init__(self, name: str, loop: Loop, server: Postgres, latency_s: float) -> None:
        super().__init__(name, loop, server, latency_s)
        self._stop = asyncio.Event()
        loop.start(self.main, self._run())

    async def _run(self) -> None:
        async def work(settings: Settings, url: str, stop: asyncio.Event) -> None:
            await coordinate(settings, url, stop, self.clock)

        await again_and_again("coordination", work, SETTINGS, "simulated", self._stop, self.clock)
        self.crash()

    def stop(self) -> None:
        self._stop.set()


class WorkerProcess(Process):
    def __init__(self, name: str, loop: Loop, server: Postgres, latency_s: float) -> None:
        super().__init__(name, loop, server, latency_s)
        self.membership = self.thread("membership")
        self._worker = Worker(SETTINGS, "simulated", self.clock, self.random)
        loop.start(self.main, self._run())

    async def _run(self) -> None:
        await self._worker.live(SimpleNamespace(hash="plugin"))  # type: ignore[arg-type]
        self.crash()

    def stop(self) -> None:
        self._worker.stop()


class SimulatedMembership:
    """jeet.control.membership.Membership without its thread and socket, in an actor of its own."""

    def __init__(
        self,
        _database_url: str,
        identity: Identity,
        *,
        heartbeat_s: float,
        timeout_s: float,
        on_control: Callable[[str], None],
        on_lost: Callable[[StopWorker], None],
        clock: Clock,
    ) -> None:
        process = ACTOR.get().process
        self._process: WorkerProcess = process
        self._identity = identity
        self._timeout_s = timeout_s
        self._on_control = on_control
        self._on_lost = on_lost
        self._clock = clock
        self._pulse = Pulse(clock, heartbeat_s, timeout_s)
        self._bell = asyncio.Event()
        self._requests: list[tuple[Callable[[Connection], Any], asyncio.Future[Any]]] = []
        self._joined: asyncio.Future[Joined] = process.loop.create_future()
        self._db: Connection | None = None
        self._worker_id: int | None = None
        self._left = self._draining = False

    async def start(self) -> Joined:
        loop = self._process.loop
        self._thread = loop.start(self._process.membership, self._run())
        return await asyncio.shield(self._joined)

    async def lock(self, tasks: list[TaskId]) -> set[TaskId]:
        values = {"tasks": list(tasks), "task_class": TASK_CLASS}
        return {row["id"] for row in await self._ask(lambda db: db.fetch(query("lock_tasks"), values))}

    async def unlock(self, tasks: list[TaskId]) -> None:
        values = {"tasks": list(tasks), "task_class": TASK_CLASS}
        await self._ask(lambda db: db.fetch(query("unlock_tasks"), values))

    async def drain(self) -> None:
        self._draining = True
        await self._ask(self._beat)

    async def leave(self) -> None:
        self._left = True
        with suppress(StopWorker):
            await self._ask(lambda db: db.fetch(LEAVE, self._worker_id))
        await self.abandon("left")

    async def abandon(self, reason: str) -> None:
        self._left = True
        self._give_up(StopWorker(reason))
        self._hang_up()

    def check(self) -> None:
        if (error := self._pulse.overdue()) is not None:
            self._give_up(error)
            self._hang_up()

    async def _ask(self, work: Callable[[Connection], Any]) -> Any:
        if self._pulse.lost is not None:
            raise self._pulse.lost
        future = self._process.loop.create_future()
        self._requests.append((work, future))
        self._bell.set()
        return await future

    def _hang_up(self) -> None:
        self._bell.set()
        if self._db is not None:
            self._db.terminate()

    async def _run(self) -> None:
        try:
            self._db = db = await connect(self._process, "jeet-worker lease", timeout_s=10.0)
            await self._join(db)
            await self._serve(db)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, StopWorker) as error:
            stop = error if isinstance(error, StopWorker) else StopWorker(f"the lease connection is gone: {error}")
            if not self._joined.done():
                self._joined.set_exception(psycopg.OperationalError(str(error)))
                self._joined.exception()
            self._give_up(stop)
        finally:
            if self._db is not None:
                self._db.terminate()

    async def _join(self, db: Connection) -> None:
        identity = self._identity
        (row,) = await db.fetch(
            query("register_worker"),
            {
                "process": self._process.name,
                "host": identity.host,
                "pid": identity.pid,
                "version": identity.version,
                "plugin_hash": identity.plugin_hash,
                "worker_class": WORKER_CLASS,
            },
        )
        self._worker_id = row["id"]
        self._pulse.joined()
        await db.add_listener("jeet_control", lambda _db, _pid, _channel, payload: self._on_control(str(payload)))
        if not self._joined.done():
            self._joined.set_result(Joined(WorkerId(row["id"]), row["pg_backend_pid"]))

    async def _serve(self, db: Connection) -> None:
        while self._pulse.lost is None:
            if self._pulse.due_in_s() == 0:
                await self._beat(db)
            if not self._requests:
                await pause(self._bell, self._pulse.due_in_s())
            self._bell.clear()
            while self._requests:
                work, future = self._requests.pop(0)
                try:
                    result = await work(db)
                except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, StopWorker) as error:
                    stop = (
                        error if isinstance(error, StopWorker) else StopWorker(f"the lease connection failed: {error}")
                    )
                    if not future.done():
                        future.set_exception(stop)
                    raise stop from error
                if not future.done():
                    future.set_result(result)
        raise self._pulse.lost

    async def _beat(self, db: Connection) -> None:
        sent_at_s = self._clock.monotonic()
        row = await db.fetchrow(query("heartbeat"), {"worker": self._worker_id, "draining": self._draining})
        self._pulse.answered(sent_at_s, known=row is not None)

    def _give_up(self, error: StopWorker) -> None:
        if not self._pulse.give_up(error):
            return
        waiting, self._requests = self._requests, []
        for _work, future in waiting:
            if not future.done():
                future.set_exception(error)
        if not self._left:
            self._on_lost(error)


class SimulatedLane:
    """Commits a batch of each of its tasks now and then, with no event and no guest in it."""

    def __init__(
        self, name: str, settings: Any, _wake: Any, on_lost: Callable[[TaskId], None], *, clock: Clock, random: Random
    ) -> None:
        self.name = name
        self.state = None
        self.tasks: dict[TaskId, RunningTask] = {}
        self.peers: list[SimulatedLane] = []
        self._busy: TaskId | None = None
        self._on_lost = on_lost
        self._random = random
        self._draining = False
        self._stir = asyncio.Event()
        self._quiet = asyncio.Condition()
        self._db = DataConnection("simulated", f"jeet-worker commit {name}", {"lock_timeout": "5000"}, 35.0)

    def add(self, task: RunningTask) -> None:
        self.tasks[task.lease.task_id] = task
        self._stir.set()

    def load(self, _function: FunctionId) -> tuple[int, int]:
        return len(self.tasks), len(self.tasks)

    def notice(self, task_id: TaskId, *, has_inbox: bool, sink_full: bool) -> None:
        pass

    async def remove(self, task_id: TaskId) -> None:
        self.tasks.pop(task_id, None)
        async with self._quiet:
            await self._quiet.wait_for(lambda: self._busy != task_id)

    def drop(self, task_id: TaskId) -> None:
        self.tasks.pop(task_id, None)

    def drain(self) -> None:
        self._draining = True
        self._stir.set()

    async def run(self) -> None:
        try:
            while not self._draining:
                if not self.tasks:
                    self._stir.clear()
                    await self._stir.wait()
                    continue
                task_id = sorted(self.tasks)[int(self._random.random() * len(self.tasks))]
                task = self.tasks[task_id]
                await asyncio.sleep(2 * BATCH_S * self._random.random() / len(self.tasks))
                self._busy = task_id
                await self._commit(task_id, task)
                async with self._quiet:
                    self._busy = None
                    self._quiet.notify_all()
        finally:
            self._db.terminate()

    async def _commit(self, task_id: TaskId, task: RunningTask) -> None:
        cursor = task.cursors[0]
        end = cursor.committed + 1 + int(3 * self._random.random())
        slow_s = 0.5 * self._random.random() if self._random.random() < 0.02 else 0.002
        lost = False
        try:
            async with self._db.use() as db:
                try:
                    await db.execute(COMMIT, task_id, task.lease.epoch, cursor.committed, end, slow_s)
                except LeaseLost:
                    lost = True
        except RetryLater:
            lost = True
        if not lost:
            cursor.committed = cursor.read = end  # type: ignore[assignment]
            task.on_commit()
        elif self.tasks.get(task_id) is task:
            del self.tasks[task_id]
            self._on_lost(task_id)


class _NoWake:
    def __init__(self, *_values: object) -> None:
        pass

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


class _AnyProgram:
    def __init__(self, *_values: object) -> None:
        pass

    async def load(self, _db: object, _lease: object) -> SimpleNamespace:
        return SimpleNamespace(state={}, plan=WHOLE, makers={})


async def _connect(
    _url: str, application: str, settings: dict[str, str], *, timeout_s: float = 10.0, statement_s: float | None = None
) -> Connection:
    lock_timeout = settings.get("lock_timeout", "0")
    lock_timeout_s = float(lock_timeout.removesuffix("ms")) / 1000 or 1e9
    return await connect(
        ACTOR.get().process, application, timeout_s=timeout_s, statement_s=statement_s, lock_timeout_s=lock_timeout_s
    )


def _end_process(_error: StopWorker) -> None:
    ACTOR.get().process.crash()


@contextmanager
def replaced_edges() -> Iterator[None]:
    """While it lasts, workers and coordinators that are made here live in the simulation."""
    with (
        patch("jeet.worker.Membership", SimulatedMembership),
        patch("jeet.worker.Lane", SimulatedLane),
        patch("jeet.worker.Wake", _NoWake),
        patch("jeet.worker.Programs", _AnyProgram),
        patch("jeet.worker.Worker._check_schema", lambda _self: None),
        patch("jeet.worker._end_process", _end_process),
        patch("jeet.coordinator._check_schema", lambda _url: None),
        patch("jeet.task.data.connect", _connect),
        patch("jeet.control.leadership.connect", _connect),
    ):
        yield
