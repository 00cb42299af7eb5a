"""Run a function on events without a cluster: state in memory, results at once.

    with LocalFunction.from_file("totals.js", key="userId") as totals:
        run = totals.feed([{"userId": "u1", "amount": 5}, {"userId": "u1", "amount": 7}])
        assert [out["currentTotal"] for out in run.values()] == [5, 12]
        assert totals.state("totals") == {"u1": 12}

The same sandbox, driver, limits and isolation as in a worker; what a worker adds (partitions, exactly once, recovery)
is not here. Events are taken as one partition, in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from jeet.control.graph import StreamFacts
from jeet.control.planner import Plan, PlanSettings
from jeet.control.planner import plan as plan_graph
from jeet.errors import DeployError, Refused, SandboxError
from jeet.local import Done, Entry, LocalTask, MemoryState
from jeet.sandbox.call import InstanceSpec, LogLine, OutputStream, StateConfig
from jeet.sandbox.describe import operator_state
from jeet.sandbox.durations import duration_ms
from jeet.sandbox.engine import Engine
from jeet.sandbox.gate import Verdict, canonical, check_json, key_of
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Compiled, Plugin
from jeet.sandbox.source import decode_source
from jeet.settings import Settings

SINK = "sink"
_NO_BREAKS = {ord("\n"): " ", ord("\r"): " "}  # between tokens a space is as good, as in the log


@dataclass(frozen=True)
class Output:
    """One output: to which stream, under which key, made by which event of all those fed (-1: by a timer)."""

    stream: str
    key: str | None
    value: Any
    event: int


@dataclass(frozen=True)
class Failure:
    """An event that would be a dead letter."""

    event: int
    error: str
    stack: str
    state_key: str | None


@dataclass(frozen=True)
class LateEvent:
    """An event that came after all its windows had closed, and that no stream is named for (lateTo)."""

    event: int
    message: str


@dataclass
class Run:
    """What a feed did."""

    outputs: list[Output] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    late: list[LateEvent] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)

    def values(self, stream: str = SINK) -> list[Any]:
        """The values that went to a stream."""
        return [output.value for output in self.outputs if output.stream == stream]


class LocalFunction:
    """A deployed function in this process, all its stages. Use it in one thread; close it, or use it in a `with`."""

    def __init__(
        self,
        source: str,
        filename: str = "function.js",
        *,
        key: str | None = None,
        keys: Mapping[str, str] | None = None,
        sink: str = SINK,
        plugin: Plugin | None = None,
        plugin_path: Path | None = None,
        cache_dir: Path | None = None,
        limits: Limits = Limits(),  # noqa: B008  frozen
        batch_events: int = 1000,
    ) -> None:
        """`key` is the path of the key in the source's events, `keys` the same for other streams that it reads."""
        self._engine: Engine | None = None
        self._tasks: list[LocalTask] = []
        try:
            if plugin is None:
                self._engine = Engine(cache_dir or Settings.from_environment().sandbox_cache)
                plugin = self._engine.load_plugin(plugin_path)
            self._plugin = plugin
            self._compiled: Compiled = self._plugin.compile(source, filename, limits)
            self.description = self._plugin.describe(self._compiled)
            config = self.description.config or {}
            path = key if key is not None else config.get("key")
            self.source = str(config.get("source") or "source")
            self._paths = {name: _path(found) for name, found in (keys or {}).items()}
            self._paths[self.source] = _path(path)
            plan = self._plan(filename, path, sink)
            self._states = [MemoryState(self._state_configs(config)) for _ in plan.stages]
        except BaseException:
            self.close()
            raise
        self._plans = plan.stages
        self._batch_events = batch_events
        self._specs = [
            InstanceSpec(
                function=Path(filename).stem,
                version=1,
                partition=0,
                outputs=tuple(OutputStream(each.stream or "", each.key, each.internal) for each in stage.outputs),
                sink=stage.outputs[0].stream is not None,
                input_schema=config.get("input"),
                limits=limits,
                plan=stage,
            )
            for stage in plan.stages
        ]
        self._tasks = [self._task(number) for number in range(len(plan.stages))]
        self._limits = limits
        self._fed = 0
        self._waiting: dict[str, list[Entry]] = {}
        """what stages have made for later ones, by internal stream"""

    @staticmethod
    def from_file(path: str | Path, **options: Any) -> LocalFunction:
        """A function in a file."""
        file = Path(path)
        return LocalFunction(decode_source(file.read_bytes(), file.name), file.name, **options)

    def _plan(self, filename: str, path: str | None, sink: str) -> Plan:
        graph = self.description.graph
        outputs = tuple(emit.name for emit in self.description.emits if emit.name != sink)
        settings = PlanSettings(
            function=Path(filename).stem,
            source=self.source,
            filename=filename,
            sink=sink,
            key=path,
            outputs=outputs,
            emits=frozenset({*outputs, sink}),
        )
        read = [str(node["stream"]) for node in graph if node["op"] in ("source", "table") and node["id"] > 0]
        streams = {name: StreamFacts(1) for name in read}
        streams[self.source] = StreamFacts(1, path)
        return plan_graph(graph, settings, streams)

    def _state_configs(self, config: Mapping[str, Any]) -> dict[str, StateConfig]:
        operators = operator_state(self.description.graph).items()
        return {**{name: StateConfig(ttl) for name, ttl in operators if ttl is not None}, **state_configs(config)}

    def _task(self, number: int) -> LocalTask:
        spec, state = self._specs[number], self._states[number]
        return LocalTask(
            spec.plan,
            state,
            lambda: self._plugin.instantiate(self._compiled, spec, state),
            batch_events=self._batch_events,
            user_operators=frozenset(node["name"] for node in self.description.graph if node["op"] == "onTimer"),
        )

    def __enter__(self) -> LocalFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the sandbox."""
        for task in self._tasks:
            task.close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def collections(self) -> list[str]:
        """The collections that events have touched so far."""
        return list(dict.fromkeys(name for state in self._states for name in state.names))

    def state(self, collection: str) -> dict[str, Any]:
        """A collection as it is committed, in key order; one that several stages keep, of all of them."""
        rows: dict[str, Any] = {}
        for state in self._states:
            rows |= state.rows.get(state.names.get(collection, 0), {})
        return {key: json.loads(rows[key][0]) for key in sorted(rows, key=str.encode)}

    def feed(self, events: Iterable[Any], *, stream: str | None = None, times_ms: Sequence[float] | None = None) -> Run:
        """Process JSON values in order. Raises ValueError for an event that no stream would accept.

        `stream`: where they are published, by default the function's source. `times_ms`: when, by default now.
        """
        return self.feed_texts([canonical(event) for event in events], stream=stream, times_ms=times_ms)

    def feed_texts(
        self, texts: Sequence[str], *, stream: str | None = None, times_ms: Sequence[float] | None = None
    ) -> Run:
        """The same for events as JSON texts, which are taken as they are."""
        name = stream or self.source
        for index, text in enumerate(texts):
            if (refused := self.refusal(text, stream=name)) is not None:
                raise ValueError(f"event {self._fed + index} {refused}")
        path = self._paths.get(name)
        now = float(int(time.time() * 1000))
        entries = [
            Entry(
                text.translate(_NO_BREAKS),
                json.dumps(None if path is None else key_of(json.loads(text), path)),
                now if times_ms is None else times_ms[index],
                self._fed + index,
            )
            for index, text in enumerate(texts)
        ]
        self._fed += len(entries)
        run = Run()
        for number, stage in enumerate(self._plans):
            for place, each in enumerate(stage.inputs):
                if each.stream == name and not each.internal:
                    self._take(run, number, self._tasks[number].run(place, entries))
        for number in range(len(self._plans)):
            self._take(run, number, self._catch_up(number))
        return run

    def finish(self) -> Run:
        """The end of all input: windows close, what waits for a partner gives up, and timers that are set fire."""
        run = Run()
        for number, task in enumerate(self._tasks):
            self._take(run, number, self._catch_up(number))
            self._take(run, number, task.finish())
        return run

    def refusal(self, text: str, *, line: int | None = None, stream: str | None = None) -> Refused | None:
        """Why a stream with this key would not accept an event; None if it would."""
        path = self._paths.get(stream or self.source)
        verdict = check_json(text, self._limits)
        if verdict is None and path is not None:
            key = key_of(json.loads(text), path)
            if key is None:
                verdict = Verdict("key_missing", f"has no {json.dumps('.'.join(path))}, the key of its stream")
            elif isinstance(key, Verdict):
                verdict = key
        return None if verdict is None else Refused(verdict.message, code=verdict.code, line=line)

    def _catch_up(self, number: int) -> Iterator[Done]:
        """A stage reads what those before it have made, then goes on to where they say that event time has come."""
        task = self._tasks[number]
        internal = [(place, each) for place, each in enumerate(self._plans[number].inputs) if each.internal]
        for place, each in internal:
            yield from task.run(place, self._waiting.pop(each.stream, []))
        heard: dict[int, float] = {}
        for place, each in internal:
            above = next(
                n for n, stage in enumerate(self._plans) if any(o.stream == each.stream for o in stage.outputs)
            )
            reached = self._tasks[above].watermark_ms
            if reached is not None:
                heard[place] = reached - self._plans[above].hold_ms
        task.hear(heard)
        yield from task.fire_due()

    def _take(self, run: Run, number: int, all_done: Iterable[Done]) -> None:
        for done in all_done:
            origins = [entry.origin for entry in done.entries]
            made: list[tuple[int, Output]] = []
            for group in done.result.outputs:
                stream = self._plans[number].outputs[group.stream]
                values = group.values.split("\n")
                keys = group.keys.split("\n") if group.keys else ["null"] * len(values)
                sources = group.sources if group.sources is not None else range(len(values))
                if group.times is not None:
                    times = [float(ms) for ms in group.times.split("\n")]
                    self._waiting.setdefault(stream.stream or "", []).extend(
                        Entry(value, key, ms, origins[source])
                        for value, key, ms, source in zip(values, keys, times, sources, strict=True)
                    )
                    continue
                made.extend(
                    (source, Output(stream.stream or "", json.loads(key), json.loads(value), origins[source]))
                    for value, key, source in zip(values, keys, sources, strict=True)
                )
            run.outputs.extend(output for _, output in sorted(made, key=lambda each: each[0]))
            run.failures.extend(Failure(origins[f.index], f.error, f.stack, f.state_key) for f in done.result.faults)
            run.late.extend(LateEvent(origins[late.index], late.message) for late in done.result.late)
            run.logs.extend(
                replace(line, index=origins[line.index]) if line.index >= 0 else line for line in done.result.logs
            )


def _path(path: str | None) -> list[str] | None:
    names = None if path is None else path.split(".")
    if names is not None and not all(names):
        raise DeployError(f"the key {json.dumps(path)} is not a path: use names joined by dots")
    return names


def state_configs(config: Mapping[str, Any]) -> dict[str, StateConfig]:
    """`config.state` of a module as settings of collections; DeployError for what cannot be."""
    found: dict[str, StateConfig] = {}
    declared = config.get("state") or {}
    if not isinstance(declared, Mapping):
        raise DeployError("config.state must be an object: { collection: { ttl: '7d' } }")
    for name, settings in declared.items():
        if not isinstance(settings, Mapping):
            raise DeployError(f"config.state.{name} must be an object such as {{ ttl: '7d' }}")
        try:
            ttl = duration_ms(settings["ttl"]) if settings.get("ttl") is not None else None
        except ValueError as error:
            raise DeployError(f"config.state.{name}.ttl: {error}") from None
        refresh = settings.get("refresh", "write")
        if refresh not in ("write", "access"):
            raise DeployError(f"config.state.{name}.refresh is {refresh!r}: there are 'write' and 'access'")
        found[name] = StateConfig(ttl, refresh)
    return found


__all__ = [
    "SINK",
    "Failure",
    "LateEvent",
    "LocalFunction",
    "MemoryState",
    "Output",
    "Run",
    "SandboxError",
    "state_configs",
]
