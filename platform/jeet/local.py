"""One stage of a function on one partition, in memory: what a task of a worker does, without a database.

Promise: the same events in the same order give the same outputs, however they are cut into batches. Timers fire when
nothing else of the task is running, in order of their time; the watermark that later stages may go by moves only when
all timers due at it have fired.
Times are milliseconds since the epoch. What a worker adds (recovery, fencing, idle inputs by the clock) is not here.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jeet.plan import StageInput, StagePlan
from jeet.sandbox.call import (
    BatchInput,
    BatchResult,
    CollectionInfo,
    Fault,
    GuestTrap,
    GuestViolation,
    StateConfig,
    TimerSet,
)
from jeet.sandbox.instance import Instance

TIMERS_AT_ONCE = 300
"""fired in one batch"""
END_MS = 253_402_300_799_999
"""the end of event time: of the year 9999"""


class MemoryState:
    """Keyed state in memory, as a StateReader; rows are (JSON text, expires_at_ms or None)."""

    def __init__(self, configs: Mapping[str, StateConfig] | None = None) -> None:
        self.configs = dict(configs or {})
        self.names: dict[str, int] = {}
        self.rows: dict[int, dict[str, tuple[str, float | None]]] = {}
        self.reads = 0
        self.versions: dict[tuple[int, str], int] = {}
        """by collection and key: entries of earlier versions, until they are written again"""

    def collection(self, name: str) -> CollectionInfo:
        number = self.names.setdefault(name, len(self.names) + 1)
        self.rows.setdefault(number, {})
        config = self.configs.get(name, StateConfig())
        return CollectionInfo(number, config.ttl_ms, config.refresh)

    def read(self, collection_id: int, keys: Sequence[str]) -> Sequence[tuple[str, float | None] | None]:
        self.reads += 1
        rows = self.rows[collection_id]
        return [rows.get(key) for key in keys]

    def scan(self, collection_id: int, after: str | None, limit: int) -> Sequence[tuple[str, str, float | None]]:
        self.reads += 1
        rows = self.rows[collection_id]
        start = None if after is None else after.encode()
        keys = sorted((key for key in rows if start is None or key.encode() > start), key=str.encode)
        return [(key, *rows[key]) for key in keys[:limit]]

    def read_versions(
        self, collection_id: int, keys: Sequence[str], version: int
    ) -> Sequence[tuple[str, float | None, int | None] | None]:
        return [
            row and (*row, self._older(collection_id, key, version))
            for key, row in zip(keys, self.read(collection_id, keys), strict=True)
        ]

    def scan_versions(
        self, collection_id: int, after: str | None, limit: int, version: int
    ) -> Sequence[tuple[str, str, float | None, int | None]]:
        return [(*row, self._older(collection_id, row[0], version)) for row in self.scan(collection_id, after, limit)]

    def _older(self, collection_id: int, key: str, version: int) -> int | None:
        written = self.versions.get((collection_id, key), version)
        return written if written < version else None

    def apply(self, result: BatchResult, now_ms: float) -> None:
        """Commit the writes of a batch that had this now_ms."""
        configs = {number: self.configs.get(name, StateConfig()) for name, number in self.names.items()}
        for write in result.state:
            rows = self.rows[write.collection]
            ttl = configs[write.collection].ttl_ms
            expires = None if ttl is None else now_ms + ttl
            if write.puts:
                values = write.put_values.split("\n")
                for key, value in zip(write.put_keys.split("\n"), values, strict=True):
                    rows[json.loads(key)] = (value, expires)
                    self.versions.pop((write.collection, json.loads(key)), None)
            if write.deletes:
                for key in write.delete_keys.split("\n"):
                    rows.pop(json.loads(key), None)
            if write.touched:
                for key in write.touched_keys.split("\n"):
                    name = json.loads(key)
                    rows[name] = (rows[name][0], expires)


@dataclass(frozen=True)
class Entry:
    """An event on its way into a stage; texts are JSON."""

    value: str
    key: str
    time_ms: float
    origin: int = -1
    """place among the events that were fed; -1: a timer made it"""


@dataclass(frozen=True)
class Done:
    """What one batch did, and what it was about."""

    entries: Sequence[Entry]
    result: BatchResult
    timers: bool = False


@dataclass(frozen=True)
class DueTimer:
    """A timer that is set."""

    at_ms: float
    operator: str
    key: str
    name: str
    wall: bool

    @property
    def place(self) -> tuple[str, str, str]:
        return self.operator, self.key, self.name


@dataclass
class _Input:
    """How far event time has come in one input."""

    source: StageInput
    highest_ms: float | None = None
    watermark_ms: float | None = None
    holds: bool = False
    """whether the task waits for it: not before it has caught up with the task"""
    fed: int = 0


class LocalTask:
    """Used by one thread; close it."""

    def __init__(
        self,
        plan: StagePlan,
        state: MemoryState,
        open_instance: Callable[[], Instance],
        *,
        batch_events: int = 1000,
        user_operators: frozenset[str] = frozenset(),
    ) -> None:
        self.plan = plan
        self.state = state
        self.timers: dict[tuple[str, str, str], DueTimer] = {}
        self.watermark_ms: float | None = None
        """what later stages may go by, less `plan.hold_ms`"""
        self._open_instance = open_instance
        self._batch_events = batch_events
        self._user_operators = user_operators
        self._inputs = [_Input(source) for source in plan.inputs]
        self._instance: Instance | None = None
        self._committed = 0
        self._reached_ms: float | None = None
        """the watermark that timers may fire by"""
        self._fired = 0

    def close(self) -> None:
        """Free the sandbox; state, timers and watermarks stay, and the next batch makes a new one."""
        if self._instance is not None:
            self._instance.close()
            self._instance = None

    def run(self, place: int, entries: Sequence[Entry]) -> Iterator[Done]:
        """Run events of an input, batch by batch, and after each the timers that it made due."""
        for start in range(0, len(entries), self._batch_events):
            for done in self._run_batches(place, entries[start : start + self._batch_events], ()):
                yield done
                self._move()
                yield from self.fire_due()

    def hear(self, watermarks_ms: Mapping[int, float]) -> None:
        """Internal inputs have been read up to what the stages before them know; all of them at once, as none waits."""
        for place, watermark_ms in watermarks_ms.items():
            self._inputs[place].watermark_ms = watermark_ms
        self._move()

    def fire_due(self) -> Iterator[Done]:
        """Fire what is due by the watermark and by the clock."""
        while due := self._due(time.time() * 1000)[:TIMERS_AT_ONCE]:
            yield from self._fire(due)
        self.watermark_ms = self._reached_ms

    def finish(self) -> Iterator[Done]:
        """The end of time: every window closes, and the user's timers that are set by now fire, of the clock too."""
        self._reached_ms = END_MS
        last = set(self.timers)
        while due := [timer for timer in self._sorted() if self._ends(timer, last)][:TIMERS_AT_ONCE]:
            last -= {timer.place for timer in due}
            yield from self._fire(due)
        self.watermark_ms = END_MS

    def _ends(self, timer: DueTimer, last: set[tuple[str, str, str]]) -> bool:
        # A timer of the user's that sets itself again would go on for ever.
        return timer.place in last or timer.operator not in self._user_operators

    def _due(self, now_ms: float) -> list[DueTimer]:
        reached = -math.inf if self._reached_ms is None else self._reached_ms
        return [timer for timer in self._sorted() if timer.at_ms <= (now_ms if timer.wall else reached)]

    def _sorted(self) -> list[DueTimer]:
        return sorted(self.timers.values(), key=lambda timer: (timer.at_ms, *timer.place))

    def _fire(self, due: Sequence[DueTimer]) -> Iterator[Done]:
        entries = [
            Entry(
                json.dumps({"operator": timer.operator, "name": timer.name, "wall": timer.wall}),
                json.dumps(timer.key),
                timer.at_ms,
            )
            for timer in due
        ]
        yield from self._run_batches(None, entries, due)

    def _run_batches(self, place: int | None, entries: Sequence[Entry], due: Sequence[DueTimer]) -> Iterator[Done]:
        """Until all have run; after a trap, those before the suspects, then each suspect alone."""
        start, alone = 0, range(0)
        while start < len(entries):
            end = start + 1 if start in alone else alone.start if start < alone.start else len(entries)
            batch = self._batch(place, entries[start:end])
            try:
                result = self._open().run(batch)
            except (GuestTrap, GuestViolation) as error:
                self.close()
                if batch.count > 1:
                    known = error.suspects if len(error.suspects) < batch.count else range(batch.count)
                    alone = range(start + known.start, start + known.stop)
                    continue
                result = BatchResult(1, (), (), (Fault(0, str(error), "", None),), (), 0)
            except BaseException:
                self.close()
                raise
            self._take(place, batch, result, due[start : start + result.processed])
            ran = entries[start : start + result.processed]
            start += result.processed
            if self._instance is not None and self._instance.recycle_due:
                self.close()
            yield Done(ran, result, timers=place is None)

    def _batch(self, place: int | None, entries: Sequence[Entry]) -> BatchInput:
        now = time.time() * 1000
        timed = None if place is None else self._inputs[place]
        times = [entry.time_ms for entry in entries]
        return BatchInput(
            first_offset=-1 - self._fired - len(entries) if timed is None else timed.fed,
            count=len(entries),
            values="\n".join([entry.value for entry in entries]).encode(),
            keys=b""
            if all(entry.key == "null" for entry in entries)
            else "\n".join([entry.key for entry in entries]).encode(),
            timestamps="\n".join([str(int(ms)) if ms == int(ms) else repr(ms) for ms in times]).encode(),
            now_ms=now,
            fetched_at=time.monotonic(),
            committed_through=self._committed,
            input=place or 0,
            timers=place is None,
            watermark_ms=self._reached_ms,
            highest_ms=None if timed is None else timed.highest_ms,
            bound_ms=None if place is None else self._bound(place),
        )

    def _bound(self, place: int | None) -> float | None:
        """What the inputs but this one hold the watermark to."""
        held = [
            each.watermark_ms
            for other, each in enumerate(self._inputs)
            if other != place and each.holds and each.watermark_ms is not None
        ]
        return min(held, default=None)

    def _take(self, place: int | None, batch: BatchInput, result: BatchResult, due: Sequence[DueTimer]) -> None:
        self.state.apply(result, batch.now_ms)
        self._committed = result.sequence
        for timer in due:
            self.timers.pop(timer.place, None)
        for timer_set in result.timers:
            self._set(timer_set)
        if place is None:
            self._fired += result.processed
            return
        timed = self._inputs[place]
        timed.fed += result.processed
        if result.highest_ms is not None:
            timed.highest_ms = result.highest_ms
            timed.watermark_ms = result.highest_ms - self.plan.delay_ms

    def _set(self, timer: TimerSet) -> None:
        place = timer.operator, timer.key, timer.name
        if timer.at_ms is None:
            self.timers.pop(place, None)
        else:
            self.timers[place] = DueTimer(timer.at_ms, *place, timer.wall)

    def _move(self) -> None:
        """Let the watermark follow the inputs: it never falls, and nothing ever seen holds nothing."""
        reached = -math.inf if self._reached_ms is None else self._reached_ms
        for each in self._inputs:
            if not each.source.table and each.watermark_ms is not None and each.watermark_ms >= reached:
                each.holds = True
        held = self._bound(None)
        if held is not None and held > reached:
            self._reached_ms = held

    def _open(self) -> Instance:
        if self._instance is None:
            self._instance = self._open_instance()
            self._committed = 0
        return self._instance
