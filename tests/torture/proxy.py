"""A way to Postgres that a test can spoil: freeze, cut, one way only, late, slow, in tiny pieces, refused.

What was sent is never lost, as in TCP: a direction that is stopped holds its bytes back until it goes on, or until the
connection is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, urlsplit, urlunsplit

TO_SERVER, TO_CLIENT = "to server", "to client"
_SERVER_SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Listens on TCP and forwards to the server's unix socket, in a thread of its own."""

    def __init__(self, database_url: str, host: str = "127.0.0.1") -> None:
        parts = urlsplit(database_url)
        self._server = Path(parse_qs(parts.query)["host"][0]) / _SERVER_SOCKET
        self._host = host
        with socket.socket() as probe:
            probe.bind((host, 0))
            self._port = int(probe.getsockname()[1])
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}{host}:{self._port}", query=""))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listener: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._flows = {TO_SERVER: asyncio.Event(), TO_CLIENT: asyncio.Event()}
        self._latency_s = 0.0
        self._bytes_per_s = 0
        self._piece = 65536

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._do(self._listen())
        self.heal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    # ---- what can be done to it ----

    def freeze(self, *directions: str) -> None:
        """Pass nothing on, in these directions or in both."""
        for direction in directions or self._flows:
            self._loop.call_soon_threadsafe(self._flows[direction].clear)

    def thaw(self) -> None:
        """Pass on what was held back, and go on."""
        for flow in self._flows.values():
            self._loop.call_soon_threadsafe(flow.set)

    def slow(self, *, latency_s: float = 0.0, bytes_per_s: int = 0, piece: int = 65536) -> None:
        """Delay each piece, bound the rate (0: as fast as can be), and cut what passes into pieces."""
        self._latency_s, self._bytes_per_s, self._piece = latency_s, bytes_per_s, piece

    def cut(self) -> None:
        """Reset all connections."""
        self._do(self._cut())

    def refuse(self) -> None:
        """Reset all connections and take no new ones."""
        self._do(self._refuse())

    def heal(self) -> None:
        """Be an ordinary network again."""
        self.slow()
        self.thaw()
        if self._listener is None:
            self._do(self._listen())

    # ---- in its thread ----

    def _do(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, self._host, self._port)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _stop(self) -> None:
        await self._refuse()

    async def _cut(self) -> None:
        links, self._links = self._links, set()
        for link in links:
            link.reset()
        await asyncio.gather(*(pipe for link in links for pipe in link.pipes), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._server)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, back)
        self._links.add(link)
        for source, sink, direction in ((reader, back, TO_SERVER), (there, writer, TO_CLIENT)):
            link.pipes.append(asyncio.create_task(self._forward(source, sink, direction)))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await source.read(65536):
                for start in range(0, len(data), self._piece):
                    piece = data[start : start + self._piece]
                    if self._latency_s:
                        await asyncio.sleep(self._latency_s)
                    if self._bytes_per_s:
                        await asyncio.sleep(len(piece) / self._bytes_per_s)
                    await self._flows[direction].wait()
                    sink.write(piece)
                    await sink.drain()
        sink.close()


class _Link:
    """The two halves of one connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client, self._server = client, server
        self.pipes: list[asyncio.Task[None]] = []

    def reset(self) -> None:
        for pipe in self.pipes:
            pipe.cancel()
        client = self._client.get_extra_info("socket")
        with contextlib.suppress(OSError):
            # Closing with a linger of zero sends RST.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client.transport.abort()
        self._server.transport.abort()
