"""A way to Postgres that a test can cut: forwards connections of a unix socket until it is told to freeze."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit


class Proxy:
    """Forwards in a thread of its own. Frozen, it takes what is sent and passes nothing on."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        self._server = Path(parse_qs(parts.query)["host"][0])
        self._folder = Path(tempfile.mkdtemp(prefix="jeet-proxy-"))
        self.url = urlunsplit(parts._replace(query=urlencode({"host": str(self._folder)})))
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def freeze(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def thaw(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, self._folder / ".s.PGSQL.5432")

    async def _stop(self) -> None:
        self._listener.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._server / ".s.PGSQL.5432")
        for source, sink in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(self._forward(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
