"""Input schemas are checked in a process of their own, as neither a schema nor an event can be trusted to be cheap.

Promise: check() comes back within the limits of each event, whatever schema and events are; it waits without the GIL.
An event that is over a limit is condemned alone and by name, and every other event gets its verdict. The process ends
with this one, however that ends. What only this host is to blame for (no process can be started) is a RetryLater.

One process for all functions, as it holds no event between two requests; started at the first request. A request ends
once its time slice is over, so that functions with slow schemas share it with those whose schemas are fast.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jeet.errors import RetryLater
from jeet.limits import DEFAULTS
from jeet.sandbox import schema_child
from jeet.sandbox.limits import Limits

_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.1
"""counted of the time between two looks: while this process itself stood still, so may have the other"""
_CPU_CLOCK_OF_PROCESS = 2
_KEPT = 64
"""compiled schemas that the process holds"""
_STRIKES = 2
"""times that an event may end the process, or outwait it, before it is condemned: once may be the host's doing"""
_STARTS = 3
_PASSED_ON = ("PATH", "LANG", "LC_", "LD_", "PYTHON", "VIRTUAL_ENV")
"""of the environment; what holds passwords stays here"""

Why = Literal["cpu", "wall", "memory", "died"]


class SchemaRefused(Exception):
    """The schema cannot be used; the text goes on after `config.input`."""


@dataclass(frozen=True)
class Checked:
    """Verdicts on the first `count` events: what is wrong, by index. Fewer than given: the time slice was over."""

    count: int
    wrong: Mapping[int, str]


class _Ended(Exception):
    """The process was ended or ended by itself, at this event and in this phase."""

    def __init__(self, why: Why, at: int, phase: int) -> None:
        self.why, self.at, self.phase = why, at, phase
        super().__init__(why)


class Schema:
    """A schema as text, to be checked by a SchemaProcess."""

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        self.text = json.dumps(schema if isinstance(schema, bool) else dict(schema))
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()


class SchemaProcess:
    """Safe to use from several threads, one request at a time."""

    def __init__(self, memory_bytes: int = DEFAULTS["schema_memory_bytes"]) -> None:
        """`memory_bytes`: address space of the process."""
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        # The kernel ties a child to the thread that started it, and threads of lanes come and go.
        self._keeper: ThreadPoolExecutor | None = None
        self._child: _Child | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        child = self._child
        return None if child is None else child.pid

    def close(self) -> None:
        """End the process. Closing twice does nothing."""
        with self._lock:
            self._closed = True
            self._end()
            if self._keeper is not None:
                self._keeper.shutdown(wait=False)
                self._keeper = None

    def check(self, schema: Schema, values: bytes, limits: Limits, slice_s: float) -> Checked:
        """Verdicts on JSON texts joined by newlines: on all, or on the first ones, at least one, once time is over.

        SchemaRefused if the schema cannot be used at all.
        """
        wrong: dict[int, str] = {}
        done, strikes, rest = 0, 0, values
        ends_at = time.monotonic() + slice_s
        while True:
            try:
                answer = self._ask(schema, rest, limits, max(ends_at - time.monotonic(), 0.0))
            except _Ended as ended:
                if ended.at > 0 and ended.phase in (schema_child.CHECKING, schema_child.EXPLAINING):
                    # What it had found about those before went with the process: they are checked again.
                    before = self._before(schema, rest, ended.at, limits)
                    wrong |= {done + index: text for index, text in before.items()}
                    done, strikes = done + ended.at, 0
                    rest = rest.split(b"\n", ended.at)[ended.at]
                strikes += 1
                if ended.phase == schema_child.COMPILING:
                    if ended.why != "cpu" and strikes < _STRIKES:
                        continue
                    raise SchemaRefused(f"cannot be compiled: {_what(ended.why, limits, compiling=True)}") from None
                if ended.phase == schema_child.READING:
                    if strikes < _STARTS:
                        continue
                    raise RetryLater("the process jeet-schema ends before it has read its events") from None
                if ended.why != "cpu" and strikes < _STRIKES:
                    continue
                wrong[done] = _condemned(ended, limits)
                done, strikes = done + 1, 0
                _, more, rest = rest.partition(b"\n")
                if not more or time.monotonic() > ends_at:
                    return Checked(done, wrong)
                continue
            if "refused" in answer:
                raise SchemaRefused(answer["refused"])
            wrong |= {done + index: text for index, text in answer["wrong"]}
            return Checked(done + answer["checked"], wrong)

    def _before(self, schema: Schema, values: bytes, count: int, limits: Limits) -> dict[int, str]:
        lines = b"\n".join(values.split(b"\n", count)[:count])
        found: dict[int, str] = {}
        start = 0
        while start < count:
            checked = self.check(schema, lines, limits, float("inf"))
            found |= {start + index: text for index, text in checked.wrong.items()}
            start += checked.count
            lines = lines.split(b"\n", checked.count)[-1]
        return found

    def _ask(self, schema: Schema, values: bytes, limits: Limits, slice_s: float) -> dict[str, Any]:
        with self._lock:
            if self._closed:
                raise RetryLater("this sandbox is closed")
            if self._child is None:
                self._child = self._start()
            try:
                return self._child.ask(schema, values, limits, slice_s)
            except BaseException:
                self._end()
                raise

    def _start(self) -> _Child:
        if self._keeper is None:
            self._keeper = ThreadPoolExecutor(1, thread_name_prefix="jeet-schema-keeper")
        try:
            return self._keeper.submit(_Child, self._memory_bytes).result()
        except (OSError, RuntimeError) as error:
            raise RetryLater(f"the process jeet-schema cannot be started: {error}") from error

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Child:
    """One life of the process."""

    def __init__(self, memory_bytes: int) -> None:
        made = os.memfd_create("jeet-schema")
        # Beyond 0, 1 and 2, which the child has for itself and which may be closed here.
        shared = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(made)
        try:
            os.ftruncate(shared, mmap.PAGESIZE)
            self._map = mmap.mmap(shared, mmap.PAGESIZE)
            self._words = memoryview(self._map).cast("q")
            arguments = (os.getpid(), shared, memory_bytes)
            # By its file, so that neither this process's import path nor its name on a command line matters.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(schema_child.__file__)), *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=(shared,),
                env={name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)},
            )
        finally:
            os.close(shared)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self.pid = self._process.pid
        self._cpu_clock = (~self.pid << 3) | _CPU_CLOCK_OF_PROCESS
        self._known: set[str] = set()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._words.release()
        self._map.close()

    def ask(self, schema: Schema, values: bytes, limits: Limits, slice_s: float) -> dict[str, Any]:
        forget = len(self._known) >= _KEPT and schema.digest not in self._known
        if forget:
            self._known.clear()
        head = b'{"digest":"%s","forget":%s' % (schema.digest.encode(), b"true" if forget else b"false")
        if schema.digest not in self._known:
            head += b',"schema":' + schema.text.encode()
        head += b"}"
        self._words[schema_child.AT] = 0
        self._words[schema_child.PHASE] = schema_child.READING
        self._words[schema_child.STOP] = int(slice_s <= 0)
        watch = _Watch(self, limits, slice_s)
        try:
            self._write(struct.pack("<II", len(head), len(values)) + head + values, watch)
            size = struct.unpack("<I", self._read(4, watch))[0]
            answer: dict[str, Any] = json.loads(self._read(size, watch))
        except (BrokenPipeError, ConnectionResetError, EOFError):
            code = self._process.wait()
            raise _Ended("memory" if code == schema_child.MEMORY_EXIT else "died", *self.place()) from None
        if "refused" not in answer:
            self._known.add(schema.digest)
        return answer

    def place(self) -> tuple[int, int]:
        return self._words[schema_child.AT], self._words[schema_child.PHASE]

    def cpu_s(self) -> float:
        try:
            return time.clock_gettime(self._cpu_clock)
        except OSError:  # it has ended, which reading from it will tell
            return 0.0

    def stop(self) -> None:
        self._words[schema_child.STOP] = 1

    def _write(self, data: bytes, watch: _Watch) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(self._to, select.POLLOUT, watch)
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._to, rest) :]

    def _read(self, size: int, watch: _Watch) -> bytes:
        parts: list[bytes] = []
        while size:
            self._wait(self._from, select.POLLIN, watch)
            part = os.read(self._from, min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, sign: int, watch: _Watch) -> None:
        ready = select.poll()
        ready.register(descriptor, sign)
        while not ready.poll(_LOOK_S * 1000):
            watch.look()


class _Watch:
    """How long the process has been at the event at hand."""

    def __init__(self, child: _Child, limits: Limits, slice_s: float) -> None:
        self._child = child
        self._limits = limits
        self._looked_at = time.monotonic()
        self._slice_ends_at = self._looked_at + slice_s
        self._place = child.place()
        self._cpu_s = child.cpu_s()
        self._wall_s = 0.0

    def look(self) -> None:
        """_Ended when it is over a limit."""
        now, place, cpu_s = time.monotonic(), self._child.place(), self._child.cpu_s()
        if now > self._slice_ends_at:
            self._child.stop()
        if place != self._place:
            self._place, self._cpu_s, self._wall_s = place, cpu_s, 0.0
        else:
            self._wall_s += min(now - self._looked_at, _LONGEST_LOOK_S)
        self._looked_at = now
        at, phase = place
        compiling = phase in (schema_child.COMPILING, schema_child.READING)
        if phase != schema_child.READING and cpu_s - self._cpu_s > _cpu_ms(self._limits, compiling) / 1000:
            raise _Ended("cpu", at, phase)
        if self._wall_s > _wall_ms(self._limits, compiling) / 1000:
            raise _Ended("wall", at, phase)


def _cpu_ms(limits: Limits, compiling: bool) -> int:
    return DEFAULTS["schema_compile_ms"] if compiling else limits.event_cpu_ms


def _wall_ms(limits: Limits, compiling: bool) -> int:
    # A process that starts or compiles on a crowded host gets ten times its CPU time, as no event is to blame yet.
    return 10 * DEFAULTS["schema_compile_ms"] if compiling else limits.event_wall_ms


def _what(why: Why, limits: Limits, *, compiling: bool) -> str:
    if why == "cpu":
        name = "schema_compile_ms" if compiling else "event_cpu_ms"
        return f"it took more than {_cpu_ms(limits, compiling)} ms of CPU time ({name})"
    if why == "wall":
        return f"it took longer than {_wall_ms(limits, compiling)} ms" + ("" if compiling else " (event_wall_ms)")
    if why == "memory":
        mib = DEFAULTS["schema_memory_bytes"] // (1024 * 1024)
        return f"it took more than {mib} MiB of memory (schema_memory_bytes)"
    return "it ended the process jeet-schema, for want of stack or of memory (schema_memory_bytes)"


def _condemned(ended: _Ended, limits: Limits) -> str:
    said = _what(ended.why, limits, compiling=False).removeprefix("it ")
    if ended.phase == schema_child.EXPLAINING:
        return f"$: does not match config.input (finding out where {said})"
    return f"checking it against config.input {said}"
