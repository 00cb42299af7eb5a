"""A function's graph as people look at it: its stages, the streams around them, and how fast they go.

Promise: pure; a picture tells what the plan says and nothing else. Names in it come from code and are shown as text by
whoever draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jeet.control.graph import ENTRIES, Node, output_of
from jeet.control.signature import describe
from jeet.plan import StagePlan

EdgeKind = Literal["events", "table", "sink", "to", "late", "emit", "key", "copy"]


@dataclass(frozen=True)
class StreamBox:
    name: str
    partitions: int | None
    """None: not known"""
    key: str | None
    internal: bool
    rate: float | None = None
    """events a second that arrive in it, where that was measured"""


@dataclass(frozen=True)
class StageBox:
    number: int
    tasks: int | None
    chains: tuple[tuple[str, ...], ...]
    """operators, each chain in the order in which an item passes them"""
    timed: bool

    @property
    def name(self) -> str:
        return f"stage {self.number}"


@dataclass(frozen=True)
class Edge:
    """From a stream to a stage, or from a stage to a stream."""

    stage: int
    stream: str
    reads: bool
    kind: EdgeKind
    label: str
    rate: float | None = None
    lag: int | None = None

    @property
    def told(self) -> str:
        """What is written beside it."""
        figures = [f"{self.rate:,.0f}/s"] if self.rate is not None else []
        figures += [f"lag {self.lag:,}"] if self.lag is not None else []
        return ", ".join([self.label, *figures] if self.label else figures)


@dataclass(frozen=True)
class Picture:
    function: str
    version: int | None
    """None: of a file"""
    streams: tuple[StreamBox, ...]
    stages: tuple[StageBox, ...]
    edges: tuple[Edge, ...]

    @property
    def title(self) -> str:
        version = "" if self.version is None else f", version {self.version}"
        count = len(self.stages)
        return f"{self.function}{version}: {count} stage{'s' if count > 1 else ''}"


@dataclass(frozen=True)
class Live:
    """What was measured."""

    rates: Mapping[tuple[int, str], float] = field(default_factory=dict)
    """events a second that a stage takes from a stream"""
    lags: Mapping[tuple[int, str], int] = field(default_factory=dict)
    arrivals: Mapping[str, float] = field(default_factory=dict)
    """events a second that a stream gets"""


def picture(
    function: str,
    version: int | None,
    graph: Sequence[Node],
    stages: Sequence[StagePlan],
    partitions: Mapping[str, int],
    keys: Mapping[str, str | None],
    live: Live | None = None,
) -> Picture:
    """The picture of a plan; `partitions` and `keys` of streams as far as they are known."""
    live = live or Live()
    edges: list[Edge] = []
    names: dict[str, bool] = {}
    for stage in stages:
        for each in stage.inputs:
            names.setdefault(each.stream, each.internal)
            kind: EdgeKind = "table" if each.table else "events"
            place = (stage.number, each.stream)
            label = "table" if each.table else ""
            edges.append(Edge(*place, True, kind, label, live.rates.get(place), live.lags.get(place)))
        edges += _outputs(graph, stage, live)
    for edge in edges:
        names.setdefault(edge.stream, False)
    boxes = tuple(
        StreamBox(name, partitions.get(name), keys.get(name), internal, live.arrivals.get(name))
        for name, internal in names.items()
    )
    made = tuple(
        StageBox(stage.number, partitions.get(stage.inputs[0].stream), _chains(graph, stage), stage.timed)
        for stage in stages
    )
    return Picture(function, version, boxes, made, tuple(edges))


def _outputs(graph: Sequence[Node], stage: StagePlan, live: Live) -> list[Edge]:
    named = {output_of(graph[place]): graph[place]["op"] for place in stage.nodes}
    cuts = {cut.output: cut for cut in stage.cuts}
    edges = []
    for place, output in enumerate(stage.outputs):
        if output.stream is None:
            continue
        kind: EdgeKind
        if place in cuts:
            cut = cuts[place]
            kind = "key" if cut.rekey or output.key else "copy"
            label = f"by {_key(graph[cut.node]) if cut.rekey else output.key}" if kind == "key" else "copy"
        elif place == 0:
            kind, label = "sink", ""
        elif (called := output.name or output.stream) in named:
            kind, label = ("to", "") if named[called] == "to" else ("late", "late")
        else:
            kind, label = "emit", "emit"
        edges.append(Edge(stage.number, output.stream, False, kind, label, live.arrivals.get(output.stream)))
    return edges


def _key(node: Node) -> str:
    return str(node["path"]) if node.get("path") is not None else "a function"


def _chains(graph: Sequence[Node], stage: StagePlan) -> tuple[tuple[str, ...], ...]:
    """Operators in chains: a new one where items come together or part."""
    within = set(stage.nodes)
    cut = {each.node for each in stage.cuts}
    names = {place: each.stream for each in stage.inputs for place in each.nodes if place not in cut}
    read: dict[int, int] = {}
    for node in graph:
        if node["id"] in within:
            for above in node["inputs"]:
                read[above] = read.get(above, 0) + 1
    chains: list[list[str]] = []
    ends: dict[int, list[str]] = {}
    for place in sorted(within):
        node = graph[place]
        if node["op"] in ENTRIES and place not in cut:
            continue
        above = node["inputs"]
        if len(above) == 1 and read[above[0]] == 1 and above[0] in ends:
            chain = ends.pop(above[0])
        else:
            # Where it begins goes without saying if there is one stream only.
            begins = [names.get(each, f"({_word(graph[each])})") for each in above]
            chain = [] if len(stage.inputs) == 1 and set(begins) <= set(names.values()) else [" + ".join(begins)]
            chains.append(chain)
        chain.append(_word(node))
        ends[place] = chain
    return tuple(tuple(chain) for chain in chains)


def _word(node: Node) -> str:
    """An operator in a word or two, with its line."""
    op, name = node["op"], node.get("name")
    if op in ENTRIES:
        return "copy"
    if op == "window":
        text = f"window {node.get('collection')}: {describe(node, digests=False)}"
    elif op == "to":
        text = f"to {node.get('stream')}"
    elif op == "branch":
        text = f"branch {node.get('place', 0) + 1}"
    else:
        text = f"{describe(node, digests=False) if op == 'join' else op}{f' {name}' if name and name != op else ''}"
    return f"{text} (line {node['line']})" if node.get("line") else text
