"""A function's graph as its code describes it: looked through, and refused with file and line where it cannot run.

Promise: whatever passes is made of known operators in order, reads nothing that is not there, and every name in it is
used once. The description comes out of the sandbox, so it may say anything.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jeet.control.spec import COLLECTION_NAME, NAME
from jeet.errors import DeployError
from jeet.limits import DEFAULTS
from jeet.sandbox.describe import collections_of

KEEPS_ITEMS = frozenset({"source", "table", "filter", "peek", "merge", "branch", "keyBy", "dedupe"})
"""operators behind which an item is what it was before"""
KEYED = frozenset({"reduce", "aggregate", "count", "sum", "window", "join", "dedupe", "onTimer"})
"""operators that keep something by the event's key"""
ENTRIES = frozenset({"source", "table"})
OPERATORS = KEEPS_ITEMS | KEYED | {"map", "flatMap", "to"}

Node = Mapping[str, Any]


@dataclass(frozen=True)
class StreamFacts:
    """What is known of a stream."""

    partitions: int
    key: str | None = None
    """path of the key that its events were given; None: none is known"""
    exists: bool = True
    """else it is made with the function"""


def fault(filename: str, node: Node | None, what: str) -> DeployError:
    """The error for something at a node, or about the graph as a whole."""
    line = node.get("line") if node is not None else None
    return DeployError(f"{filename}:{line}: {what}" if line else f"{filename}: {what}")


def quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def readers(graph: Sequence[Node]) -> list[list[int]]:
    """By node: those that read it, and onTimer, which hangs on it."""
    found: list[list[int]] = [[] for _ in graph]
    for node in graph:
        for source in node["inputs"]:
            found[source].append(node["id"])
    return found


def gives_time(node: Node) -> bool:
    """Items behind it have an event time of the operator's own making."""
    return node["op"] == "window" or (node["op"] == "join" and node.get("join") == "stream")


def time_settings(node: Node) -> Mapping[str, Any]:
    """Where a window or a join keeps what it says about time."""
    settings: Mapping[str, Any] = node["window"] if node["op"] == "window" else node
    return settings


def output_of(node: Node) -> str | None:
    """The stream that an operator writes by name."""
    name = node.get("stream") if node["op"] == "to" else time_settings(node).get("late_to")
    return name if isinstance(name, str) and node["op"] in ("to", "window", "join") else None


def check_graph(graph: Sequence[Node], filename: str, source: str, streams: Mapping[str, StreamFacts]) -> None:
    """Raise DeployError unless the graph can be planned."""
    _check_shape(graph, filename)
    read = readers(graph)
    for node in graph:
        if node["op"] == "table":
            _check_table(graph, node, read[node["id"]], filename)
        elif node["op"] == "source" and node["id"] > 0 and not read[node["id"]]:
            name = quoted(node.get("stream"))
            raise fault(filename, node, f"stream.from({name}) is not used: put an operator behind it, or take it out")
        elif node["op"] == "window":
            _check_window(node, filename)
        if node["op"] in ENTRIES and node["id"] > 0:
            _check_stream(node, filename, source, streams)
    _check_names(graph, filename)


def _check_shape(graph: Sequence[Node], filename: str) -> None:
    for place, node in enumerate(graph):
        op, inputs = node.get("op"), node.get("inputs")
        if node.get("id") != place or not isinstance(inputs, list | tuple):
            raise fault(filename, None, "its graph is none that the operators of stream make; deploy its .js")
        if op not in OPERATORS:
            raise fault(filename, node, f"there is no operator stream.{op}")
        for other in inputs:
            if not isinstance(other, int) or isinstance(other, bool) or not 0 <= other < len(graph):
                raise fault(filename, node, f"{op} reads what is not in the graph; deploy its .js")
            if other >= place:
                raise fault(filename, node, f"{op} reads what comes after it: a graph does not lead back to itself")
            if graph[other]["op"] == "to":
                raise fault(filename, node, f"{op} stands behind .to(), and nothing comes out of that; put .to() last")
        wanted = 0 if op in ENTRIES else 2 if op == "join" else None if op == "merge" else 1
        if len(inputs) != wanted and (wanted is not None or not inputs):
            raise fault(filename, node, f"{op} has {len(inputs)} inputs; deploy its .js")
        if op == "window" and not isinstance(node.get("window"), Mapping):
            raise fault(filename, node, "this window says nothing of its size; deploy its .js")
    if not graph or graph[0]["op"] != "source":
        raise fault(filename, None, "its graph does not begin with the source; deploy its .js")


def _check_table(graph: Sequence[Node], node: Node, read: Sequence[int], filename: str) -> None:
    name = quoted(node.get("stream"))
    if not read:
        raise fault(filename, node, f"stream.table({name}) is not used: join a stream with it, or take it out")
    for reader in read:
        other = graph[reader]
        if other["op"] != "join" or other.get("join") != "table" or other["inputs"][1] != node["id"]:
            raise fault(
                filename,
                other,
                f"{other['op']} cannot read a table, which only a join looks things up in:"
                f" stream.join(stream.table({name}), (event, row) => …); its events as they come are"
                f" stream.from({name})",
            )


def _check_window(node: Node, filename: str) -> None:
    if node.get("how") is None:
        raise fault(
            filename,
            node,
            "this window is never aggregated: put .aggregate({ init, add }), .reduce(…), .count() or .sum(…) behind it",
        )


def _check_stream(node: Node, filename: str, source: str, streams: Mapping[str, StreamFacts]) -> None:
    name = node.get("stream")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise fault(filename, node, f"{quoted(name)} cannot be the name of a stream; choose another")
    if name not in streams and name != source:
        near = difflib.get_close_matches(name, streams, n=1)
        hint = f"did you mean {near[0]}?" if near else "correct the name"
        make = f"jeet create_stream {name} --key=PATH"
        raise fault(filename, node, f"there is no stream {name}: {hint}, or make it first: {make}")


def _check_names(graph: Sequence[Node], filename: str) -> None:
    seen: dict[str, Node] = {}
    for node in graph:
        for name in collections_of(node):
            if not isinstance(name, str) or not COLLECTION_NAME.fullmatch(name):
                raise fault(
                    filename,
                    node,
                    f"{quoted(name)} cannot be the name of an operator, which is that of its state: use letters,"
                    " digits, '_' and '$', not starting with a digit (collection_name_chars)",
                )
            if name in seen:
                raise fault(
                    filename,
                    node,
                    f"the name {name} is used twice, first on line {seen[name].get('line')}, and each operator keeps"
                    " its own state: give one of them another name by its option name",
                )
            seen[name] = node
    if len(seen) > DEFAULTS["collections"]:
        raise fault(
            filename,
            None,
            f"its operators keep {len(seen)} state collections: a function can have at most {DEFAULTS['collections']}"
            " (collections)",
        )
