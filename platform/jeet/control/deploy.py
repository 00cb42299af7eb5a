"""Deploy a function: read its code in the sandbox, check it against what is there, write everything at once.

Promise: a deploy is one transaction with everything that belongs to it: streams, version, tasks, checkpoints, epochs.
The same source and settings make no new version. A new version keeps the state and the checkpoints of the one before,
and takes over at a batch boundary: what the old one has not committed is run again by the new one.
A TTL that changes counts for entries written (or, with refresh 'access', read) from then on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import psycopg

from jeet.control.change import change, fence
from jeet.control.code import Code
from jeet.control.registry import Progress, one, rows, wait_until_running
from jeet.control.spec import Start
from jeet.db.sql import query
from jeet.errors import DeployError
from jeet.ids import FunctionId, StreamId

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


def deploy(db: psycopg.Connection, code: Code, *, wait_s: float = 5.0) -> Deployed:
    """Make this code the version that runs, and wait until its tasks run it."""
    with change(db):
        function, deployed = _Deploy(db, code).run()
    progress = wait_until_running(db, function, wait_s if deployed.status != "paused" else 0)
    return replace(deployed, progress=progress)


class _Deploy:
    """One deploy, inside its transaction."""

    def __init__(self, db: psycopg.Connection, code: Code) -> None:
        self._db = db
        self._code = code
        self._spec = code.spec
        self._created: list[str] = []
        self._notes: list[str] = []
        self._found: dict[str, _Stream] = {}

    def run(self) -> tuple[FunctionId, Deployed]:
        spec = self._spec
        existing = one(self._db, "registry_function", {"name": spec.name})
        function = FunctionId(existing["id"]) if existing else None
        self._found = self._streams((spec.source, *([spec.sink] if spec.sink else []), *spec.outputs))
        if existing is not None:
            self._check_successor(existing)
        source = self._source()
        self._check_counts(source)
        self._check_literal_emits(function)
        sink = self._output(spec.sink, source) if spec.sink is not None else None
        outputs = [sink, *(self._output(name, source) for name in spec.outputs)]
        self._check_cycle(function, source, [output for output in outputs if output is not None])
        settings = self._settings(source, outputs)
        digest = self._digest(settings)
        if existing is not None and existing["digest"] == digest:
            return FunctionId(existing["id"]), self._unchanged(existing)
        return self._write(existing, settings, digest, source, outputs)

    def _streams(self, names: Sequence[str]) -> dict[str, _Stream]:
        return {row["name"]: _Stream(**row) for row in rows(self._db, "registry_streams", {"names": list(names)})}

    def _fail(self, what: str) -> DeployError:
        return DeployError(f"{self._code.filename}: {what}")

    def _check_successor(self, existing: Mapping[str, Any]) -> None:
        spec, before = self._spec, existing["spec"]
        if before["source"] != spec.source:
            raise self._fail(
                f"{spec.name} reads {before['source']}, and its state belongs to that stream's partitions; deploy what"
                f" reads {spec.source} under another --name"
            )
        if spec.start_given and str(spec.start) != before["start"]:
            raise self._fail(
                f"start is for new functions, and {spec.name} is deployed already: its tasks go on where they stand;"
                " leave it out, or deploy under another --name"
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
        if spec.key is not None and spec.key != found.effective_key:
            has = (
                f"has the key {found.effective_key}"
                if found.effective_key
                else "has no key, so events of one key may lie in different partitions"
            )
            raise self._fail(
                f"stream {spec.source} {has}, and this function asks for {spec.key}: that takes a stage that re-keys"
                " events, which is not there yet; leave the key out, or read a stream that was created with"
                f" --key={spec.key}"
            )
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

    def _check_cycle(self, function: FunctionId | None, source: _Stream, outputs: Sequence[_Stream]) -> None:
        if self._spec.cycle or not outputs:
            return
        if any(output.id == source.id for output in outputs):
            how = f"it writes to {source.name}, which it reads"
        else:
            ids = [output.id for output in outputs]
            row = self._db.execute(
                query("registry_leads_to"), {"function": function, "outputs": ids, "source": source.id}
            ).fetchone()
            if row != (True,):
                return
            how = f"other functions lead from what it writes back to {source.name}, which it reads"
        raise self._fail(
            f"{how}: each event could make another one without end; if the loop comes to an end by itself, say so with"
            " --cycle"
        )

    def _settings(self, source: _Stream, outputs: Sequence[_Stream | None]) -> dict[str, Any]:
        """What is stored of the settings, and read by the worker."""
        spec = self._spec
        return {
            "source": spec.source,
            "sink": spec.sink,
            "key": spec.key or source.effective_key,
            "partitions": source.partitions,
            "outputs": [
                {"stream": output.name if output else None, "key": output.key if output else None} for output in outputs
            ],
            "state": {name: asdict(collection) for name, collection in spec.state.items()},
            "input": spec.input,
            "on_error": spec.on_error,
            "start": str(spec.start),
            "limits": {},
            "cycle": spec.cycle,
            "hold_ttl": spec.hold_ttl,
        }

    def _digest(self, settings: Mapping[str, Any]) -> str:
        """Of the source and of what its owner decides; where a function began to read is history."""
        facts = {name: value for name, value in settings.items() if name != "start"}
        text = json.dumps([self._code.digest, facts], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _unchanged(self, existing: Mapping[str, Any]) -> Deployed:
        if existing["status"] == "failed":
            self._notes.append(
                f"it has failed and waits; `jeet show {self._spec.name}` tells why, `jeet resume` starts it again"
            )
        return self._result(existing["version"], existing["status"], new_function=False, new_version=False)

    def _write(
        self,
        existing: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        digest: str,
        source: _Stream,
        outputs: Sequence[_Stream | None],
    ) -> tuple[FunctionId, Deployed]:
        spec, db = self._spec, self._db
        on_error = json.dumps(spec.on_error)
        version = existing["newest"] + 1 if existing else 1
        if existing:
            function = FunctionId(existing["id"])
        else:
            values = {"name": spec.name, "on_error": on_error, "hold_ttl": spec.hold_ttl}
            row = db.execute(query("registry_add_function"), values).fetchone()
            assert row is not None
            function = FunctionId(row[0])
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
                "inputs": [source.id],
                "outputs": [output.id if output else None for output in outputs],
            },
        )
        if existing:
            status = activate(db, function, version, settings, existing["status"])
        else:
            self._add_tasks(function, source, spec.start)
            db.execute("select jeet_internal.refresh_cycles()")
            db.execute("select pg_notify('jeet_control', %s)", (f"function {function}",))
            status = "running"
        return function, self._result(version, status, new_function=existing is None, new_version=True)

    def _add_tasks(self, function: FunctionId, source: _Stream, start: Start) -> None:
        values = {
            "function": function,
            "source": source.id,
            "start": start.kind,
            "offset": start.offset,
            "time": start.time,
        }
        self._db.execute(query("registry_add_tasks"), values)

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


def activate(
    db: psycopg.Connection, function: FunctionId, version: int, settings: Mapping[str, Any], status: str
) -> str:
    """Let a function run another of its versions from its next batch on; returns its status. Inside `change`."""
    values = {
        "function": function,
        "version": version,
        "on_error": json.dumps(settings["on_error"]),
        "hold_ttl": settings.get("hold_ttl", True),
    }
    db.execute(query("registry_set_version"), values)
    state = json.dumps(settings.get("state") or {})
    db.execute(query("registry_set_collections"), {"function": function, "state": state})
    db.execute("select jeet_internal.refresh_cycles()")
    fence(db, function)
    return "paused" if status == "paused" else "running"
