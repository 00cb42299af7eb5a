"""A machine: one plugin instance in one store, with its memory, its channel to the driver and its budgets.

Promise: no call into the guest outlives its budgets, and no failure of the guest is more than a GuestTrap here.
A budget is CPU time of this thread per event, with a longer limit of time as a backstop. Host work counts in neither:
the host answers for its own time, so that a slow database condemns no event. At each tick of the engine (20 ms) the
guest's own thread reads, from a word that the driver shares, which event runs. Time without such a look counts for at
most a tenth of a second, and CPU time for at most half of what an event has: a stopped process condemns none, nor
does a host that takes the processor away and counts that as use.
Used by one thread at a time.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import wasmtime

from jeet.errors import PluginError
from jeet.sandbox import native, wasi
from jeet.sandbox.call import GuestTrap, TrapKind
from jeet.sandbox.engine import LEAST_STACK_BYTES, Engine
from jeet.sandbox.frames import (
    FRAME_MARK,
    HEADER,
    OP_COLLECTION,
    OP_READ,
    OP_SCAN,
    OP_SHARED,
    OP_TIME,
    PROGRESS,
    PROOF,
    PROOF_FIRST,
    PROOF_SECOND,
    STOP,
    TIME,
    WORDS,
    message,
)

_STDERR_KEPT = 16 * 1024
_LONGEST_WAIT_COUNTED_S = 0.1
SLICE_PATIENCE = 4
"""times as long as a slice's CPU time that a batch may take: a host that is short of CPU must not make batches small"""
_ASKING = frozenset((OP_READ, OP_SCAN, OP_COLLECTION))
"""what the host works for, as long as a database takes"""


@dataclass(frozen=True)
class Budget:
    """What one event may use, and when a batch is asked to end early."""

    cpu_s: float = 0.1
    wall_s: float = 2.0
    slice_s: float | None = None
    """CPU time after which the batch is asked to end early; a batch may take several calls (begin_slice)"""
    events: int | None = None
    """how many events the batch has; None: this is no batch"""


BOOT_BUDGET = Budget(cpu_s=5.0, wall_s=30.0)
MODULE_BUDGET = Budget(cpu_s=1.0, wall_s=10.0)
"""for the top level of a user's module"""


class Machine:
    """An instance of a plugin. `on_frame(op, payload)` answers what the driver asks, or returns None."""

    def __init__(self, engine: Engine, pre: wasmtime.InstancePre, memory_bytes: int) -> None:
        stack = native.stack_bytes()
        if stack is not None and stack < LEAST_STACK_BYTES:
            raise PluginError(
                f"this thread's stack of {stack // 1024} KiB is too small to run JavaScript; allow"
                f" {LEAST_STACK_BYTES // 1024} KiB or more (ulimit -s)"
            )
        self._engine = engine
        self._memory_limit = memory_bytes
        self._input = memoryview(b"")
        self._stderr = b""
        self._frame: bytearray | None = None
        self._frame_op = 0
        self._frame_left = 0
        self.shared_at = 0
        """address of the words that the driver shares, 0 without"""
        self.on_frame: Callable[[int, bytes], bytes | None] = _no_frames
        self.host_error: BaseException | None = None
        self._violation: str | None = None
        self._stopped: tuple[TrapKind, str] | None = None
        self._clock: Callable[[], float] = lambda: time.time() * 1000.0
        self._budget = BOOT_BUDGET
        self._host_cpu = 0.0
        self.has_finished = False
        """whether the batch's result has come: what still runs after it runs on an event's budget"""
        self._host_since = 0.0
        self._watch: list[float] = [0.0] * 5
        self.ticks: list[int] = []
        """events of the batch at hand that ran when the engine's clock ticked"""
        self.slowest: tuple[int, float] | None = None
        """of them, the one that was seen for longest, and the CPU time between"""
        self._seen_since = (-1, 0.0)
        """the event that ran at the last tick of this call, and the guest's CPU time when it was first seen"""
        self._slice_began: tuple[float, float] | None = None
        """when the batch's first call began: time, and the guest's CPU time"""
        self.notes: dict[str, int] = {}
        """addresses that callers keep in this machine"""
        self.store = wasmtime.Store(engine.wasm)
        self.store.set_limits(memory_size=memory_bytes, instances=1, memories=1, tables=4, table_elements=20_000)
        _ON_TICK.watch(self.store)
        self._context = native.Context(self.store)
        self._context.set_deadline(1)
        self._memory: native.Memory | None = None
        self._functions: dict[str, native.Function] = {}
        with self._entered(BOOT_BUDGET):
            exports = pre.instantiate(self.store).exports(self.store)
        self._exports = exports
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._growing = memory
        self._memory = native.Memory(self._context, memory)
        if "_initialize" in exports:
            self.call("_initialize", budget=BOOT_BUDGET)

    # Memory: each transfer copies once.

    def memory_bytes(self) -> int:
        """Size of the guest's memory now."""
        return 0 if self._memory is None else self._memory.size()

    def memory_read(self, pointer: int, length: int) -> bytes:
        """A copy of that range; IndexError if it is not all inside."""
        if self._memory is None:
            raise IndexError("no memory yet")
        return self._memory.read(pointer, length)

    def memory_write(self, pointer: int, data: bytes) -> None:
        """Copy into that range; IndexError if it is not all inside."""
        if self._memory is None:
            raise IndexError("no memory yet")
        self._memory.write(pointer, data)

    def grow(self, size: int) -> None:
        """Give the guest's memory this size, if it is smaller."""
        missing = size - self.memory_bytes()
        if missing > 0:
            self._growing.grow(self.store, -(-missing // 65536))

    def place(self, data: bytes) -> int:
        """Copy into memory of the guest's own allocator."""
        pointer = int(self.call("cabi_realloc", 0, 0, 1, len(data)))
        self.memory_write(pointer, data)
        return pointer

    # Calls.

    def has(self, name: str) -> bool:
        """Whether the plugin exports this function."""
        return name in self._exports

    def call(self, name: str, *arguments: int, budget: Budget = BOOT_BUDGET) -> int:
        """Call an export within a budget: its result, or 0 if it has none; GuestTrap if it does not come back."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._function(name)
        with self._entered(budget):
            return function(*arguments)

    def _function(self, name: str) -> native.Function:
        export = self._exports[name]
        assert isinstance(export, wasmtime.Func)
        try:
            return native.Function(self.store, self._context, export)
        except TypeError as error:
            raise PluginError(f"this is not a Javy plugin: of its export {name}, {error}") from error

    def _entered(self, budget: Budget) -> _Entered:
        return _Entered(self, budget)

    def use_clock(self, now_ms: Callable[[], float]) -> None:
        """What the guest takes for the time: milliseconds since the epoch."""
        self._clock = now_ms

    def stderr(self) -> str:
        """The end of what the plugin itself wrote to stderr, and forget it."""
        text = self._stderr.decode("utf-8", "replace")
        self._stderr = b""
        return text

    # The channel.

    def give(self, *sections: bytes) -> None:
        """Queue a message for the driver."""
        self._input = memoryview(message(sections))

    def give_raw(self, data: bytes) -> None:
        """Queue bytes as they are (a configuration that a plugin reads from stdin)."""
        self._input = memoryview(data)

    def take_input(self, most: int) -> bytes:
        data = bytes(self._input[:most])
        self._input = self._input[most:]
        return data

    def give_output(self, fd: int, data: bytes, pointer: int) -> bool:
        if self.host_error is not None or self._violation is not None or self._stopped is not None:
            return False
        if fd == 1:
            return True  # a plugin's own console, which the driver has replaced
        frame = self._frame
        if frame is None:
            if not data.startswith(FRAME_MARK):
                self._stderr = (self._stderr + data)[-_STDERR_KEPT:]
                return True
            if len(data) < HEADER.size:
                return self._violate("a frame with a short header")
            _mark, self._frame_op, self._frame_left = HEADER.unpack_from(data)
            if self._frame_left > self._memory_limit:
                return self._violate("a frame larger than the guest's memory")
            self._frame = frame = bytearray()
            data = data[HEADER.size :]
            pointer += HEADER.size
        if len(data) > self._frame_left:
            return self._violate("more bytes than the frame announced")
        frame += data
        self._frame_left -= len(data)
        if self._frame_left == 0 and (data or not frame):
            self._frame = None
            return self._act(self._frame_op, bytes(frame), pointer)
        return True

    def _act(self, op: int, payload: bytes, pointer: int) -> bool:
        if op == OP_SHARED:
            if self.shared_at == 0 and len(payload) == 8 * WORDS and payload[8 * PROOF :][:8] == PROOF_FIRST:
                self.shared_at = pointer
            return True
        if op == OP_TIME:
            seen = self.shared_at != 0 and self.memory_read(self.shared_at + 8 * PROOF, 8) == PROOF_SECOND
            if not seen:
                self.shared_at = 0
            self.give(b'{"now":%.3f,"shared":%s}' % (self._clock(), b"true" if seen else b"false"))
            return True
        asks = op in _ASKING
        if asks:
            self._enter_host()
        try:
            reply = self.on_frame(op, payload)
        except Exception as error:  # noqa: BLE001  whatever the reader raised leaves run() as it is
            self.host_error = error
            self._halt()
            return False
        finally:
            if asks:
                self._leave_host()
        if self._violation is not None or self._stopped is not None:
            return False
        if reply is not None:
            self._input = memoryview(reply)
        return True

    def _violate(self, what: str) -> bool:
        self.violate(what)
        return False

    def violate(self, what: str) -> None:
        """Note that the guest broke a rule of the channel, and stop it at its next step."""
        if self._violation is None:
            self._violation = what
        self._halt()

    def stop(self, kind: TrapKind, what: str) -> None:
        """Stop the guest at its next step, for this reason."""
        self._stopped = (kind, what)
        self._halt()

    def violation(self) -> str | None:
        """What rule was broken, if any."""
        return self._violation

    def _halt(self) -> None:
        self._context.set_deadline(0)

    # Budgets and shared words.

    @property
    def shares_words(self) -> bool:
        """Whether the driver's shared words can be seen (on every plugin that does not copy what it writes)."""
        return self.shared_at != 0

    def word(self, index: int) -> float:
        """A word that the driver shares; 0 without sharing."""
        if self.shared_at == 0:
            return 0.0
        return float(struct.unpack("<d", self.memory_read(self.shared_at + 8 * index, 8))[0])

    def set_word(self, index: int, value: float) -> None:
        if self.shared_at:
            self.memory_write(self.shared_at + 8 * index, struct.pack("<d", value))

    def now_ns(self) -> int:
        return int(self._clock() * 1e6)

    def _enter_host(self) -> None:
        self._host_since = time.thread_time()
        self._count_wait()

    def _leave_host(self) -> None:
        self._host_cpu += time.thread_time() - self._host_since
        self._watch[3] = time.monotonic()

    def _start_watch(self, budget: Budget) -> None:
        self._budget = budget
        self._stopped = None
        self.has_finished = False
        now = time.monotonic()
        # event seen, CPU time counted for it, time counted for it, last look, CPU time then
        cpu = self._guest_cpu()
        self._watch = [self.word(PROGRESS), 0.0, 0.0, now, cpu]
        if self._slice_began is None:
            self._slice_began = (now, cpu)
            self.ticks, self.slowest = [], None
        self._seen_since = (-1, 0.0)
        self._context.set_deadline(1)

    def begin_slice(self) -> None:
        """What is called next begins a batch."""
        self._slice_began = None

    def slice_is_over(self, slice_s: float, now: float | None = None, cpu: float | None = None) -> bool:
        """Whether the batch at hand has had its CPU time, or far more time than that takes."""
        if self._slice_began is None:
            return False
        began_at, cpu_then = self._slice_began
        now = time.monotonic() if now is None else now
        cpu = self._guest_cpu() if cpu is None else cpu
        return cpu - cpu_then > slice_s or now - began_at > slice_s * SLICE_PATIENCE

    def _guest_cpu(self) -> float:
        return time.thread_time() - self._host_cpu

    def _count_wait(self) -> None:
        watch = self._watch
        now = time.monotonic()
        watch[2] += min(now - watch[3], _LONGEST_WAIT_COUNTED_S)
        watch[3] = now

    def on_tick(self) -> bool:
        """Look at the budgets; False stops the guest."""
        if self.host_error is not None or self._violation is not None or self._stopped is not None:
            return False
        watch, budget = self._watch, self._budget
        self._count_wait()
        cpu = self._guest_cpu()
        event = self.word(PROGRESS)
        if self.shares_words and budget.events is not None and 0 <= event < budget.events and not self.has_finished:
            self._notice(int(event), cpu)
        cpu_s, wall_s = budget.cpu_s, budget.wall_s
        unseen = not self.shares_words and budget.events != 1
        if budget.events is not None and (unseen or not 0 <= event < budget.events) and not self.has_finished:
            # The driver at the start or the end of a batch: its work grows with the batch, not with one event. Or it
            # cannot be seen which event runs: then only a batch of one is held to one event's budget.
            cpu_s, wall_s = max(cpu_s, BOOT_BUDGET.cpu_s), max(wall_s, BOOT_BUDGET.wall_s)
        watch[1] += min(cpu - watch[4], cpu_s / 2)
        watch[4] = cpu
        if event != watch[0]:
            watch[0], watch[1], watch[2] = event, 0.0, 0.0
        elif watch[1] >= cpu_s:
            self._stopped = ("timeout", f"used more than {cpu_s * 1000:.0f} ms of CPU time (event_cpu_ms)")
            return False
        elif watch[2] > wall_s:
            self._stopped = ("timeout", f"took longer than {wall_s * 1000:.0f} ms (event_wall_ms)")
            return False
        self.set_word(TIME, self._clock())
        if budget.slice_s is not None and self.slice_is_over(budget.slice_s, watch[3], cpu):
            self.set_word(STOP, 1.0)
        return True

    def _notice(self, event: int, cpu: float) -> None:
        self.ticks.append(event)
        seen, since = self._seen_since
        if event != seen:
            self._seen_since = (event, cpu)
        elif self.slowest is None or cpu - since > self.slowest[1]:
            self.slowest = (event, cpu - since)

    def trap(self, error: wasmtime.WasmtimeError | wasmtime.Trap) -> GuestTrap:
        """What stopped the guest, as an error that names no events yet."""
        if self._stopped is not None:
            kind, what = self._stopped
            return GuestTrap(what, kind=kind, suspects=range(0))
        said = self.stderr().strip()
        if "Pending jobs" in said:
            return GuestTrap(
                "uses promises, which this Javy plugin does not run: its event loop is off (event-loop)",
                kind="abort",
                suspects=range(0),
            )
        code = error.trap_code if isinstance(error, wasmtime.Trap) else None
        text = str(error)
        if code is wasmtime.TrapCode.STACK_OVERFLOW or "call stack exhausted" in text:
            return GuestTrap("recursed too deeply (the stack was exhausted)", kind="stack", suspects=range(0))
        full = self.memory_bytes() + 2 * 1024 * 1024 > self._memory_limit
        if "memory allocation of" in said or "out of memory" in said.lower() or (full and not said):
            mib = self._memory_limit // (1024 * 1024)
            return GuestTrap(
                f"used more than {mib} MiB of memory (guest_memory_bytes)", kind="memory", suspects=range(0)
            )
        reason = said or text.strip().splitlines()[-1].strip()
        return GuestTrap(f"the JavaScript engine aborted: {reason}", kind="abort", suspects=range(0))

    def close(self) -> None:
        """Free the store. The machine must not be used again."""
        self._memory = None
        self._functions.clear()
        self._exports = None  # type: ignore[assignment]
        self.store.close()


class _Entered:
    """While entered, this machine is the one that runs on this thread."""

    def __init__(self, machine: Machine, budget: Budget) -> None:
        self._machine = machine
        self._budget = budget

    def __enter__(self) -> None:
        machine = self._machine
        self._outer = wasi.current.guest
        wasi.current.guest = machine
        machine._engine.enter()
        machine._start_watch(self._budget)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._machine._engine.leave()
        wasi.current.guest = self._outer
        if isinstance(error, wasmtime.WasmtimeError | wasmtime.Trap):
            raise self._machine.trap(error) from error


def _no_frames(_op: int, _payload: bytes) -> bytes | None:
    return None


def _goes_on() -> bool:
    guest = wasi.current.guest
    return isinstance(guest, Machine) and guest.on_tick()


_ON_TICK = native.OnTick(_goes_on)
