"""A second function like another, which reads the same and writes only to streams of its own.

Promise: nothing that it does comes into a stream that the first one writes, or reads. In its code streams keep their
names; what they stand for is others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import psycopg

from jeet.control import stages
from jeet.control.registry import rows
from jeet.control.spec import Start, check_name
from jeet.control.stages import Stages
from jeet.db.sql import query
from jeet.errors import UsageError
from jeet.ids import FunctionId, StreamId
from jeet.plan import StageOutput, StagePlan


class Twin:
    """Of a version of a function; inside a change."""

    def __init__(
        self,
        db: psycopg.Connection,
        name: str,
        other: str,
        sink: str | None,
        like: Stages,
        settings: Mapping[str, Any],
        written: Collection[str],
    ) -> None:
        """`written`: streams that some version of the first one may write."""
        if any(not plan.outputs for plan in like.plans):
            raise UsageError(
                f"that version of {name} was deployed by an older Jeet; deploy {name} anew for a savepoint"
            )
        self._db = db
        self._other = other
        self._settings = settings
        if sink in written or any(sink == each.stream for plan in like.plans for each in plan.inputs):
            why = "writes to" if sink in written else "reads"
            raise UsageError(
                f"stream {sink} is one that {name} {why}: choose another --sink, or none for a stream of its own"
            )
        self._own_sink = sink
        self._prefixes = (f"{name}/", f"{other}/")
        self.created: list[str] = []
        self.renamed: dict[str, str] = {}
        """streams that the first writes, and what takes their place"""
        self.stages = replace(
            like,
            plans=tuple(self._plan(plan) for plan in like.plans),
            internal={self._internal(stream): count for stream, count in like.internal.items()},
        )

    def create(self, like: FunctionId, version: int, savepoint: int) -> FunctionId:
        """The function with its streams, and with tasks that stand at the end of everything; a restore places them."""
        db = self._db
        ids = self._streams()
        settings = self._spec()
        facts = json.dumps([like, version, savepoint, settings], sort_keys=True)
        row = db.execute(
            query("savepoint_copy_function"),
            {
                "function": like,
                "version": version,
                "name": self._other,
                "spec": json.dumps(settings),
                "digest": hashlib.sha256(facts.encode()).hexdigest(),
            },
        ).fetchone()
        assert row is not None
        function = FunctionId(row[0])
        ids |= stages.make_streams(db, self._other, self.stages.internal, anew=True)
        stages.write_stages(db, function, version, self.stages.plans, ids)
        stages.add_tasks(db, function, version, self.stages, ids, Start("latest"))
        return function

    def _internal(self, stream: str) -> str:
        mine, its = self._prefixes
        return its + stream.removeprefix(mine)

    def _own(self, stream: str) -> str:
        if stream not in self.renamed:
            is_sink = stream == self._settings.get("sink")
            self.renamed[stream] = self._own_sink if is_sink and self._own_sink else f"{self._other}.{stream}"
        return self.renamed[stream]

    def _plan(self, plan: StagePlan) -> StagePlan:
        return replace(
            plan,
            inputs=tuple(
                replace(each, stream=self._internal(each.stream)) if each.internal else each for each in plan.inputs
            ),
            outputs=tuple(self._output(each) for each in plan.outputs),
        )

    def _output(self, output: StageOutput) -> StageOutput:
        if output.stream is None:
            return output
        if output.internal:
            return replace(output, stream=self._internal(output.stream))
        return replace(output, stream=self._own(output.stream), name=output.name or output.stream)

    def _streams(self) -> dict[str, StreamId]:
        """All that it reads and writes, but for those between its stages."""
        known = {each["name"]: each for each in rows(self._db, "registry_streams", {"names": self._names()})}
        for old, new in self.renamed.items():
            check_name("stream", new, f"--into={self._other}", "give a shorter --into")
            if new in known and new != self._own_sink:
                raise UsageError(
                    f"stream {new}, which {self._other} would write to, exists already: choose another name"
                )
            if new in known and known[new]["key"] != known[old]["key"]:
                raise UsageError(f"stream {new} has not the key that {old} has: choose another --sink")
            if new not in known:
                row = self._db.execute(
                    "select jeet_internal.create_stream(%s, %s, %s)", (new, known[old]["partitions"], known[old]["key"])
                ).fetchone()
                assert row is not None
                known[new] = {"id": row[0]}
                self.created.append(new)
        return {name: StreamId(each["id"]) for name, each in known.items()}

    def _names(self) -> list[str]:
        read = [each.stream for plan in self.stages.plans for each in plan.inputs]
        return sorted({*read, *self.renamed, *self.renamed.values()})

    def _spec(self) -> dict[str, Any]:
        spec = dict(self._settings)
        if self.renamed.get(str(spec.get("sink"))):
            spec["sink"] = self.renamed[spec["sink"]]
        spec["outputs"] = [
            {**each, "stream": self.renamed.get(each["stream"], each["stream"])} for each in spec.get("outputs") or []
        ]
        if self.stages.internal:
            spec["internal"] = dict(self.stages.internal)
        return spec
