"""A worker's membership: one row, one liveness lock, one direct connection, one thread that nothing else can delay.

Promise: while the liveness lock is held, this incarnation lives; every task lock it holds sits on the same connection
and goes with it. Heartbeats come from a thread of their own, so neither a busy guest nor a busy event loop can hold
one back.
On failure (connection lost, heartbeat unanswered past the timeout, row declared lost): `on_lost` is called once, with
a StopWorker, and every request from then on fails with it. The locks are gone by then; the epochs guard what is still
under way. A worker goes on under a new incarnation, which is a new Membership.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from uuid import UUID

import psycopg

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.control.pulse import Pulse
from jeet.db.connect import SESSION, hang_up
from jeet.db.keys import TASK_CLASS, WORKER_CLASS
from jeet.db.pooler import is_direct
from jeet.db.sql import query
from jeet.errors import StopWorker, UsageError
from jeet.ids import TaskId, WorkerId
from jeet.telemetry import logger

log = logger(__name__)

_POOLER = (
    "JEET_DATABASE_URL leads through a connection pooler in transaction mode, which cannot keep a worker's locks;"
    " nothing was started. Give workers the address of Postgres itself, or of a pooler in session mode."
)


@dataclass(frozen=True)
class Identity:
    """How a worker presents itself."""

    process: UUID
    """the same for all incarnations of one process"""
    host: str
    pid: int
    version: str
    plugin_hash: str | None


@dataclass(frozen=True)
class Joined:
    worker_id: WorkerId
    backend_pid: int


_Request = tuple[Callable[[psycopg.Connection], object], "Future[object]"]


class Membership:
    """Joins on `start`, beats until `leave` or until it is lost. Its methods are for the main event loop."""

    def __init__(
        self,
        database_url: str,
        identity: Identity,
        *,
        heartbeat_s: float,
        timeout_s: float,
        on_control: Callable[[str], None],
        on_lost: Callable[[StopWorker], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._url = database_url
        self._identity = identity
        self._timeout_s = timeout_s
        self._on_control = on_control
        self._on_lost = on_lost
        self._clock = clock
        self._pulse = Pulse(clock, heartbeat_s, timeout_s)
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        self._bell, self._bell_push = socket.socketpair()
        self._bell.setblocking(False)
        self._bell_push.setblocking(False)
        self._joined: Future[Joined] = Future()
        self._left = False
        self._draining = False
        self._lock = threading.Lock()
        self._db: psycopg.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    async def start(self) -> Joined:
        """Join; raises what connecting raises, or UsageError behind a pooler that cannot keep locks."""
        self._thread.start()
        return await asyncio.wrap_future(self._joined)

    async def lock(self, tasks: Sequence[TaskId]) -> set[TaskId]:
        """Take the locks of tasks; give those that were free. Ask only for tasks whose lock is not held yet."""
        rows = await self._ask(
            lambda db: db.execute(query("lock_tasks"), {"tasks": list(tasks), "task_class": TASK_CLASS}).fetchall()
        )
        return {TaskId(row[0]) for row in rows}  # type: ignore[attr-defined]

    async def unlock(self, tasks: Sequence[TaskId]) -> None:
        """Let go of tasks whose release is committed, and tell who waits for them."""
        await self._ask(
            lambda db: db.execute(query("unlock_tasks"), {"tasks": list(tasks), "task_class": TASK_CLASS}).fetchall()
        )

    async def drain(self) -> None:
        """Say that this worker takes no more tasks."""
        self._draining = True
        await self._ask(self._beat)

    async def leave(self) -> None:
        """Go in good order: the row vanishes, then the connection and its locks."""
        self._left = True
        with contextlib.suppress(StopWorker):
            await self._ask(
                lambda db: db.execute(
                    "delete from jeet_internal.worker where id = %s", (self._joined.result().worker_id,)
                )
            )
        await self.abandon("left")

    async def abandon(self, reason: str) -> None:
        """Drop the connection whatever it is doing, and wait until the thread has ended."""
        self._left = True
        self._give_up(StopWorker(reason))
        while self._thread.is_alive():
            self._hang_up()
            await asyncio.sleep(0.002)

    def check(self) -> None:
        """Called from the main loop now and then: gives up when no heartbeat was answered within the timeout."""
        if (error := self._pulse.overdue()) is not None:
            self._give_up(error)
            self._hang_up()

    async def _ask(self, work: Callable[[psycopg.Connection], object]) -> object:
        future: Future[object] = Future()
        with self._lock:
            if self._pulse.lost is not None:
                raise self._pulse.lost
            self._requests.put((work, future))
        self._ring()
        return await asyncio.wrap_future(future)

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it rings already; closed: nobody listens any more
            self._bell_push.send(b"\0")

    def _hang_up(self) -> None:
        """Wake the thread even from a read that will never be answered."""
        self._ring()
        if self._db is not None:
            hang_up(self._db)

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            with contextlib.closing(_connect(self._url, self._timeout_s)) as db:
                self._db = db
                self._joined.set_result(self._join(db))
                self._serve(db)
        except (psycopg.Error, OSError, StopWorker, UsageError) as error:
            if not self._joined.done():
                self._joined.set_exception(error)
            self._give_up(
                error
                if isinstance(error, StopWorker)
                else StopWorker(
                    f"the connection that holds this worker's locks is gone ({error}); the worker joins again"
                )
            )
        finally:
            self._bell.close()
            self._bell_push.close()

    def _join(self, db: psycopg.Connection) -> Joined:
        row = db.execute(
            query("register_worker"),
            {
                "process": self._identity.process,
                "host": self._identity.host,
                "pid": self._identity.pid,
                "version": self._identity.version,
                "plugin_hash": self._identity.plugin_hash,
                "worker_class": WORKER_CLASS,
            },
        ).fetchone()
        assert row is not None
        self._pulse.joined()
        db.add_notify_handler(lambda notify: self._on_control(notify.payload))
        db.execute("listen jeet_control")
        return Joined(WorkerId(row[0]), row[1])

    def _serve(self, db: psycopg.Connection) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(db.fileno(), selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while self._pulse.lost is None:
                if self._pulse.due_in_s() == 0:
                    self._beat(db)
                selector.select(self._pulse.due_in_s())
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(4096)
                db.pgconn.consume_input()
                while notify := db.pgconn.notifies():
                    self._on_control(notify.extra.decode())
                while not self._requests.empty():
                    self._answer(db, *self._requests.get())
        raise self._pulse.lost

    def _answer(
        self, db: psycopg.Connection, work: Callable[[psycopg.Connection], object], future: Future[object]
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work(db))
        except (psycopg.Error, StopWorker) as error:
            stop = error if isinstance(error, StopWorker) else StopWorker(f"the lease connection failed: {error}")
            future.set_exception(stop)
            raise stop from error

    def _beat(self, db: psycopg.Connection) -> None:
        sent_at_s = self._clock.monotonic()
        values = {
            "worker": self._joined.result().worker_id if self._joined.done() else None,
            "draining": self._draining,
        }
        row = db.execute(query("heartbeat"), values).fetchone()
        self._pulse.answered(sent_at_s, known=row is not None)

    def _give_up(self, error: StopWorker) -> None:
        with self._lock:
            if not self._pulse.give_up(error):
                return
            waiting = []
            while not self._requests.empty():
                waiting.append(self._requests.get()[1])
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        if not self._left:
            self._on_lost(error)


def _connect(database_url: str, timeout_s: float) -> psycopg.Connection:
    """A direct, autocommitting connection that no idle timeout ends and whose dead peer is noticed."""
    try:
        db = _open(database_url, timeout_s)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" in str(error):
            raise UsageError(_POOLER) from error
        raise
    try:
        with contextlib.closing(_open(database_url, timeout_s)) as other:
            if not is_direct(db, other):
                raise UsageError(_POOLER)
        for name, value in SESSION.items():
            db.execute("select set_config(%s, %s, false)", (name, value))
        # A statement of ours that waits does not notice a client that vanished; the server looks for itself.
        db.execute("select set_config('client_connection_check_interval', '1000', false)")
        db.execute("select set_config('statement_timeout', %s, false)", (str(int(timeout_s * 1000)),))
    except BaseException:
        db.close()
        raise
    return db


def _open(database_url: str, timeout_s: float) -> psycopg.Connection:
    return psycopg.connect(
        database_url,
        autocommit=True,
        application_name="jeet-worker lease",
        connect_timeout=10,
        keepalives=1,
        keepalives_idle=1,
        keepalives_interval=1,
        keepalives_count=3,
        tcp_user_timeout=int(timeout_s * 1000),
        prepare_threshold=None,
    )
