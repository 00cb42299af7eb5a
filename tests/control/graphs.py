"""Graphs as code describes them, written by hand."""

from __future__ import annotations

from typing import Any

from jeet.control.graph import StreamFacts
from jeet.control.planner import Plan, PlanSettings, plan

MINUTE = 60_000


class Graph:
    """Nodes in the order of a file, one a line; each method gives the node's id."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"id": 0, "op": "source", "inputs": [], "line": 0}]

    def add(self, op: str, *inputs: int, **more: Any) -> int:
        place = len(self.nodes)
        self.nodes.append({"id": place, "op": op, "inputs": list(inputs), "line": place, **more})
        return place

    def key(self, source: int, path: str = "user", **more: Any) -> int:
        return self.add("keyBy", source, path=path, **more)

    def window(self, source: int, collection: str = "window", how: str = "count", **settings: Any) -> int:
        window = {"kind": "tumbling", "size_ms": MINUTE, "delay_ms": 0, "grace_ms": 0, "emit": "close", "time": None}
        return self.add("window", source, window={**window, **settings}, how=how, collection=collection)

    def plan(self, streams: dict[str, StreamFacts] | None = None, **settings: Any) -> Plan:
        known = {"events": StreamFacts(8, "id"), **(streams or {})}
        chosen: dict[str, Any] = {"function": "f", "source": "events", "filename": "f.js", "sink": "out", **settings}
        return plan(self.nodes, PlanSettings(**chosen), known)
