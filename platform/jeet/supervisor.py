"""`jeet up`: Postgres, coordinator and workers as children of one process, kept alive and stopped in order.

Promise: a child that ends is started again at once; one that keeps ending, ever more slowly, which is told. SIGTERM or
SIGINT stops workers (they finish and hand over), then the coordinator, then Postgres. However this process ends,
`kill -9` included, the kernel ends its children with it: nothing is left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from jeet.embedded_install import die_with_parent
from jeet.telemetry import logger

log = logger(__name__)

SHORT_LIFE_S = 3.0
"""a child that ended by itself after less is counted as ending too soon"""
FREE_RESTARTS = 3
"""restarts without delay after lives that were short"""
LONGEST_DELAY_S = 10.0
LONGEST_LINE = 64 * 1024


def restart_delay_s(short_lives: int) -> float:
    """How long to wait before a child is started again that has ended too soon so many times in a row."""
    if short_lives <= FREE_RESTARTS:
        return 0.0
    return float(min(LONGEST_DELAY_S, 0.25 * 2 ** (short_lives - FREE_RESTARTS)))


@dataclass(frozen=True)
class ChildSpec:
    """What to run, and how its end is asked for."""

    name: str
    """as its lines are prefixed: `worker-1`"""
    start: Callable[[int], subprocess.Popen[bytes]]
    """starts it with its output going to this file descriptor; must be called in the main thread"""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_wait_s: float = 5.0
    rank: int = 0
    """stopped in rising order; equal ranks together"""


def jeet_process(arguments: Sequence[str], environment: Mapping[str, str]) -> Callable[[int], subprocess.Popen[bytes]]:
    """Starts one `jeet` command as a child that ends with this process."""

    def start(output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "jeet.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            # Ctrl-C in the terminal reaches the supervisor, which stops its children in order.
            start_new_session=True,
            # A crash of the supervisor is a crash of its children: exactly-once does not need their farewell.
            preexec_fn=die_with_parent(signal.SIGKILL),
        )

    return start


class LinePrinter:
    """Prints lines from a thread of its own, so that a terminal that stands still never stops the supervisor."""

    def __init__(self, out: IO[str], *, as_json: bool, names: Sequence[str]) -> None:
        self._out = out
        self._json = as_json
        self._width = max((len(name) for name in names), default=0)
        self._colour = {name: f"\x1b[3{index % 6 + 1}m" for index, name in enumerate(names)} if out.isatty() else {}
        self._lines: queue.Queue[str | None] = queue.Queue(maxsize=10_000)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="printer", daemon=True)
        self._thread.start()

    def line(self, name: str, text: str) -> None:
        """Print one line of a child; dropped, and counted, when nobody reads."""
        try:
            if self._dropped:
                self._lines.put_nowait(self._form("jeet", f"{self._dropped} lines were dropped, as nobody read them"))
                self._dropped = 0
            self._lines.put_nowait(self._form(name, text))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(2.0)

    def _form(self, name: str, text: str) -> str:
        if self._json:
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            fields = event if isinstance(event, dict) else {"message": text}
            return json.dumps({"process": name} | fields)
        colour = self._colour.get(name)
        prefix = f"{name:<{self._width}} |"
        return f"{colour}{prefix}\x1b[0m {text}" if colour else f"{prefix} {text}"

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._out.write(line + "\n")
                if self._lines.empty():
                    self._out.flush()
            except (OSError, ValueError):
                continue  # the reader has gone; the children go on


@dataclass
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    short_lives: int = 0
    reader: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Keeps the children that are added to it alive; leaving the block stops them in order."""

    def __init__(self, printer: LinePrinter) -> None:
        self._children: list[_Child] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._printer = printer
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    async def __aenter__(self) -> Supervisor:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled, number)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stopping.set()
        for rank in sorted({child.spec.rank for child in self._children}):
            await asyncio.gather(*(self._stop(child) for child in self._children if child.spec.rank == rank))
        await asyncio.gather(*self._keepers)

    def add(self, spec: ChildSpec) -> None:
        """Start a child now, and again whenever it ends; raise what its first start raises."""
        child = _Child(spec)
        self._start(child)
        self._children.append(child)
        self._keepers.append(asyncio.create_task(self._keep(child), name=spec.name))

    async def until_told(self) -> None:
        """Return when a signal says that it is time to stop."""
        await self._stopping.wait()

    @property
    def told(self) -> bool:
        return self._stopping.is_set()

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        else:
            log.info("stopping", signal=number.name)
            self._stopping.set()

    def _start(self, child: _Child) -> None:
        reading, writing = os.pipe()
        try:
            child.process = child.spec.start(writing)
        except BaseException:
            self._print_last_words(child.spec.name, reading)
            raise
        finally:
            os.close(writing)
        child.started_at = time.monotonic()
        child.ended = asyncio.Event()
        child.reader = asyncio.create_task(self._read(child.spec.name, reading))
        _watch_end(child.process, child.ended)

    async def _keep(self, child: _Child) -> None:
        while True:
            await child.ended.wait()
            assert child.process is not None
            assert child.reader is not None
            code = child.process.wait()
            lived_s = time.monotonic() - child.started_at
            # The pipe may be held open by the child's own children.
            await asyncio.wait([child.reader], timeout=0.2)
            if self._stopping.is_set():
                return
            # Killed by somebody, as in a drill, it did not fail: it comes back at once, however often.
            killed = code == -signal.SIGKILL
            if lived_s >= SHORT_LIFE_S:
                child.short_lives = 0
            elif not killed:
                child.short_lives += 1
            delay_s = 0.0 if killed else restart_delay_s(child.short_lives)
            fields: dict[str, Any] = {"process": child.spec.name, "pid": child.process.pid, **_how(code)}
            if delay_s:
                log.error("process keeps ending", **fields, in_a_row=child.short_lives, restart_in_s=delay_s)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), delay_s)
                if self._stopping.is_set():
                    return
            else:
                log.warning("process ended, starting it again", **fields, lived_s=round(lived_s, 1))
            self._start_again(child)

    def _start_again(self, child: _Child) -> None:
        try:
            self._start(child)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and tried again more slowly
            log.error("process could not be started", process=child.spec.name, exc=error)
            child.short_lives = max(child.short_lives + 1, FREE_RESTARTS + 1)
            child.started_at = time.monotonic()
            child.ended.set()

    async def _stop(self, child: _Child) -> None:
        process = child.process
        if process is None or child.ended.is_set():
            return
        process.send_signal(child.spec.stop_signal)
        hurry = asyncio.create_task(self._hurry.wait())
        ended = asyncio.create_task(child.ended.wait())
        await asyncio.wait([hurry, ended], timeout=child.spec.stop_wait_s, return_when=asyncio.FIRST_COMPLETED)
        if not child.ended.is_set():
            log.warning("process does not stop, killing it", process=child.spec.name, pid=process.pid)
            process.kill()
            await child.ended.wait()
        hurry.cancel()
        ended.cancel()
        if child.reader is not None:
            await asyncio.wait([child.reader], timeout=0.2)

    def _print_last_words(self, name: str, reading: int) -> None:
        os.set_blocking(reading, False)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            for line in (pipe.read(65536) or b"").splitlines():
                self._printer.line(name, _shown(line))

    async def _read(self, name: str, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        with os.fdopen(descriptor, "rb") as pipe:
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            rest = b""
            while chunk := await reader.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LONGEST_LINE:
                    lines.append(rest)
                    rest = b""
                for line in lines:
                    self._printer.line(name, _shown(line))
            if rest:
                self._printer.line(name, _shown(rest))
            transport.close()


def _shown(line: bytes) -> str:
    from jeet.cli.output import visible

    return visible(line.decode("utf-8", "backslashreplace"))


def _how(code: int) -> dict[str, object]:
    return {"signal": signal.Signals(-code).name} if code < 0 else {"exit_code": code}


def _watch_end(process: subprocess.Popen[bytes], ended: asyncio.Event) -> None:
    """Set `ended` when the process has ended: its pidfd becomes readable then."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(process.pid)

    def on_end() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        process.wait()
        ended.set()

    loop.add_reader(descriptor, on_end)
