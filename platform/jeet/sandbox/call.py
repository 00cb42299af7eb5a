"""What goes into a guest call and what comes out: columns, not events.

All text columns are JSON texts joined by newlines (JSON text holds no raw newline). Nothing here runs code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from jeet.errors import SandboxError
from jeet.plan import WHOLE, StagePlan
from jeet.sandbox.limits import Limits

TrapKind = Literal["timeout", "memory", "stack", "abort"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class Fault:
    """One event that failed: its index in the batch, and what a dead letter needs."""

    index: int
    error: str
    stack: str
    state_key: str | None


@dataclass(frozen=True)
class LogLine:
    """One console line; index -1 when no event was running."""

    index: int
    level: LogLevel
    message: str


@dataclass(frozen=True)
class BatchInput:
    """A run of events of one partition, as columns."""

    first_offset: int
    count: int
    values: bytes
    keys: bytes = b""
    timestamps: bytes = b""
    headers: bytes = b""
    now_ms: float = 0.0
    fetched_at: float = 0.0
    attempts: int = 1
    committed_through: int = 0
    """batches of this instance (counted from 1 by run()) known to be committed"""
    offsets: Sequence[int] | None = None
    condemned: Mapping[int, Fault] = field(default_factory=dict)
    input: int = 0
    """place of the input in the stage's plan that these events come from"""
    timers: bool = False
    """these are timers that are due, not events: values {"operator", "name", "wall"}, keys, timestamps their time"""
    watermark_ms: float | None = None
    """the task's watermark before this batch; None: none yet"""
    highest_ms: float | None = None
    """highest event time seen in this input before this batch (inputs that are not internal)"""
    bound_ms: float | None = None
    """what the task's other inputs hold the watermark to; None: nothing holds it"""


@dataclass(frozen=True)
class OutputGroup:
    """All outputs of a batch to one declared stream, in order."""

    stream: int
    count: int
    keys: str
    values: str
    sources: Sequence[int] | None
    """index of the event that made each, never falling; None: exactly one from each event 0 … count-1"""
    times: str | None = None
    """event time of each in milliseconds since the epoch, whole numbers joined by newlines; internal streams only"""


@dataclass(frozen=True)
class StateWrites:
    """The final value of each key of a collection that the batch changed."""

    collection: int
    puts: int
    put_keys: str
    put_values: str
    deletes: int
    delete_keys: str
    touched: int
    touched_keys: str


@dataclass(frozen=True)
class TimerSet:
    """A timer that a batch set, moved or cancelled: the last word on it."""

    operator: str
    """name of the operator that it belongs to"""
    key: str
    name: str
    at_ms: float | None
    """milliseconds since the epoch; None: cancelled"""
    wall: bool = False
    """compared with the clock; else with the watermark"""


@dataclass(frozen=True)
class Late:
    """An event that came after all its windows had closed: a dead letter, but no failure; its other effects stay."""

    index: int
    message: str


@dataclass(frozen=True)
class BatchResult:
    """What a batch did. `processed` may be less than the count given: the time slice was over."""

    processed: int
    outputs: Sequence[OutputGroup]
    state: Sequence[StateWrites]
    faults: Sequence[Fault]
    logs: Sequence[LogLine]
    memory_bytes: int
    sequence: int = 0
    """number of this batch in its instance, from 1: what committed_through counts"""
    timers: Sequence[TimerSet] = ()
    late: Sequence[Late] = ()
    """what goes to the dead letters; late events that were sent to a stream of their own are only counted"""
    late_count: int = 0
    """of both"""
    highest_ms: float | None = None
    """highest event time seen in this input, this batch included"""


@dataclass(frozen=True)
class CollectionInfo:
    """A registered state collection."""

    id: int
    ttl_ms: int | None
    refresh: Literal["write", "access"]


class StateReader(Protocol):
    """How a guest reads state. Called from inside the guest call, in the sandbox thread, blocking.

    What it raises ends the guest call and leaves Instance.run as it is, with the instance dead.
    """

    def collection(self, name: str) -> CollectionInfo:
        """Register the collection if it is new; a ValueError is a fault of the event that asked."""
        ...

    def read(self, collection_id: int, keys: Sequence[str]) -> Sequence[tuple[str, float | None] | None]:
        """(JSON text, expires_at_ms or None) for each key, None where there is none; expired rows may be included."""
        ...

    def scan(self, collection_id: int, after: str | None, limit: int) -> Sequence[tuple[str, str, float | None]]:
        """(key, JSON text, expires_at_ms or None) in order of the keys' UTF-8 bytes."""
        ...

    def read_versions(
        self, collection_id: int, keys: Sequence[str], version: int
    ) -> Sequence[tuple[str, float | None, int | None] | None]:
        """As `read`, each with the version of the function that wrote it if that was before `version`, else None; 0 if
        that is not known. Asked of functions that migrate what earlier versions wrote."""
        ...

    def scan_versions(
        self, collection_id: int, after: str | None, limit: int, version: int
    ) -> Sequence[tuple[str, str, float | None, int | None]]:
        """As `scan`, each with that."""
        ...


@dataclass(frozen=True)
class OutputStream:
    """A stream that a version may write to; `key` is the path of the key in the value, e.g. 'user.id'."""

    name: str
    key: str | None = None
    internal: bool = False


@dataclass(frozen=True)
class StateConfig:
    """How a collection keeps its values."""

    ttl_ms: int | None = None
    refresh: Literal["write", "access"] = "write"


@dataclass(frozen=True)
class InstanceSpec:
    """One version of a function on one partition."""

    function: str
    version: int
    partition: int
    outputs: Sequence[OutputStream] = ()
    sink: bool = True
    """outputs[0] is the sink; without one, results of handlers go nowhere"""
    input_schema: Mapping[str, Any] | bool | None = None
    """JSON Schema 2020-12 of the events"""
    limits: Limits = field(default_factory=Limits)
    slice_ms: float = 50.0
    """a batch ends early after about so much CPU time, or four times as long"""
    cache_entries: int = 50_000
    cache_bytes: int = 8 * 1024 * 1024
    """bounds of the state cache inside the guest"""
    plan: StagePlan = WHOLE
    """which part of the graph runs here; its outputs are those above"""


class GuestTrap(SandboxError):
    """The guest was stopped: it ran too long, took too much memory or stack, or aborted. The instance is gone.

    `suspects` are the indexes of the events among which the guilty one is.
    """

    def __init__(self, message: str, *, kind: TrapKind, suspects: range) -> None:
        self.kind: TrapKind = kind
        self.suspects = suspects
        super().__init__(message)


class GuestViolation(SandboxError):
    """The guest returned what no honest driver returns; nothing of it may be used. The instance is gone."""

    def __init__(self, message: str, *, suspects: range) -> None:
        self.suspects = suspects
        super().__init__(message)
