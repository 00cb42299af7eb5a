"""One version of a function on one partition, running in a machine of its own.

Promise: run() gives a batch's columns, all of them checked, or raises; after GuestTrap, GuestViolation or an error of
the state reader the instance is dead and nothing of the batch may be used. The caller makes a new one, runs the events
before the suspects as a batch and then each suspect alone, which has the full budget to itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import wasmtime

from jeet.errors import JeetError, SandboxError
from jeet.sandbox.call import (
    BatchInput,
    BatchResult,
    CollectionInfo,
    Fault,
    GuestTrap,
    GuestViolation,
    InstanceSpec,
    StateReader,
)
from jeet.sandbox.frames import (
    OP_ANSWER,
    OP_COLLECTION,
    OP_READ,
    OP_RESULT,
    OP_SCAN,
    PROGRESS,
    message,
    split_sections,
)
from jeet.sandbox.machine import BOOT_BUDGET, Budget, Machine
from jeet.sandbox.result import TextRefused, read_result
from jeet.sandbox.schema import InputSchema

# The official plugin keeps every module it evaluates, about 1.3 KB for each call: renew the instance before that hurts.
CALLS_BEFORE_RECYCLING = 4000
_OUT_OF_MEMORY = "InternalError: out of memory"
_THROWN_WHEN_FULL = "null was thrown"  # an engine without room for an error object throws this
_MAX_SCAN_ROWS = 1000


class Caller(Protocol):
    """How the plugin at hand evaluates modules and calls the driver."""

    keeps_modules: bool

    def call_driver(self, machine: Machine, budget: Budget) -> None: ...
    def is_careful(self, digest: str) -> bool: ...
    def be_careful(self, digest: str) -> None: ...


class Instance:
    """Made by Plugin.instantiate; used by one thread at a time."""

    def __init__(
        self,
        machine: Machine,
        caller: Caller,
        spec: InstanceSpec,
        reader: StateReader,
        place: Callable[[str], str],
        digest: str,
        operators: frozenset[str] = frozenset(),
        schema: InputSchema | None = None,
        *,
        migrates: bool = False,
    ) -> None:
        self._machine = machine
        self._caller = caller
        self._spec = spec
        self._reader = reader
        self._place = place
        self._digest = digest
        self._operators = operators
        self._schema = schema
        self._migrates = migrates
        self._collections: dict[str, CollectionInfo] = {}
        self._collection_ids: frozenset[int] = frozenset()
        self._sequence = 0
        self._calls = 0
        self._dead = False
        self._result: bytes | None = None
        self._events = 0
        self._asked = (-1.0, 0)
        """the event that asked for state last, and how often it has"""
        self._budget = Budget(cpu_s=spec.limits.event_cpu_ms / 1000, wall_s=spec.limits.event_wall_ms / 1000)
        self._now_ms = time.time() * 1000
        self._fetched_at = time.monotonic()
        machine.use_clock(self._now)
        machine.on_frame = self._on_frame

    @property
    def recycle_due(self) -> bool:
        """Whether to make a new instance after the next commit: memory, or the official plugin's leak."""
        used = self._machine.memory_bytes()
        return used > self._spec.limits.guest_memory_bytes * 3 // 4 or (
            self._caller.keeps_modules and self._calls > CALLS_BEFORE_RECYCLING
        )

    @property
    def memory_bytes(self) -> int:
        """Memory of the guest now."""
        return self._machine.memory_bytes()

    @property
    def ticks(self) -> Sequence[int]:
        """Events of the last batch that ran when the engine's clock ticked: more often those that take longer."""
        return self._machine.ticks

    @property
    def slowest(self) -> tuple[int, float] | None:
        """The event of the last batch that was seen at ticks furthest apart, and the CPU time between them."""
        return self._machine.slowest

    def close(self) -> None:
        """Free it. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._dead = True
            self._machine.close()

    _closed = False

    def run(self, batch: BatchInput) -> BatchResult:
        """Run a batch's events in order, each in isolation; fewer than given if the time slice is over."""
        if self._dead:
            raise SandboxError("this instance is dead after an error and was used again; make a new one")
        if batch.count == 0:
            return BatchResult(0, (), (), (), (), self._machine.memory_bytes(), self._sequence)
        if self._schema is not None and self._is_published(batch):
            batch = self._schema.condemn(batch)
        self._sequence += 1
        self._now_ms, self._fetched_at = batch.now_ms, batch.fetched_at
        self._result = None
        self._events, self._asked = batch.count, (-1.0, 0)
        self._machine.give(b"batch", self._head(batch), batch.values, batch.keys, batch.timestamps, batch.headers)
        try:
            self._drive(batch)
            assert self._result is not None
            result = read_result(
                self._result,
                batch,
                self._spec,
                self._collection_ids,
                self._place,
                self._sequence,
                self._machine.memory_bytes(),
                self._operators,
            )
            return self._judge_memory(batch, result)
        except TextRefused as refused:
            self._dead = True
            raise self._refusal(batch, refused) from None
        except BaseException:
            self._dead = True
            raise

    def _drive(self, batch: BatchInput) -> None:
        slice_s, limits = self._spec.slice_ms / 1000, self._budget
        budget = Budget(cpu_s=limits.cpu_s, wall_s=limits.wall_s, slice_s=slice_s, events=batch.count)
        self._machine.begin_slice()
        try:
            self._call(budget)
            waits = 0
            while self._result is None:
                # The driver waits for a promise that no job is left to settle.
                waits += 1
                if waits > batch.count + 1:
                    raise GuestViolation("the guest ended its call without a result", suspects=self._suspects(batch))
                self._machine.give(b"wait", b"over" if self._machine.slice_is_over(slice_s) else b"")
                self._call(budget)
        except GuestTrap as trap:
            if self._machine.host_error is not None:
                raise self._machine.host_error from None
            if (broken := self._machine.violation()) is not None:
                raise GuestViolation(broken, suspects=self._suspects(batch)) from trap
            raise GuestTrap(str(trap), kind=trap.kind, suspects=self._suspects(batch)) from trap
        if self._machine.host_error is not None:
            raise self._machine.host_error
        if (broken := self._machine.violation()) is not None:
            raise GuestViolation(broken, suspects=self._suspects(batch))

    def _call(self, budget: Budget) -> None:
        self._calls += 1
        self._caller.call_driver(self._machine, budget)

    def _suspects(self, batch: BatchInput) -> range:
        if self._machine.shares_words:
            try:
                at = self._machine.word(PROGRESS)
            except (IndexError, wasmtime.WasmtimeError):
                at = -1.0
            if at == int(at) and 0 <= at < batch.count:
                return range(int(at), int(at) + 1)
        return range(batch.count)

    def _refusal(self, batch: BatchInput, refused: TextRefused) -> SandboxError:
        """The event behind a text that the gate refused runs again alone: the driver then says what is wrong."""
        if batch.count == 1:
            return GuestViolation(f"the guest returned text that {refused.verdict}", suspects=range(1))
        self._caller.be_careful(self._digest)
        event = refused.event
        if event is None:
            try:
                asked = f"[{refused.collection},{refused.key}]".encode()
                event = int(ask_driver(self._machine, self._caller, BOOT_BUDGET, b"who", asked)[0])
            except (DriverRefused, GuestTrap, ValueError, IndexError):
                event = -1
        suspects = range(event, event + 1) if 0 <= event < batch.count else range(batch.count)
        return GuestTrap(f"returned text that {refused.verdict}", kind="abort", suspects=suspects)

    def _judge_memory(self, batch: BatchInput, result: BatchResult) -> BatchResult:
        """Once memory has run out, the events after it failed for no fault of theirs: have them run again."""
        mib = self._spec.limits.guest_memory_bytes // (1024 * 1024)
        if batch.count == 1 and self._sequence == 1:
            alone = [
                replace(fault, error=f"{fault.error}: more than {mib} MiB (guest_memory_bytes)")
                if fault.error == _OUT_OF_MEMORY and fault.index not in batch.condemned
                else fault
                for fault in result.faults
            ]
            return replace(result, faults=alone) if alone else result
        full = self._machine.memory_bytes() + 2 * 1024 * 1024 > self._spec.limits.guest_memory_bytes
        for fault in result.faults:
            starved = fault.error.startswith(_OUT_OF_MEMORY) or (full and fault.error.startswith(_THROWN_WHEN_FULL))
            if starved and fault.index not in batch.condemned:
                raise GuestTrap(
                    f"used more than {mib} MiB of memory (guest_memory_bytes)",
                    kind="memory",
                    suspects=range(fault.index, fault.index + 1),
                )
        return result

    def _is_published(self, batch: BatchInput) -> bool:
        """Whether these are events of the function's source, which its schema is about."""
        entered = self._spec.plan.inputs[batch.input]
        return not batch.timers and not entered.internal and 0 in entered.nodes

    def _head(self, batch: BatchInput) -> bytes:
        # Written by hand: `json.dumps` takes longer than a small batch has time for.
        return (
            b'{"count":%d,"first":%d,"offsets":%s,"attempt":%d,"number":%d,"committed":%d,"now":%r,"skip":%s,"careful":%s%s}'
            % (
                batch.count,
                batch.first_offset,
                b"null" if batch.offsets is None else json.dumps(list(batch.offsets)).encode(),
                batch.attempts,
                self._sequence,
                batch.committed_through,
                self._now(),
                json.dumps(sorted(batch.condemned)).encode() if batch.condemned else b"[]",
                b"true" if self._caller.is_careful(self._digest) else b"false",
                self._head_of_stage(batch),
            )
        )

    def _head_of_stage(self, batch: BatchInput) -> bytes:
        """What only graphs of several inputs or with event time need to be told."""
        if not (self._spec.plan.timed or batch.input or batch.timers):
            return b""
        given = {
            "input": batch.input,
            "timers": batch.timers,
            "watermark": batch.watermark_ms,
            "highest": batch.highest_ms,
            "bound": batch.bound_ms,
        }
        return b"," + json.dumps(given).encode()[1:-1]

    def _now(self) -> float:
        return self._now_ms + (time.monotonic() - self._fetched_at) * 1000

    # What the driver asks while it runs.

    def _on_frame(self, op: int, payload: bytes) -> bytes | None:
        if op == OP_RESULT:
            if self._result is not None:
                self._machine.violate("two results for one batch")
            self._result = payload
            self._machine.has_finished = True
            return None
        if op == OP_ANSWER:
            self._machine.violate("an answer to no question")
            return None
        if not self._may_ask():
            return None
        try:
            asked = json.loads(payload)
            if op == OP_READ:
                return self._read(asked["c"], asked["k"])
            if op == OP_SCAN:
                return self._scan(asked["c"], asked["after"], asked["limit"])
            if op == OP_COLLECTION:
                return self._open(asked["name"])
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        self._machine.violate(f"a request that cannot be read (op {op})")
        return None

    def _may_ask(self) -> bool:
        """The time of what an event asks for is not its own, so how often it may ask is bounded."""
        most, event = self._spec.limits.state_requests, self._machine.word(PROGRESS)
        if not self._machine.shares_words:
            most *= self._events  # which of them asks cannot be seen
        self._asked = (event, self._asked[1] + 1 if event == self._asked[0] else 1)
        if self._asked[1] > most:
            self._machine.stop("abort", f"asked for state more than {most} times (state_requests)")
        return self._asked[1] <= most

    def _read(self, collection: int, keys: list[str]) -> bytes:
        self._check_collection(collection)
        if not keys or len(keys) > 100_000 or not all(isinstance(key, str) for key in keys):
            raise ValueError("keys")
        older = b""
        with _reader_errors():
            if self._migrates:
                found = self._reader.read_versions(collection, keys, self._spec.version)
                rows: Sequence[tuple[str, float | None] | None] = [row and row[:2] for row in found]
                versions = [row and row[2] for row in found]
                older = b"" if all(version is None for version in versions) else json.dumps(versions).encode()
            else:
                rows = self._reader.read(collection, keys)
        values = "\n".join([row[0] if row is not None else "" for row in rows])
        expiries = [row[1] if row is not None else None for row in rows]
        head = b"" if not any(expiries) else json.dumps(expiries).encode()
        return message((head, values.encode(), older) if self._migrates else (head, values.encode()))

    def _scan(self, collection: int, after: str | None, limit: int) -> bytes:
        self._check_collection(collection)
        if (
            not (after is None or isinstance(after, str))
            or not isinstance(limit, int)
            or not 0 < limit <= _MAX_SCAN_ROWS
        ):
            raise ValueError("scan")
        head: dict[str, list[object]] = {}
        with _reader_errors():
            if self._migrates:
                found = self._reader.scan_versions(collection, after, limit, self._spec.version)
                rows: Sequence[tuple[str, str, float | None]] = [row[:3] for row in found]
                head["older"] = [row[3] for row in found]
            else:
                rows = self._reader.scan(collection, after, limit)
        head |= {"keys": [row[0] for row in rows], "expires": [row[2] for row in rows]}
        return message((json.dumps(head).encode(), "\n".join(row[1] for row in rows).encode()))

    def _open(self, name: str) -> bytes:
        if not isinstance(name, str) or not name.isascii() or not 0 < len(name) <= 63:
            raise ValueError("name")
        known = self._collections.get(name)
        if known is None:
            if len(self._collections) >= self._spec.limits.collections:
                what = f"a function may have at most {self._spec.limits.collections} state collections (collections)"
                return message((json.dumps({"error": what}).encode(),))
            try:
                known = self._reader.collection(name)
            except ValueError as error:  # refused: the fault of the event that asked
                return message((json.dumps({"error": str(error)}).encode(),))
            self._collections[name] = known
            self._collection_ids |= {known.id}
        return message((json.dumps({"id": known.id, "ttl_ms": known.ttl_ms, "refresh": known.refresh}).encode(),))

    def _check_collection(self, collection: int) -> None:
        if type(collection) is not int or collection not in self._collection_ids:  # true and 1.0 equal 1
            raise ValueError("collection")


class ReaderFailed(JeetError):
    """The state reader raised what looks like the guest's mistake but is its own."""


@contextmanager
def _reader_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReaderFailed(f"state could not be read: {error!r}") from error


def ask_driver(machine: Machine, caller: Caller, budget: Budget, *sections: bytes) -> list[bytes]:
    """Give a command outside a batch; the answer's sections, or DriverRefused with what the driver said."""
    answers: list[bytes] = []

    def on_frame(op: int, payload: bytes) -> bytes | None:
        if op == OP_ANSWER:
            answers.append(payload)
        else:
            machine.violate("state or output outside an event")
        return None

    machine.on_frame = on_frame
    machine.give(*sections)
    caller.call_driver(machine, budget)
    found = split_sections(answers[0]) if len(answers) == 1 else None
    if not found:
        raise DriverRefused("the driver gave no answer", "")
    if found[0] != b"true":
        texts = [part.decode("utf-8", "replace") for part in found[1:]] + ["", ""]
        raise DriverRefused(texts[0], texts[1])
    return found[1:]


class DriverRefused(JeetError):
    """The driver answered a command with an error."""

    def __init__(self, error: str, stack: str) -> None:
        self.error = error
        self.stack = stack
        super().__init__(error)


def condemned_fault(index: int, error: str) -> Fault:
    """A fault that the host finds before an event runs."""
    return Fault(index=index, error=error, stack="", state_key=None)
