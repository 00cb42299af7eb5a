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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from jeet.errors import DeployError, Refused, SandboxError
from jeet.sandbox.call import (
    BatchInput,
    BatchResult,
    CollectionInfo,
    Fault,
    GuestTrap,
    GuestViolation,
    InstanceSpec,
    LogLine,
    OutputStream,
    StateConfig,
)
from jeet.sandbox.durations import duration_ms
from jeet.sandbox.engine import Engine
from jeet.sandbox.gate import Verdict, canonical, check_json, key_of
from jeet.sandbox.instance import Instance
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Compiled, Plugin
from jeet.sandbox.source import decode_source
from jeet.settings import Settings

SINK = "sink"
_NO_BREAKS = {ord("\n"): " ", ord("\r"): " "}  # between tokens a space is as good, as in the log


@dataclass(frozen=True)
class Output:
    """One output: to which stream, under which key, made by which event of all those fed."""

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


@dataclass
class Run:
    """What a feed did."""

    outputs: list[Output] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)

    def values(self, stream: str = SINK) -> list[Any]:
        """The values that went to a stream."""
        return [output.value for output in self.outputs if output.stream == stream]


class MemoryState:
    """Keyed state in memory, as a StateReader; rows are (JSON text, expires_at_ms or None)."""

    def __init__(self, configs: Mapping[str, StateConfig] | None = None) -> None:
        self.configs = dict(configs or {})
        self.names: dict[str, int] = {}
        self.rows: dict[int, dict[str, tuple[str, float | None]]] = {}
        self.reads = 0

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
            if write.deletes:
                for key in write.delete_keys.split("\n"):
                    rows.pop(json.loads(key), None)
            if write.touched:
                for key in write.touched_keys.split("\n"):
                    name = json.loads(key)
                    rows[name] = (rows[name][0], expires)


class LocalFunction:
    """A deployed function in this process. Use it in one thread; close it, or use it in a `with`."""

    def __init__(
        self,
        source: str,
        filename: str = "function.js",
        *,
        key: str | None = None,
        sink: str = SINK,
        plugin: Plugin | None = None,
        plugin_path: Path | None = None,
        cache_dir: Path | None = None,
        limits: Limits = Limits(),  # noqa: B008  frozen
        batch_events: int = 1000,
    ) -> None:
        self._engine: Engine | None = None
        self._instance: Instance | None = None
        try:
            if plugin is None:
                self._engine = Engine(cache_dir or Settings.from_environment().sandbox_cache)
                plugin = self._engine.load_plugin(plugin_path)
            self._plugin = plugin
            self._compiled: Compiled = self._plugin.compile(source, filename, limits)
            self.description = self._plugin.describe(self._compiled)
            config = self.description.config or {}
            path = key if key is not None else config.get("key")
            self._path: list[str] | None = None if path is None else path.split(".")
            if self._path is not None and not all(self._path):
                raise DeployError(f"the key {json.dumps(path)} is not a path: use names joined by dots")
            self._outputs = [OutputStream(sink)]
            self._outputs.extend(OutputStream(emit.name) for emit in self.description.emits if emit.name != sink)
            self._state = MemoryState(state_configs(config))
        except BaseException:
            self.close()
            raise
        self._spec = InstanceSpec(
            function=Path(filename).stem,
            version=1,
            partition=0,
            outputs=tuple(self._outputs),
            input_schema=config.get("input"),
            limits=limits,
        )
        self._limits = limits
        self._batch_events = batch_events
        self._fed = 0
        self._committed = 0

    @staticmethod
    def from_file(path: str | Path, **options: Any) -> LocalFunction:
        """A function in a file."""
        file = Path(path)
        return LocalFunction(decode_source(file.read_bytes(), file.name), file.name, **options)

    def __enter__(self) -> LocalFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the sandbox."""
        if self._instance is not None:
            self._instance.close()
            self._instance = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def collections(self) -> list[str]:
        """The collections that events have touched so far."""
        return list(self._state.names)

    def state(self, collection: str) -> dict[str, Any]:
        """A collection as it is committed, in key order."""
        number = self._state.names.get(collection)
        rows = self._state.rows.get(number, {}) if number is not None else {}
        return {key: json.loads(rows[key][0]) for key in sorted(rows, key=str.encode)}

    def feed(self, events: Iterable[Any]) -> Run:
        """Process JSON values in order. Raises ValueError for an event that no stream would accept."""
        return self.feed_texts([canonical(event) for event in events])

    def feed_texts(self, texts: Sequence[str]) -> Run:
        """The same for events as JSON texts, which are taken as they are."""
        for index, text in enumerate(texts):
            if (refused := self.refusal(text)) is not None:
                raise ValueError(f"event {self._fed + index} {refused}")
        keys = [json.dumps(None if self._path is None else key_of(json.loads(text), self._path)) for text in texts]
        texts = [text.translate(_NO_BREAKS) for text in texts]
        run = Run()
        for start in range(0, len(texts), self._batch_events):
            end = start + self._batch_events
            self._feed_batch(texts[start:end], keys[start:end], run)
        return run

    def refusal(self, text: str, *, line: int | None = None) -> Refused | None:
        """Why a stream with this function's key would not accept an event; None if it would."""
        verdict = check_json(text, self._limits)
        if verdict is None and self._path is not None:
            key = key_of(json.loads(text), self._path)
            if key is None:
                verdict = Verdict("key_missing", f"has no {json.dumps('.'.join(self._path))}, the key of its stream")
            elif isinstance(key, Verdict):
                verdict = key
        return None if verdict is None else Refused(verdict.message, code=verdict.code, line=line)

    def _feed_batch(self, texts: Sequence[str], keys: Sequence[str], run: Run) -> None:
        start = 0
        alone_until = 0
        while start < len(texts):
            end = start + 1 if start < alone_until else len(texts)
            batch = self._batch(texts[start:end], keys[start:end])
            try:
                result = self._open().run(batch)
            except (GuestTrap, GuestViolation) as error:
                self._discard()
                if batch.count == 1:
                    self._take(run, batch, self._failed(str(error)), keys[start:end])
                    start += 1
                elif error.suspects.start > 0 and len(error.suspects) < batch.count:
                    # Those before the suspects again as a batch, then each suspect alone.
                    alone = start + error.suspects.start, start + error.suspects.stop
                    self._feed_batch(texts[start : alone[0]], keys[start : alone[0]], run)
                    start, alone_until = alone
                else:
                    alone_until = start + max(1, error.suspects.stop)
                continue
            except BaseException:
                self._discard()
                raise
            self._take(run, batch, result, keys[start:end])
            start += result.processed
            if self._instance is not None and self._instance.recycle_due:
                self._discard()

    def _failed(self, error: str) -> BatchResult:
        return BatchResult(1, (), (), (Fault(0, error, "", None),), (), 0)

    def _batch(self, texts: Sequence[str], keys: Sequence[str]) -> BatchInput:
        now = time.time() * 1000
        return BatchInput(
            first_offset=self._fed,
            count=len(texts),
            values="\n".join(texts).encode(),
            keys=b"" if self._path is None else "\n".join(keys).encode(),
            timestamps="\n".join([str(int(now))] * len(texts)).encode(),
            now_ms=now,
            fetched_at=time.monotonic(),
            committed_through=self._committed,
        )

    def _take(self, run: Run, batch: BatchInput, result: BatchResult, keys: Sequence[str]) -> None:
        self._state.apply(result, batch.now_ms)
        self._committed = result.sequence
        for group in result.outputs:
            stream = self._outputs[group.stream].name
            values = group.values.split("\n")
            out_keys = group.keys.split("\n") if group.keys else ["null"] * len(values)
            sources = group.sources if group.sources is not None else range(len(values))
            for value, key, source in zip(values, out_keys, sources, strict=True):
                run.outputs.append(Output(stream, json.loads(key), json.loads(value), self._fed + source))
        run.outputs.sort(key=lambda output: output.event)
        run.failures.extend(Failure(self._fed + f.index, f.error, f.stack, f.state_key) for f in result.faults)
        run.logs.extend(
            replace(line, index=self._fed + line.index) if line.index >= 0 else line for line in result.logs
        )
        self._fed += result.processed

    def _open(self) -> Instance:
        if self._instance is None:
            self._instance = self._plugin.instantiate(self._compiled, self._spec, self._state)
            self._committed = 0
        return self._instance

    def _discard(self) -> None:
        if self._instance is not None:
            self._instance.close()
            self._instance = None


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


__all__ = ["SINK", "Failure", "LocalFunction", "MemoryState", "Output", "Run", "SandboxError", "state_configs"]
