"""A version's stages in the database: their rows, the internal streams between them, and which tasks run them.

Promise: all of it happens in the transaction of a change that has fenced the function's tasks, so that a version takes
over with everything or not at all. Where stages fit, tasks keep what they have and nothing else is touched. Else a
source is read on where the function stands in it, and a task is kept, with its state, for the stage that reads what it
read before; state and timers of operators that mean something else now are gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from jeet.control.planner import InternalStream
from jeet.control.registry import rows
from jeet.control.signature import Comparison, Signature, signatures
from jeet.control.spec import Start
from jeet.db.sql import query
from jeet.ids import FunctionId, StreamId
from jeet.plan import StageInput, StagePlan

INTERNAL_RETENTION = "1 hour"
"""how long events between two stages are kept once they are processed"""


@dataclass(frozen=True)
class Stages:
    """The stages of a version, as planned or as stored."""

    plans: tuple[StagePlan, ...]
    signatures: tuple[Signature, ...]
    partitions: tuple[int, ...]
    """of each stage"""
    internal: Mapping[str, int]
    """internal streams and their partitions"""


def internal_of(streams: Sequence[InternalStream]) -> dict[str, int]:
    """As it is kept in a version's settings."""
    return {stream.name: stream.partitions for stream in streams}


def stored(db: psycopg.Connection, function: FunctionId, version: int) -> Stages:
    """The stages of a version that was deployed."""
    found = rows(db, "registry_stages", {"function": function, "version": version})
    internal: dict[str, int] = {}
    known: dict[str, int] = {}
    plans = []
    graph: list[dict[str, Any]] = []
    for row in found:
        graph = row["graph"]
        internal = row["spec"].get("internal") or {}
        known |= dict(zip(row["streams"], row["partitions"], strict=True))
        if row["plan"] is not None:
            plans.append(StagePlan.from_json(row["plan"]))
        else:  # of a version of Jeet that knew one stage only
            inputs = tuple(StageInput(name) for name in row["streams"])
            plans.append(StagePlan(inputs=inputs, nodes=tuple(range(len(graph)))))
    known |= internal
    made = signatures(graph, plans, known)
    return Stages(tuple(plans), tuple(made), tuple(each.partitions for each in made), internal)


def make_streams(db: psycopg.Connection, name: str, wanted: Mapping[str, int], *, anew: bool) -> dict[str, StreamId]:
    """The internal streams that a version needs, as they are or made; those it does not need go. `anew`: all go."""
    ids: dict[str, StreamId] = {}
    gone: list[int] = []
    for row in rows(db, "registry_internal_streams", {"prefix": f"{name}/"}):
        if not anew and wanted.get(row["name"]) == row["partitions"]:
            ids[row["name"]] = StreamId(row["id"])
        else:
            gone.append(row["id"])
    if gone:
        db.execute("select jeet_internal.let_go_of_streams(%s)", (gone,))
    for stream, partitions in wanted.items():
        if stream not in ids:
            made = db.execute(
                "select jeet_internal.create_stream(%s, %s, p_retention => %s::interval, p_internal => true)",
                (stream, partitions, INTERNAL_RETENTION),
            ).fetchone()
            assert made is not None
            ids[stream] = StreamId(made[0])
    return ids


def write_stages(
    db: psycopg.Connection,
    function: FunctionId,
    version: int,
    plans: Sequence[StagePlan],
    ids: Mapping[str, StreamId],
) -> list[StagePlan]:
    """The rows of a version's stages; gives the plans as stored, their inputs by stream id."""
    placed = []
    for plan in plans:
        plan = replace(plan, inputs=tuple(sorted(plan.inputs, key=lambda each: ids[each.stream])))
        db.execute(
            query("registry_add_stage"),
            {
                "function": function,
                "version": version,
                "stage": plan.number,
                "inputs": [ids[each.stream] for each in plan.inputs],
                "outputs": [None if each.stream is None else ids[each.stream] for each in plan.outputs],
                "plan": json.dumps(plan.to_json()),
            },
        )
        placed.append(plan)
    return placed


def add_tasks(
    db: psycopg.Connection,
    function: FunctionId,
    version: int,
    stages: Stages,
    ids: Mapping[str, StreamId],
    start: Start,
    *,
    keep: bool = False,
) -> None:
    """The tasks that stages lack, with their checkpoints. Sources from `start`, or with `keep` from where the function
    stands in them; tables from their beginning; internal streams from their end, as nothing is left before it."""
    for plan, partitions in zip(stages.plans, stages.partitions, strict=True):
        values = {"function": function, "version": version, "stage": plan.number, "partitions": partitions}
        db.execute(query("registry_add_tasks"), values)
        for each in plan.inputs:
            begin = Start("latest") if each.internal else Start("earliest") if each.table else start
            begins = {
                "function": function,
                "stage": plan.number,
                "stream": ids[each.stream],
                "keep": keep and not each.table and not each.internal,
                "start": begin.kind,
                "offset": begin.offset,
                "time": begin.time,
            }
            db.execute(query("registry_add_checkpoints"), begins)


def take_over(
    db: psycopg.Connection,
    function: FunctionId,
    version: int,
    stages: Stages,
    ids: Mapping[str, StreamId],
    comparison: Comparison,
    start: Start,
    *,
    reset: bool,
) -> None:
    """Let a version's stages have the tasks of the one before: fenced, and drained unless they fit or `reset`."""
    if reset:
        db.execute("select jeet_internal.move_stages(%s, '{}', '{}')", (function,))
        add_tasks(db, function, version, stages, ids, start)
    elif comparison.fits:
        if any(new != old for new, old in comparison.moves.items()):
            _move(db, function, comparison)
        return
    else:
        _move(db, function, comparison)
        for stage, names in comparison.lost.items():
            if names:
                db.execute("select jeet_internal.forget_operators(%s, %s, %s)", (function, stage, list(names)))
        add_tasks(db, function, version, stages, ids, start, keep=True)
    db.execute("select jeet_internal.drop_stages(%s, %s)", (function, version))


def _move(db: psycopg.Connection, function: FunctionId, comparison: Comparison) -> None:
    new = list(comparison.moves)
    old = [comparison.moves[number] for number in new]
    db.execute("select jeet_internal.move_stages(%s, %s, %s)", (function, old, new))
