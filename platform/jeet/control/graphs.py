"""The graph of a function that is deployed, or of a file, as a picture."""

from __future__ import annotations

import time

import psycopg

from jeet.control import stages
from jeet.control.code import Code
from jeet.control.graph import ENTRIES, StreamFacts
from jeet.control.picture import Live, Picture, picture
from jeet.control.planner import PlanSettings, plan
from jeet.control.registry import no_function, one, rows
from jeet.ids import FunctionId

ASSUMED_PARTITIONS = 8
MEASURED_S = 1.0
"""how long rates are measured for"""


def of_file(code: Code) -> Picture:
    """As a deploy would plan it if no stream of it had a key or a number of partitions of its own."""
    spec = code.spec
    count = spec.partitions or ASSUMED_PARTITIONS
    named = [str(node["stream"]) for node in code.graph if node.get("op") in ENTRIES and node.get("stream")]
    facts = {name: StreamFacts(count, spec.key) for name in (spec.source, *named)}
    settings = PlanSettings(
        function=spec.name,
        source=spec.source,
        filename=code.filename,
        sink=spec.sink,
        key=spec.key,
        outputs=spec.outputs,
        emits=spec.emits_anywhere,
    )
    made = plan(code.graph, settings, facts)
    outputs = dict.fromkeys((*((spec.sink,) if spec.sink else ()), *spec.outputs), count)
    counts = outputs | dict.fromkeys(facts, count) | {each.name: each.partitions for each in made.streams}
    return picture(spec.name, None, code.graph, made.stages, counts, {spec.source: spec.key})


def of_function(db: psycopg.Connection, name: str, *, live: bool = False) -> Picture:
    """Of the version that runs; `live`: with what it does now, which takes a second to measure."""
    row = one(db, "registry_show", {"name": name})
    if row is None:
        raise no_function(db, name)
    function = FunctionId(row["id"])
    found = stages.stored(db, function, row["version"])
    graph = rows(db, "registry_stages", {"function": function, "version": row["version"]})[0]["graph"]
    named = {each.stream for each in (each for plan in found.plans for each in plan.inputs)}
    named |= {each.stream for plan in found.plans for each in plan.outputs if each.stream is not None}
    known = rows(db, "registry_streams", {"names": sorted(named)})
    counts = {each["name"]: each["partitions"] for each in known}
    keys = {each["name"]: each["key"] for each in known}
    return picture(name, row["version"], graph, found.plans, counts, keys, _measure(db, function) if live else None)


def _measure(db: psycopg.Connection, function: FunctionId) -> Live:
    before = {(row["stage"], row["stream"]): row for row in rows(db, "graph_live", {"function": function})}
    time.sleep(MEASURED_S)
    rates: dict[tuple[int, str], float] = {}
    lags: dict[tuple[int, str], int] = {}
    arrivals: dict[str, float] = {}
    for row in rows(db, "graph_live", {"function": function}):
        stage, stream = row["stage"], row["stream"]
        first = before.get((stage, stream))
        span = row["at_s"] - first["at_s"] if first is not None else 0.0
        rate = max(0.0, row["position"] - first["position"]) / span if first is not None and span > 0 else 0.0
        if stage is None:
            arrivals[stream] = rate
        else:
            rates[stage, stream], lags[stage, stream] = rate, row["lag"]
    return Live(rates, lags, arrivals)
