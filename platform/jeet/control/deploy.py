"""Deploy a function: read its code in the sandbox, check it against what is there, write everything at once.

Promise: a deploy is one transaction with everything that belongs to it: streams, version, tasks, checkpoints, epochs.
The same source and settings make no new version. A new version keeps the state and the checkpoints of the one before,
and takes over at a batch boundary: what the old one has not committed is run again by the new one.
A TTL that changes counts for entries written (or, with refresh 'access', read) from then on.
A version with other stages than the one before takes over once that one has drained, or with everything reset; else it
is refused with what does not fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import psycopg

from jeet.control import stages
from jeet.control.change import fence
from jeet.control.code import Code
from jeet.control.differences import differences
from jeet.control.graph import ENTRIES, StreamFacts, fault
from jeet.control.planner import Plan, PlanSettings, plan
from jeet.control.registry import Progress, one, rows, wait_until_running
from jeet.control.signature import signatures
from jeet.control.spec import Collection
from jeet.control.stages import Stages
from jeet.control.takeover import Graph, activate, draining, settle
from jeet.db.sql import query
from jeet.errors import DeployError
from jeet.ids import FunctionId, StreamId
from jeet.sandbox.describe import EMPTIED, collections_of

DEFAULT_PARTITIONS = 8


@dataclass(frozen=True)
class Deployed:
    """What a deploy did."""

    name: str
    version: int
    new_function: bool
    new_version: bool
    streams: tuple[str, ...]
    """streams that it created"""
    status: str
    progress: Progress
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Stream:
    id: StreamId
    name: str
    partitions: int
    key: str | None
    effective_key: str | None
    internal: bool = False


def deploy(
    db: psycopg.Connection,
    code: Code,
    *,
    wait_s: float = 5.0,
    graph: Graph = "same",
    savepoint: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> Deployed:
    """Make this code the version that runs, and wait until its tasks run it. `tell` hears how a drain fares.

    With `savepoint`, what the version before has kept stays to go back to.
    """
    function, deployed = draining(db, lambda: _Deploy(db, code, graph, savepoint=savepoint).run(), tell)
    progress = wait_until_running(db, function, wait_s if deployed.status != "paused" else 0)
    return replace(deployed, progress=progress)


class _Deploy:
    """One deploy, inside its transaction."""

    def __init__(self, db: psycopg.Connection, code: Code, graph: Graph, *, savepoint: bool) -> None:
        self._db = db
        self._code = code
        self._spec = code.spec
        self._graph = graph
        self._savepoint = savepoint
        self._created: list[str] = []
        self._notes: list[str] = []
        self._found: dict[str, _Stream] = {}

    def run(self) -> tuple[FunctionId, Deployed]:
        spec = self._spec
        existing = one(self._db, "registry_function", {"name": spec.name})
        function = FunctionId(existing["id"]) if existing else None
        entries = [node for node in self._code.graph if node.get("op") in ENTRIES and node.get("stream") is not None]
        named = [node["stream"] for node in entries if isinstance(node["stream"], str)]
        self._found = self._streams((spec.source, *([spec.sink] if spec.sink else []), *spec.outputs, *named))
        if existing is not None:
            self._check_successor(existing)
        for node in entries:
            if (read := self._found.get(node["stream"])) is not None and read.internal:
                raise fault(self._code.filename, node, f"stream {read.name} belongs to another function")
        made = self._plan()
        source = self._source()
        self._check_counts(source)
        self._check_literal_emits(function)
        sink = self._output(spec.sink, source) if spec.sink is not None else None
        outputs = [sink, *(self._output(name, source) for name in spec.outputs)]
        for name in self._created:
            if name in spec.literal_emits:
                self._notes.append(
                    f"stream {name} is new, and only context.emit({json.dumps(name)}) names it: check its spelling, or"
                    " declare it in config.emits"
                )
        self._check_cycle(function, made, [output for output in outputs if output is not None])
        settings = self._settings(source, outputs, made)
        digest = self._digest(settings)
        if existing is not None and existing["digest"] == digest and self._graph != "reset":
            return FunctionId(existing["id"]), self._unchanged(existing)
        return self._write(existing, settings, digest, made)

    def _plan(self) -> Plan:
        spec = self._spec
        facts = {name: StreamFacts(each.partitions, each.effective_key) for name, each in self._found.items()}
        facts.setdefault(spec.source, StreamFacts(spec.partitions or DEFAULT_PARTITIONS, spec.key, exists=False))
        settings = PlanSettings(
            function=spec.name,
            source=spec.source,
            filename=self._code.filename,
            sink=spec.sink,
            key=spec.key,
            outputs=spec.outputs,
            emits=spec.emits_anywhere,
        )
        return plan(self._code.graph, settings, facts)

    def _streams(self, names: Sequence[str]) -> dict[str, _Stream]:
        return {row["name"]: _Stream(**row) for row in rows(self._db, "registry_streams", {"names": list(names)})}

    def _fail(self, what: str) -> DeployError:
        return DeployError(f"{self._code.filename}: {what}")

    def _check_successor(self, existing: Mapping[str, Any]) -> None:
        spec, before = self._spec, existing["spec"]
        if self._graph == "reset":
            return
        if before["source"] != spec.source:
            raise self._fail(
                f"{spec.name} reads {before['source']}, and its state belongs to that stream's partitions; deploy what"
                f" reads {spec.source} under another --name, or discard what it has with --reset"
            )
        if spec.start_given and str(spec.start) != before["start"]:
            raise self._fail(
                f"start is for new functions, and {spec.name} is deployed already: its tasks go on where they stand;"
                " leave it out, deploy under another --name, or begin anew with --reset"
            )

    def _source(self) -> _Stream:
        spec = self._spec
        found = self._found.get(spec.source)
        if found is None:
            if spec.key is None:
                self._notes.append(
                    f"stream {spec.source} was created without a key: events that belong together may lie in different"
                    " partitions; give --key if the function keeps state per key"
                )
            return self._create(spec.source, spec.partitions or DEFAULT_PARTITIONS, spec.key)
        if found.internal:
            raise self._fail(f"stream {spec.source} belongs to another function; read a stream of your own")
        return found

    def _check_counts(self, source: _Stream) -> None:
        spec = self._spec
        if spec.partitions is None:
            return
        for name in (spec.source, spec.sink):
            found = self._found.get(name or "")
            if found is not None and found.partitions != spec.partitions:
                raise self._fail(
                    f"stream {name} has {found.partitions} partitions, not {spec.partitions}; a stream's partitions are"
                    " fixed when it is created: leave --partitions out, or name another stream"
                )

    def _check_literal_emits(self, function: FunctionId | None) -> None:
        """Code may name new streams freely; to write into one that is there already, somebody must say so."""
        earlier = {row["name"] for row in rows(self._db, "registry_past_outputs", {"function": function})}
        for name in self._spec.literal_emits:
            if name in self._found and name not in earlier:
                raise self._fail(
                    f"context.emit({json.dumps(name)}) writes to a stream that exists already and was not declared; if"
                    f" that is meant, add it to config.emits or deploy with --emits={name}"
                )

    def _output(self, name: str, source: _Stream) -> _Stream:
        found = self._found.get(name)
        if found is None:
            # No key of its own: what is written there keeps the key of the event that made it, whatever it looks like.
            return source if name == source.name else self._create(name, source.partitions, None)
        if found.internal:
            raise self._fail(f"stream {name} belongs to another function; write to a stream of your own")
        return found

    def _create(self, name: str, partitions: int, key: str | None) -> _Stream:
        row = self._db.execute("select jeet_internal.create_stream(%s, %s, %s)", (name, partitions, key)).fetchone()
        assert row is not None
        self._created.append(name)
        stream = _Stream(StreamId(row[0]), name, partitions, key, key)
        self._found[name] = stream
        return stream

    def _check_cycle(self, function: FunctionId | None, made: Plan, outputs: Sequence[_Stream]) -> None:
        if self._spec.cycle or not outputs:
            return
        ids = [output.id for output in outputs]
        read = dict.fromkeys(each.stream for stage in made.stages for each in stage.inputs if not each.internal)
        for name in read:
            if any(output.name == name for output in outputs):
                how = f"it writes to {name}, which it reads"
            else:
                values = {"function": function, "outputs": ids, "source": self._found[name].id}
                if self._db.execute(query("registry_leads_to"), values).fetchone() != (True,):
                    continue
                how = f"other functions lead from what it writes back to {name}, which it reads"
            raise self._fail(
                f"{how}: each event could make another one without end; if the loop comes to an end by itself, say so"
                " with --cycle"
            )

    def _settings(self, source: _Stream, outputs: Sequence[_Stream | None], made: Plan) -> dict[str, Any]:
        """What is stored of the settings, and read by the worker."""
        spec = self._spec
        settings: dict[str, Any] = {
            "source": spec.source,
            "sink": spec.sink,
            "key": spec.key or source.effective_key,
            "partitions": source.partitions,
            "outputs": [
                {"stream": output.name if output else None, "key": output.key if output else None} for output in outputs
            ],
            "state": {name: asdict(collection) for name, collection in self._collections().items()},
            "input": spec.input,
            "on_error": spec.on_error,
            "start": str(spec.start),
            "limits": {},
            "cycle": spec.cycle,
            "hold_ttl": spec.hold_ttl,
        }
        if made.streams:  # of the key that outputs have, only that of the events they are made from is known
            settings["internal"] = stages.internal_of(made.streams)
            settings["output_key"] = self._output_key(made)
        return settings

    def _collections(self) -> dict[str, Collection]:
        """Of config.state, and those whose time to live an operator's option tells."""
        found = dict(self._spec.state)
        for node in self._code.graph:
            if node["op"] in EMPTIED:
                self._refuse_ttl(node)
            if node.get("ttl_ms") is None:
                continue
            for name in collections_of(node):
                if name in found and found[name].ttl_ms != node["ttl_ms"]:
                    raise fault(
                        self._code.filename,
                        node,
                        f"config.state.{name}.ttl and the option ttl of {node['op']} differ: leave one out",
                    )
                found.setdefault(name, Collection(node["ttl_ms"]))
        return found

    def _refuse_ttl(self, node: Mapping[str, Any]) -> None:
        """A window lets go when it closes, a join when nothing can match: a time to live loses what is open."""
        for name in collections_of(node):
            if name in self._spec.state and self._spec.state[name].ttl_ms is not None:
                raise fault(
                    self._code.filename,
                    node,
                    f"config.state.{name}.ttl would take values out of a {node['op']} that is still open; leave it out:"
                    f" {EMPTIED[node['op']]}",
                )

    def _output_key(self, made: Plan) -> str | None:
        """The path by which all stages that write something are keyed, if it is one."""
        paths = set()
        streams = {stream.name: stream for stream in made.streams}
        for stage in made.stages:
            if not any(each.stream is not None and not each.internal for each in stage.outputs):
                continue
            for each in stage.inputs:
                known = streams.get(each.stream)
                if known is None or known.key is None:
                    paths.add(self._found[each.stream].effective_key if known is None else None)
                else:  # a digest of a function is no path
                    cut = {n["path"] for n in self._code.graph if n["op"] == "keyBy" and n.get("path") is not None}
                    paths.add(known.key if known.key in cut or known.key == self._spec.key else None)
        return paths.pop() if len(paths) == 1 else None

    def _digest(self, settings: Mapping[str, Any]) -> str:
        """Of the source and of what its owner decides; where a function began to read is history."""
        facts = {name: value for name, value in settings.items() if name != "start"}
        text = json.dumps([self._code.digest, facts], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _unchanged(self, existing: Mapping[str, Any]) -> Deployed:
        if existing["draining"]:
            fence(self._db, FunctionId(existing["id"]))
            self._db.execute("select jeet_internal.end_drain(%s)", (existing["id"],))
            self._notes.append("another version was to take over, for which it drained: that is off, its sources go on")
        if existing["status"] == "failed":
            self._notes.append(
                f"it has failed and waits; `jeet show {self._spec.name}` tells why, `jeet resume` starts it again"
            )
        return self._result(existing["version"], existing["status"], new_function=False, new_version=False)

    def _write(
        self, existing: Mapping[str, Any] | None, settings: Mapping[str, Any], digest: str, made: Plan
    ) -> tuple[FunctionId, Deployed]:
        spec, db = self._spec, self._db
        on_error = json.dumps(spec.on_error)
        version = existing["newest"] + 1 if existing else 1
        chosen = self._stages(made)
        if existing:
            function = FunctionId(existing["id"])
        else:
            values = {"name": spec.name, "on_error": on_error, "hold_ttl": spec.hold_ttl}
            row = db.execute(query("registry_add_function"), values).fetchone()
            assert row is not None
            function = FunctionId(row[0])
        comparison = None
        if existing:
            why = f"before version {version}" if self._savepoint else None
            comparison = settle(
                db,
                function,
                spec.name,
                existing,
                chosen,
                self._graph,
                self._code.filename,
                why=why,
                tell=self._notes.append,
            )
            self._notes += differences(existing["spec"], settings)
        db.execute(
            query("registry_add_version"),
            {
                "function": function,
                "version": version,
                "filename": self._code.filename,
                "source": self._code.source,
                "bytecode": self._code.compiled.bytecode,
                "plugin_hash": self._code.compiled.plugin_hash,
                "graph": json.dumps(self._code.graph),
                "spec": json.dumps(settings),
                "digest": digest,
            },
        )
        reset = existing is not None and self._graph == "reset"
        ids = {name: stream.id for name, stream in self._found.items()}
        ids |= stages.make_streams(db, spec.name, chosen.internal, anew=existing is None or reset)
        chosen = replace(chosen, plans=tuple(stages.write_stages(db, function, version, chosen.plans, ids)))
        if existing and comparison:
            stages.take_over(db, function, version, chosen, ids, comparison, spec.start, reset=reset)
            status = activate(db, function, version, settings, existing["status"])
        else:
            stages.add_tasks(db, function, version, chosen, ids, spec.start)
            db.execute("select jeet_internal.refresh_cycles()")
            db.execute("select pg_notify('jeet_control', %s)", (f"function {function}",))
            status = "running"
        return function, self._result(version, status, new_function=existing is None, new_version=True)

    def _stages(self, made: Plan) -> Stages:
        """As planned, each output with the key of its stream."""
        keys = {name: stream.key for name, stream in self._found.items()}
        plans = tuple(
            replace(
                each,
                outputs=tuple(
                    out if out.internal or out.stream is None else replace(out, key=keys[out.stream])
                    for out in each.outputs
                ),
            )
            for each in made.stages
        )
        internal = stages.internal_of(made.streams)
        counts = {name: stream.partitions for name, stream in self._found.items()} | internal
        found = signatures(self._code.graph, plans, counts)
        return Stages(plans, tuple(found), made.partitions, internal)

    def _result(self, version: int, status: str, *, new_function: bool, new_version: bool) -> Deployed:
        if status == "paused":
            self._notes.append(f"it is paused; jeet resume {self._spec.name} starts it")
        return Deployed(
            name=self._spec.name,
            version=version,
            new_function=new_function,
            new_version=new_version,
            streams=tuple(self._created),
            status=status,
            progress=Progress(0, (), 0, False),
            notes=tuple(self._notes),
        )
