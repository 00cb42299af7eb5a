"""What lies between a process and the server: messages that take their time, ways that are cut, connections that break.

A Connection answers as asyncpg's does, as far as control and task use it. Messages of one connection keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from control.simulation.postgres import LISTEN, Answer, Postgres, Session
from control.simulation.schedule import ACTOR, Actor, Loop

if TYPE_CHECKING:
    from control.simulation.cluster import Process

_SERVER_NOTICES_S = 11.0
"""keepalives: idle 5 s, then three probes 2 s apart (jeet.db.connect.SESSION)"""


class Link:
    """The way between one process and the server."""

    def __init__(self, loop: Loop, latency_s: float) -> None:
        self._loop = loop
        self._latency_s = latency_s
        self.healed_at_s = 0.0
        """messages sent before then arrive after then"""

    def arrival_s(self, after_s: float) -> float:
        """When a message that is sent now arrives, not before `after_s`."""
        random = self._loop.random
        latency_s = self._latency_s * (0.5 + random.random())
        if random.random() < 0.02:
            latency_s *= 20
        return max(after_s, self._loop.time() + latency_s, self.healed_at_s + latency_s)


class Connection:
    """One client's session, seen from the client."""

    def __init__(self, process: Process, server: Postgres, statement_s: float | None) -> None:
        self.process = process
        self.session: Session | None = None
        self._server = server
        self._loop = server.loop
        self._actor: Actor = ACTOR.get()
        self._statement_s = statement_s
        self._closed = False
        self._lost: Exception | None = None
        self._pending: asyncio.Future[Answer] | None = None
        self._cancelling: asyncio.Future[None] | None = None
        self._to_server_s = 0.0
        self._to_client_s = 0.0
        self._listener: Callable[[object, int, str, object], None] | None = None

    # ---- what callers see ----

    async def fetch(self, text: str, *values: Any) -> Answer:
        if self._cancelling is not None:
            await self._cancelling
        if self._closed:
            raise asyncpg.InterfaceError("connection is closed")
        if self._pending is not None:
            raise asyncpg.InterfaceError("cannot perform operation: another operation is in progress")
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._pending = future
        self._send(self._run, text, values, future)
        try:
            if self._statement_s is None:
                return await future
            async with asyncio.timeout(self._statement_s):
                return await future
        except asyncio.CancelledError:
            if not self._closed:
                self._cancelling = self._loop.create_future()
                self._send(self._cancel)
            raise
        finally:
            self._pending = None

    async def fetchrow(self, text: str, *values: Any) -> dict[str, Any] | None:
        answer = await self.fetch(text, *values)
        return answer[0] if answer else None

    async def fetchval(self, text: str, *values: Any) -> Any:
        row = await self.fetchrow(text, *values)
        return None if row is None else next(iter(row.values()))

    async def execute(self, text: str, *values: Any) -> None:
        await self.fetch(text, *values)

    async def add_listener(self, _channel: str, listener: Callable[[object, int, str, object], None]) -> None:
        self._listener = listener
        await self.fetch(LISTEN)

    def get_server_pid(self) -> int:
        assert self.session is not None
        return self.session.pid

    def is_closed(self) -> bool:
        return self._closed

    def terminate(self) -> None:
        if not self._closed:
            self._send(self._hung_up)
            self._close(asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"))

    # ---- on the way ----

    def open(self, application: str, lock_timeout_s: float) -> asyncio.Future[Answer]:
        """The first message; the future is done when the server has answered."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._pending = future
        self._send(self._opened, application, lock_timeout_s, future)
        return future

    def breaks(self) -> None:
        """A reset: both ends find out at once."""
        self._close(ConnectionResetError("connection reset by peer"))
        self._loop.at(self._loop.time(), self._server.actor, self._hung_up)

    def dies(self, after_s: float) -> None:
        """Its process is gone: the kernel closes the socket, which the server hears of when the way is open."""
        self._closed = True
        when_s = max(self._loop.time() + after_s, self.process.link.healed_at_s)
        self._loop.at(min(when_s, self._loop.time() + _SERVER_NOTICES_S), self._server.actor, self._hung_up)

    def ended_by_server(self) -> None:
        if not self._closed:
            self._back(self._close, asyncpg.AdminShutdownError("terminating connection due to administrator command"))

    def notified(self, payload: str) -> None:
        if not self._closed:
            self._back(self._hear, payload)

    def _send(self, callback: Callable[..., None], *values: Any) -> None:
        self._to_server_s = self.process.link.arrival_s(self._to_server_s)
        self._loop.at(self._to_server_s, self._server.actor, callback, *values)

    def _back(self, callback: Callable[..., None], *values: Any) -> None:
        self._to_client_s = self.process.link.arrival_s(self._to_client_s)
        self._loop.at(self._to_client_s, self._actor, callback, *values)

    # ---- at the server ----

    def _opened(self, application: str, lock_timeout_s: float, future: asyncio.Future[Answer]) -> None:
        try:
            self.session = self._server.connect(self, application, lock_timeout_s)
        except OSError as error:
            self._back(self._settle, future, error)
        else:
            if self._closed:
                self._hung_up()
            self._back(self._settle, future, [])

    def _run(self, text: str, values: tuple[Any, ...], future: asyncio.Future[Answer]) -> None:
        if self.session is not None:
            self._server.execute(
                self.session, text, values, lambda answer: self._back(self._settle, future, answer) and None
            )

    def _cancel(self) -> None:
        if self.session is not None:
            self._server.cancel(self.session)
        self._back(self._cancelled)

    def _hung_up(self) -> None:
        if self.session is not None:
            self._server.end(self.session)

    # ---- back at the client ----

    def _settle(self, future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _cancelled(self) -> None:
        if self._cancelling is not None and not self._cancelling.done():
            self._cancelling.set_result(None)
        self._cancelling = None

    def _hear(self, payload: str) -> None:
        if self._listener is not None and not self._closed:
            self._listener(self, 0, "jeet_control", payload)

    def _close(self, error: Exception) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(ValueError):
            self.process.connections.remove(self)
        if self._pending is not None:
            self._settle(self._pending, error)
        self._cancelled()


async def connect(process: Process, application: str, *, timeout_s: float, **more: Any) -> Connection:
    """As jeet.db.connect.connect does it, to the simulated server."""
    connection = Connection(process, process.server, more.get("statement_s"))
    process.connections.append(connection)
    try:
        async with asyncio.timeout(timeout_s):
            await connection.open(application, more.get("lock_timeout_s", 1e9))
    except BaseException:
        connection.terminate()
        raise
    connection._pending = None
    return connection
