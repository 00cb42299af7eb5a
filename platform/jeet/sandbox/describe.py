"""What a module says of itself: its config, its graph, the streams and collections it names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,62}")


@dataclass(frozen=True)
class Emit:
    """An output stream that a module names; `declared` in config.emits or by .to(), not only in a context.emit call."""

    name: str
    declared: bool


@dataclass(frozen=True)
class Description:
    """A module as the host reads it at deploy time."""

    config: Mapping[str, Any] | None
    """as written in `export const config`; None without one"""
    graph: Sequence[Mapping[str, Any]]
    """nodes {id, op, inputs, line, …}; node 0 is the source; a node that no other reads (onTimer does not count) ends
    in the sink. Further fields by op: guest/graph.js, durations in milliseconds"""
    emits: Sequence[Emit]
    collections: Sequence[str]
    """that the code itself uses or sets up, not those of its operators (operator_state)"""
    lints: Sequence[str]
    """`file:line: …`"""
    stateless_source: bool = False
    """made from a .wasm: nothing is known but what it declares"""
    migrates: bool = False
    """it exports `migrate`"""


def emits_of(
    config: Mapping[str, Any] | None, graph: Sequence[Mapping[str, Any]], literal: Sequence[str]
) -> list[Emit]:
    """All streams named, declared ones first, in order of appearance."""
    declared: dict[str, None] = {}
    listed = config.get("emits") if config is not None else None
    if isinstance(listed, Mapping):
        declared.update(dict.fromkeys(str(name) for name in listed))
    elif isinstance(listed, Sequence) and not isinstance(listed, str):
        for item in listed:
            name = item.get("stream") if isinstance(item, Mapping) else item
            if isinstance(name, str):
                declared.setdefault(name)
    elif isinstance(listed, str):
        declared.setdefault(listed)
    for node in graph:
        if node.get("op") == "to" and isinstance(node.get("stream"), str):
            declared.setdefault(node["stream"])
        late_to = (node.get("window") or node).get("late_to")
        if isinstance(late_to, str):
            declared.setdefault(late_to)
    found = [Emit(name, declared=True) for name in declared]
    found.extend(Emit(name, declared=False) for name in dict.fromkeys(literal) if name not in declared)
    return found


def is_operator(name: str) -> bool:
    """Whether an operator can be called so: what names its state is the name of a collection."""
    return _NAME.fullmatch(name) is not None


EMPTIED = {
    "window": "what it keeps goes when the window closes, sooner with a smaller window, grace or delay",
    "join": "what it keeps goes with event time, sooner with a smaller within or delay",
}
"""operators that empty their collections themselves, and when; the rule state_growth names the same ones"""


def collections_of(node: Mapping[str, Any]) -> Sequence[str]:
    """The state collections that an operator keeps."""
    one = node.get("collection")
    return (*(node.get("collections") or ()), *((one,) if one is not None else ()))


def operator_state(graph: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """The collections of all operators, each with the TTL in milliseconds that the graph itself gives it."""
    return {name: node.get("ttl_ms") for node in graph for name in collections_of(node)}


def clash_of(graph: Sequence[Mapping[str, Any]], used: Sequence[str]) -> tuple[int, str] | None:
    """(line, what is wrong) if an operator keeps its state where the code keeps its own."""
    for node in graph:
        for name in collections_of(node):
            if name in used:
                return node[
                    "line"
                ], f"state.{name} is used by the code and by this {node['op']}: give {node['op']} a name"
    return None
