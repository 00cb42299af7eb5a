"""What one batch of one task wants written: values only, taken from the guest's answer and made safe on the way.

Promise: nothing here was named by the guest. Task, stream, version and offsets come from the lease and the
checkpoint; output streams and collections are looked up by index. Text for dead letters and logs holds nothing that
Postgres refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from jeet.control.lease import Lease
from jeet.ids import Offset, StreamId
from jeet.limits import DEFAULTS
from jeet.sandbox.call import BatchInput, BatchResult, Fault, LogLine, OutputGroup, TimerSet
from jeet.sandbox.gate import cut_text
from jeet.sandbox.result import LOG_MARK_BYTES, STATE_KEY_BYTES

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> bool:
    """Whether Postgres can store `text` as it is."""
    return _UNSTORABLE.search(text) is None


@dataclass(frozen=True)
class DeadLetter:
    offset: Offset | None
    """None: a timer, which has none"""
    key: str | None
    event: str
    error: str
    stack: str
    state_key: str | None
    attempts: int


@dataclass(frozen=True)
class LoggedLine:
    offset: Offset | None
    """None: written while no event was running"""
    level: str
    message: str


@dataclass(frozen=True)
class Puts:
    collection: int
    expires_at_ms: float | None
    rows: int
    keys: str
    values: str


@dataclass(frozen=True)
class Touches:
    collection: int
    expires_at_ms: float | None
    keys: str


@dataclass(frozen=True)
class Deletes:
    collection: int
    keys: str


@dataclass(frozen=True)
class Output:
    stream: StreamId
    keys: str
    values: str
    times: str = ""
    """event time of each, in whole milliseconds since the epoch; empty: none has one"""


@dataclass(frozen=True)
class Timer:
    """A timer that is due, as it was read."""

    operator: str
    key: str
    name: str
    at_ms: float
    wall: bool


@dataclass(frozen=True)
class Effects:
    """One task's part of a commit. `[start, end)` of `stream` is consumed; without a stream, only inbox entries are."""

    lease: Lease
    stream: StreamId | None
    start: Offset
    end: Offset
    puts: Sequence[Puts] = ()
    touches: Sequence[Touches] = ()
    deletes: Sequence[Deletes] = ()
    outputs: Sequence[Output] = ()
    dead_letters: Sequence[DeadLetter] = ()
    logs: Sequence[LoggedLine] = ()
    redriven: Sequence[int] = ()
    inbox: Sequence[int] = ()
    origin: StreamId | None = None
    """the input stream that dead letters belong to"""
    clear_suspects: bool = False
    timed: bool = False
    """the task goes by event time"""
    clock_ms: float | None = None
    """event time that the task has reached with this"""
    watermark_ms: float | None = None
    """event time up to which the input has been seen with this"""
    late: int = 0
    timers: Sequence[TimerSet] = ()
    fired: Sequence[Timer] = ()
    """timers that are done with, unless they are in `timers` again"""


@dataclass(frozen=True)
class Events:
    """Some events of one task's input as they were read: what the guest gets, and where they came from."""

    stream: StreamId | None
    batch: BatchInput
    inbox: Sequence[int] = ()
    """ids of the dead letters that these are; empty for events read in order"""
    timers: Sequence[Timer] = ()
    """no events, but timers that are due: they have no offsets"""

    @property
    def start(self) -> Offset:
        return Offset(self.batch.first_offset)

    def offset(self, index: int) -> Offset:
        return Offset(self.batch.first_offset + index if self.batch.offsets is None else self.batch.offsets[index])

    def name(self, index: int) -> str:
        """What a person calls it."""
        if not self.timers:
            return f"offset {self.offset(index)}"
        timer = self.timers[index]
        return f"timer {timer.name!r} of {timer.operator}, key {timer.key!r}"


def effects_of(
    lease: Lease, events: Events, result: BatchResult, ttl_ms: Mapping[int, float | None], *, attempts: int
) -> Effects:
    """What is to be written for `result`, the guest's answer to `events` (all of them if they come from the inbox)."""
    # A late event did what it did, and is in the dead letters all the same; redriven, it is late again.
    letters = [*result.faults, *(Fault(late.index, late.message, "", None) for late in result.late)]
    batch = events.batch

    def expiry(collection: int) -> float | None:
        # As stored: what everybody compares with the clock is expires_at + ttl_hold.
        ttl = ttl_ms.get(collection)
        return None if ttl is None else batch.now_ms + ttl - lease.ttl_hold_ms

    faulty = {fault.index for fault in letters}
    return Effects(
        lease=lease,
        stream=None if events.inbox or events.timers else events.stream,
        origin=events.stream,
        start=events.start,
        end=Offset(batch.first_offset + result.processed),
        puts=[
            Puts(w.collection, expiry(w.collection), w.puts, w.put_keys, w.put_values) for w in result.state if w.puts
        ],
        touches=[Touches(w.collection, expiry(w.collection), w.touched_keys) for w in result.state if w.touched],
        deletes=[Deletes(w.collection, w.delete_keys) for w in result.state if w.deletes],
        outputs=[output for group in result.outputs if (output := _output(lease, group))],
        dead_letters=dead_letters(events, letters, attempts),
        logs=[logged(events, line) for line in result.logs],
        redriven=[letter for index, letter in enumerate(events.inbox[: result.processed]) if index not in faulty],
        inbox=events.inbox[: result.processed],
        late=result.late_count,
        timers=result.timers,
        fired=events.timers[: result.processed],
    )


def dead_letters(events: Events, faults: Sequence[Fault], attempts: int) -> list[DeadLetter]:
    if not faults:
        return []
    values = events.batch.values.split(b"\n")
    keys = events.batch.keys.split(b"\n") if events.batch.keys else None
    return [
        DeadLetter(
            offset=None if events.timers else events.offset(fault.index),
            key=None if keys is None else _key(keys[fault.index]),
            event=_timer(events.timers[fault.index])
            if events.timers
            else cut_text(values[fault.index].decode(errors="replace"), DEFAULTS["event_bytes"]),
            error=cut_text(fault.error, DEFAULTS["dead_letter_bytes"]),
            stack=cut_text(fault.stack, DEFAULTS["dead_letter_bytes"]),
            state_key=None if fault.state_key is None else cut_text(fault.state_key, STATE_KEY_BYTES),
            attempts=attempts,
        )
        for fault in faults
    ]


def _timer(timer: Timer) -> str:
    """All that there is to know of it, but for its key: what `redrive_dead_letters` sets it by again."""
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timer.at_ms)
    facts = {
        "operator": timer.operator,
        "name": timer.name,
        "at": at.isoformat(timespec="milliseconds"),
        "wall": timer.wall,
    }
    return json.dumps({"timer": facts}, ensure_ascii=False)


def _key(text: bytes) -> str | None:
    key = json.loads(text)
    return None if key is None else cut_text(str(key), DEFAULTS["key_bytes"])


def logged(events: Events, line: LogLine) -> LoggedLine:
    """A line as it is stored."""
    offset = events.offset(line.index) if line.index >= 0 and not events.timers else None
    return LoggedLine(offset, line.level, cut_text(line.message, DEFAULTS["log_bytes"] + LOG_MARK_BYTES))


def _output(lease: Lease, group: OutputGroup) -> Output | None:
    stream = lease.outputs[group.stream]
    if stream is None or stream in lease.muted or group.count == 0:
        return None
    return Output(stream, group.keys, group.values, group.times or "")
