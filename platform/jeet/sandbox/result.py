"""A guest's result, checked: everything in it is hostile until it has passed here.

Checked: counts against columns; stream, collection and operator against what was declared and opened; sources within
the batch and never falling; times within the years that can be written; sizes against the limits; texts by the gate.
What fails raises GuestViolation, and nothing of the batch may be used.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NoReturn, get_args

from jeet.limits import DEFAULTS
from jeet.sandbox.call import (
    BatchInput,
    BatchResult,
    Fault,
    GuestViolation,
    InstanceSpec,
    Late,
    LogLevel,
    LogLine,
    OutputGroup,
    StateWrites,
    TimerSet,
)
from jeet.sandbox.frames import split_sections
from jeet.sandbox.gate import Verdict, are_keys, check_column, cut_text
from jeet.sandbox.limits import Limits

_LEVELS = frozenset(get_args(LogLevel))
_MAX_LOG_BYTES = 2 * 1024 * 1024
LOG_MARK_BYTES = 200
"""room for the mark with which the guest cuts an event's log"""
MIN_TIME_MS, MAX_TIME_MS = -62_135_596_800_000, 253_402_300_799_999
"""the years 1 to 9999: event times and the times of timers, in milliseconds since the epoch"""
_TIME = re.compile(r"0|-?[1-9][0-9]{0,14}")
STATE_KEY_BYTES = DEFAULTS["key_bytes"] + 80
"""of a dead letter's state key: the key and its collection"""


class TextRefused(Exception):
    """The gate refused one text. Honest guests leave some checks to the host, so the event behind it gets a second run.

    `event` is the index of the event that made it; for state only `collection` and `key` (a JSON string) are known.
    """

    def __init__(self, verdict: Verdict, *, event: int | None = None, collection: int = 0, key: str = "") -> None:
        self.verdict = verdict
        self.event = event
        self.collection = collection
        self.key = key
        super().__init__(str(verdict))


class _Sections:
    def __init__(self, payload: bytes, fail: Callable[[str], NoReturn]) -> None:
        self._fail = fail
        sections = split_sections(payload)
        if not sections:
            fail("the result is not made of sections")
        self._left = iter(sections)

    def next(self) -> bytes:
        section = next(self._left, None)
        if section is None:
            self._fail("a column is missing")
        return section

    def judged(self, count: int, limit: int, what: str, limits: Limits, size_name: str) -> tuple[str, Verdict | None]:
        """A text column of `count` JSON values, an empty one when count is 0, and what the gate says of it."""
        data = self.next()
        if count == 0:
            if data:
                self._fail(f"{what}: a column that should be empty")
            return "", None
        lines = data.count(b"\n") + 1
        if lines != count:
            self._fail(f"{what}: {lines} lines where {count} were announced")
        fault = check_column(data, limit, limits, size_name=size_name)
        try:
            return data.decode("utf-8"), fault
        except UnicodeDecodeError:
            self._fail(f"{what}: not UTF-8")

    def keys(self, count: int, what: str, limits: Limits, *, nullable: bool = False) -> str:
        """A column of JSON strings (or nulls) of at most key_bytes each."""
        column, fault = self.judged(count, limits.key_bytes * 6 + 2, what, limits, "key_bytes")
        if fault is not None:
            self._fail(f"{what}: {fault}")
        if count and not are_keys(column, count, limits.key_bytes, nullable=nullable):
            self._fail(f"{what}: a key that is no string of at most {limits.key_bytes} bytes")
        return column

    def done(self) -> None:
        for _ in self._left:
            self._fail("more columns than announced")


def read_result(
    payload: bytes,
    batch: BatchInput,
    spec: InstanceSpec,
    collections: frozenset[int],
    place: Callable[[str], str],
    sequence: int,
    memory_bytes: int,
    operators: Collection[str] = (),
) -> BatchResult:
    """The columns of a batch, or GuestViolation or TextRefused. `place` makes stacks name the user's file.

    `operators` are the names of those that may set timers.
    """

    def fail(what: str) -> NoReturn:
        raise GuestViolation(f"the guest broke the rules of its result: {what}", suspects=range(batch.count))

    sections = _Sections(payload, fail)
    try:
        head: dict[str, Any] = json.loads(sections.next())
        processed = head["processed"]
        if not _is_count(processed, batch.count) or (processed == 0 and batch.count > 0):
            fail(f"{processed!r} events processed of {batch.count}")
        outputs = [_output(sections, entry, processed, batch, spec, fail) for entry in head["outputs"]]
        writes = [_writes(sections, entry, collections, spec.limits, fail) for entry in head["state"]]
        faults = [_fault(entry, processed, spec, place, fail) for entry in head["faults"]]
        logs = _logs(head["logs"], processed, spec.limits.log_bytes, fail)
        most = processed * spec.limits.outputs_per_event
        timers = _timers(head.get("timers", []), most, operators, spec.limits, fail)
        late, late_count = _late(head.get("late", []), head.get("late_count", 0), processed, most, spec.limits, fail)
        highest_ms = head.get("highest")
        if highest_ms is not None and not _is_time(highest_ms):
            fail(f"a highest event time of {highest_ms!r}")
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        fail(f"it cannot be read ({type(error).__name__})")
    sections.done()
    if len({group.stream for group in outputs}) != len(outputs):
        fail("two columns for one stream")
    if len({write.collection for write in writes}) != len(writes):
        fail("two columns for one collection")
    faults.extend(fault for index, fault in batch.condemned.items() if index < processed)
    faults.sort(key=lambda fault: fault.index)
    for earlier, later in pairwise(faults):
        if earlier.index == later.index:
            fail("two faults of one event")
    return BatchResult(
        processed=processed,
        outputs=outputs,
        state=writes,
        faults=faults,
        logs=logs,
        memory_bytes=memory_bytes,
        sequence=sequence,
        timers=timers,
        late=late,
        late_count=late_count,
        highest_ms=highest_ms,
    )


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and MIN_TIME_MS <= value <= MAX_TIME_MS


def _output(
    sections: _Sections,
    entry: Any,
    processed: int,
    batch: BatchInput,
    spec: InstanceSpec,
    fail: Callable[[str], NoReturn],
) -> OutputGroup:
    stream, count, has_keys, has_sources = entry
    if not _is_count(stream, len(spec.outputs) - 1):
        fail(f"output stream {stream!r} is not declared")
    if not _is_count(count, processed * spec.limits.outputs_per_event) or count == 0:
        fail(f"{count!r} outputs from {processed} events")
    values, fault = sections.judged(count, spec.limits.output_bytes, "outputs", spec.limits, "output_bytes")
    keys = sections.keys(count, "output keys", spec.limits, nullable=True) if has_keys else None
    sources: Sequence[int] | None = None
    if has_sources:
        found = array("I")
        data = sections.next()
        if len(data) != 4 * count:
            fail("a column of sources of the wrong length")
        found.frombytes(data)
        before = 0
        for source in found:
            if source < before or source >= processed:
                fail("sources that fall, or name events beyond the batch")
            before = source
        sources = found.tolist()
    elif count != processed:
        fail("outputs without sources")
    times = _times(sections, count, fail) if spec.outputs[stream].internal else None
    if fault is not None:
        raise TextRefused(fault, event=fault.line if sources is None else sources[fault.line])
    if keys is None:
        keys = _keys_of_sources(batch, count, sources)
    return OutputGroup(stream=stream, count=count, keys=keys, values=values, sources=sources, times=times)


def _times(sections: _Sections, count: int, fail: Callable[[str], NoReturn]) -> str:
    column = sections.next().decode("ascii")
    lines = column.split("\n")
    if len(lines) != count:
        fail(f"times: {len(lines)} lines where {count} were announced")
    if not all(_TIME.fullmatch(line) and MIN_TIME_MS <= int(line) <= MAX_TIME_MS for line in lines):
        fail("times: one that is none")
    return column


def _keys_of_sources(batch: BatchInput, count: int, sources: Sequence[int] | None) -> str:
    """Each output has the key of the event that made it."""
    if not batch.keys or (sources is None and count == batch.count):
        return batch.keys.decode()
    lines = batch.keys.decode().split("\n")
    return "\n".join(lines[:count] if sources is None else [lines[source] for source in sources])


def _writes(
    sections: _Sections, entry: Any, collections: frozenset[int], limits: Limits, fail: Callable[[str], NoReturn]
) -> StateWrites:
    collection, puts, deletes, touched = entry
    if not _is_count(collection, 2**63 - 1) or collection not in collections:
        fail(f"state collection {collection!r} was not opened")
    if not all(_is_count(value, 100_000_000) for value in (puts, deletes, touched)):
        fail("state counts that are no counts")
    put_keys = sections.keys(puts, "state keys", limits)
    put_values, fault = sections.judged(puts, limits.state_value_bytes, "state values", limits, "state_value_bytes")
    if fault is not None:
        raise TextRefused(fault, collection=collection, key=put_keys.split("\n")[fault.line])
    return StateWrites(
        collection=collection,
        puts=puts,
        put_keys=put_keys,
        put_values=put_values,
        deletes=deletes,
        delete_keys=sections.keys(deletes, "deleted state keys", limits),
        touched=touched,
        touched_keys=sections.keys(touched, "touched state keys", limits),
    )


def _fault(
    entry: Any, processed: int, spec: InstanceSpec, place: Callable[[str], str], fail: Callable[[str], NoReturn]
) -> Fault:
    index, error, stack, key = entry
    if not _is_count(index, processed - 1) or not isinstance(error, str) or not isinstance(stack, str):
        fail("a fault that is none")
    limit = spec.limits.dead_letter_bytes
    state_key = cut_text(key, STATE_KEY_BYTES) if isinstance(key, str) else None
    return Fault(index=index, error=cut_text(error, limit), stack=cut_text(place(stack), limit), state_key=state_key)


def _timers(
    entries: Any, most: int, operators: Collection[str], limits: Limits, fail: Callable[[str], NoReturn]
) -> list[TimerSet]:
    if not isinstance(entries, list) or len(entries) > most:
        fail("more timers than outputs may be made")
    timers = []
    seen = set()
    for operator, key, name, at_ms, wall in entries:
        if not isinstance(operator, str) or operator not in operators:
            fail(f"a timer of {operator!r}, which is no operator of this stage")
        if not _is_key(key, limits.key_bytes) or not _is_key(name, limits.key_bytes):
            fail(f"a timer whose key or name is no string of at most {limits.key_bytes} bytes")
        if (at_ms is not None and not _is_time(at_ms)) or not isinstance(wall, bool):
            fail("a timer at no time")
        if (operator, key, name) in seen:
            fail("two words on one timer")
        seen.add((operator, key, name))
        timers.append(TimerSet(operator, key, name, at_ms, wall))
    return timers


def _is_key(text: object, key_bytes: int) -> bool:
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        return len(text.encode()) <= key_bytes
    except UnicodeEncodeError:
        return False


def _late(
    entries: Any, count: Any, processed: int, most: int, limits: Limits, fail: Callable[[str], NoReturn]
) -> tuple[list[Late], int]:
    if not isinstance(entries, list) or len(entries) > processed or not _is_count(count, most) or count < len(entries):
        fail("late events that are none")
    late: list[Late] = []
    for index, text in entries:
        if not _is_count(index, processed - 1) or not isinstance(text, str) or (late and index <= late[-1].index):
            fail("a late event that is none")
        late.append(Late(index, cut_text(text, limits.dead_letter_bytes)))
    return late, count


def _logs(entries: Any, processed: int, limit: int, fail: Callable[[str], NoReturn]) -> list[LogLine]:
    lines = []
    size = 0
    left: dict[int, int] = {}
    for index, level, message in entries:
        if (
            not isinstance(index, int)
            or not -1 <= index < max(processed, 1)
            or level not in _LEVELS
            or not isinstance(message, str)
        ):
            fail("a log line that is none")
        size += len(message)
        if size > _MAX_LOG_BYTES:
            fail("more log text than a batch may have")
        # The guest counts characters, as bytes would cost it more; here they are counted.
        room = left.get(index, limit + LOG_MARK_BYTES)
        if room > 0:
            lines.append(LogLine(index=index, level=level, message=cut_text(message, max(room, LOG_MARK_BYTES))))
            left[index] = room - len(message.encode("utf-8", "surrogatepass"))
    return lines
