"""Stages of a graph run by hand: a plan, an in-memory task, and events cut into batches at will."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jeet.local import Done, Entry, LocalTask, MemoryState
from jeet.plan import StageInput, StageOutput, StagePlan
from jeet.sandbox.call import InstanceSpec, OutputStream, StateConfig
from jeet.sandbox.plugin import Compiled, Plugin

from .conftest import PATIENT

_compiled: dict[tuple[str, str], Compiled] = {}


def plan_of(*inputs: StageInput, outputs: Sequence[StageOutput] = (), **more: Any) -> StagePlan:
    """A plan of the usual form: a sink, and a stream for late events."""
    return StagePlan(
        inputs=inputs or (StageInput("in"),),
        outputs=tuple(outputs) or (StageOutput("out"), StageOutput("late")),
        **{"timed": True, **more},
    )


@dataclass
class Seen:
    """What a stage has done, in order."""

    outputs: list[tuple[int, str | None, Any, float | None]] = field(default_factory=list)
    """(stream, key, value, time)"""
    faults: list[tuple[Any, str]] = field(default_factory=list)
    """(event, error)"""
    late: list[Any] = field(default_factory=list)
    """events"""
    late_count: int = 0

    def values(self, stream: int = 0) -> list[Any]:
        return [value for place, _, value, _ in self.outputs if place == stream]

    def add(self, all_done: Iterable[Done]) -> None:
        for done in all_done:
            events = [json.loads(entry.value) for entry in done.entries]
            made = []
            for group in done.result.outputs:
                sources = group.sources if group.sources is not None else range(group.count)
                times = [None] * group.count if group.times is None else [float(t) for t in group.times.split("\n")]
                keys = group.keys.split("\n") if group.keys else ["null"] * group.count
                for source, key, value, ms in zip(sources, keys, group.values.split("\n"), times, strict=True):
                    made.append((source, (group.stream, json.loads(key), json.loads(value), ms)))
            self.outputs += [output for _, output in sorted(made, key=lambda each: each[0])]
            self.faults += [(events[fault.index], fault.error) for fault in done.result.faults]
            self.late += [events[late.index] for late in done.result.late]
            self.late_count += done.result.late_count


@dataclass
class Stage:
    """A task in memory and what it has done."""

    task: LocalTask
    seen: Seen = field(default_factory=Seen)

    def feed(self, events: Iterable[tuple[str | None, Any, float]], place: int = 0, cut: int = 1000) -> Seen:
        """(key, value, time) each, in batches of `cut`."""
        entries = [Entry(json.dumps(value), json.dumps(key), ms) for key, value, ms in events]
        for start in range(0, len(entries), cut):
            self.seen.add(self.task.run(place, entries[start : start + cut]))
        return self.seen

    def hear(self, watermark_ms: float, place: int = 0) -> Seen:
        self.task.hear({place: watermark_ms})
        self.seen.add(self.task.fire_due())
        return self.seen

    def finish(self) -> Seen:
        self.seen.add(self.task.finish())
        return self.seen

    def state(self, name: str) -> dict[str, Any]:
        number = self.task.state.names.get(name, 0)
        return {key: json.loads(row[0]) for key, row in sorted(self.task.state.rows.get(number, {}).items())}

    def timers(self) -> list[tuple[str, str, str, float, bool]]:
        """(operator, key, name, at, wall), by time."""
        return [
            (timer.operator, timer.key, timer.name, timer.at_ms, timer.wall)
            for timer in sorted(self.task.timers.values(), key=lambda timer: (timer.at_ms, *timer.place))
        ]


Open = Callable[..., Stage]


def open_stage(
    plugin: Plugin, source: str, plan: StagePlan | None = None, states: dict[str, StateConfig] | None = None
) -> Stage:
    """A stage of this code; close its task."""
    compiled = _compiled.get((plugin.hash, source))
    if compiled is None:
        compiled = _compiled[plugin.hash, source] = plugin.compile(source, "function.js")
    chosen = plan or plan_of()
    spec = InstanceSpec(
        function="f",
        version=1,
        partition=0,
        outputs=tuple(OutputStream(each.stream or "", each.key, each.internal) for each in chosen.outputs),
        sink=chosen.outputs[0].stream is not None,
        slice_ms=60_000,
        limits=PATIENT,
        plan=chosen,
    )
    state = MemoryState(states)
    return Stage(LocalTask(chosen, state, lambda: plugin.instantiate(compiled, spec, state)))
