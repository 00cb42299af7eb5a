"""From a function's graph to its stages: where it is cut, what each stage reads, writes and waits for.

Promise: a pure function of the graph, the function's settings and what is known of the streams that it names. Every
node runs in exactly one stage; no stage reads what depends on what it writes; all inputs of a stage have the same
number of partitions. What cannot be so is a DeployError: one line that names file and line and says what to write.

A stage is what runs without moving events to another partition: nodes joined by edges, cut behind each keyBy. What
follows one keyBy is one stage. A source with another number of partitions than the stage that reads it, and one keyed
otherwise than the function asks, are first copied to an internal stream, by a stage that does nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jeet.control.eventtime import before, hold_ms, time_of
from jeet.control.graph import (
    ENTRIES,
    KEYED,
    Node,
    StreamFacts,
    check_graph,
    fault,
    gives_time,
    output_of,
    quoted,
    readers,
    time_settings,
)
from jeet.control.spec import NAME
from jeet.errors import DeployError
from jeet.limits import DEFAULTS
from jeet.plan import IDLE_MS, Cut, StageInput, StageOutput, StagePlan


@dataclass(frozen=True)
class PlanSettings:
    """What the function's settings say of its graph."""

    function: str
    source: str
    filename: str
    sink: str | None = None
    key: str | None = None
    """path that the source's events are to be keyed by; None: as they are"""
    outputs: tuple[str, ...] = ()
    """all streams but the sink that it may write to, in order"""
    emits: frozenset[str] = frozenset()
    """streams, of these and the sink, that context.emit may name in any stage"""


@dataclass(frozen=True)
class InternalStream:
    """A stream that joins two stages."""

    name: str
    partitions: int
    key: str | None
    """what its events are keyed by: a path, or the digest of a function; None: as they were"""
    line: int


@dataclass(frozen=True)
class Plan:
    """A function's stages and the internal streams between them."""

    stages: tuple[StagePlan, ...]
    streams: tuple[InternalStream, ...]
    partitions: tuple[int, ...]
    """of each stage's inputs"""


def plan(graph: Sequence[Node], settings: PlanSettings, streams: Mapping[str, StreamFacts]) -> Plan:
    """Cut a graph into stages; else DeployError. `streams` has the source and all that the graph names and exist."""
    check_graph(graph, settings.filename, settings.source, streams)
    return _Planner(graph, settings, streams).run()


@dataclass
class _Input:
    nodes: list[int]
    table: bool = False
    above: int | None = None
    """the stage that makes it; None: it is there without this function"""


@dataclass
class _Stage:
    """A stage in the making."""

    nodes: list[int] = field(default_factory=list)
    inputs: dict[str, _Input] = field(default_factory=dict)
    cuts: list[tuple[int, str, bool]] = field(default_factory=list)
    """(node, internal stream, by the node's key handler)"""
    timed: bool = False
    delay_ms: float = 0.0
    hold_ms: float = 0.0
    idle_ms: list[float] = field(default_factory=list)

    @property
    def first(self) -> int:
        """Decides among stages of equal standing."""
        return min([*self.nodes, *(node for each in self.inputs.values() for node in each.nodes)])


class _Planner:
    def __init__(self, graph: Sequence[Node], settings: PlanSettings, streams: Mapping[str, StreamFacts]) -> None:
        self._nodes = graph
        self._settings = settings
        self._known = streams
        self._readers = readers(graph)
        self._stages: list[_Stage] = []
        self._of: dict[int, int] = {}
        """the stage that a node runs in"""
        self._internal: dict[str, InternalStream] = {}

    def run(self) -> Plan:
        self._group()
        self._read_sources()
        self._cut_keys()
        self._check_loops()
        self._count_partitions()
        self._rekey_source()
        self._check_keys()
        self._measure_time()
        return self._result()

    def _fault(self, node: Node | None, what: str) -> DeployError:
        return fault(self._settings.filename, node, what)

    # ---- stages ----

    def _group(self) -> None:
        """Edges join their ends, but those that leave a keyBy; what they lead to goes together."""
        leader = list(range(len(self._nodes)))

        def find(place: int) -> int:
            while leader[place] != place:
                leader[place] = leader[leader[place]]
                place = leader[place]
            return place

        for node in self._nodes:
            for source in node["inputs"]:
                if self._nodes[source]["op"] != "keyBy":
                    leader[find(node["id"])] = find(source)
            if node["op"] == "keyBy":
                for reader in self._readers[node["id"]][1:]:
                    leader[find(reader)] = find(self._readers[node["id"]][0])
        stages: dict[int, int] = {}
        for place in range(len(self._nodes)):
            if place == 0 and not self._readers[0] and len(self._nodes) > 1:
                continue  # nothing reads config.source, only streams by name
            number = stages.setdefault(find(place), len(stages))
            if number == len(self._stages):
                self._stages.append(_Stage())
            self._stages[number].nodes.append(place)
            self._of[place] = number

    def _read_sources(self) -> None:
        for stage in self._stages:
            for place in stage.nodes:
                node = self._nodes[place]
                if node["op"] not in ENTRIES:
                    continue
                name = self._stream_of(node)
                table = node["op"] == "table"
                found = stage.inputs.setdefault(name, _Input([], table))
                if found.table != table:
                    raise self._fault(
                        node,
                        f"{name} is read as a table and as events in one stage: put .keyBy(…) between the events and"
                        " the join",
                    )
                found.nodes.append(place)

    def _stream_of(self, node: Node) -> str:
        return self._settings.source if node["id"] == 0 else str(node["stream"])

    def _cut_keys(self) -> None:
        """Each keyBy ends a stage: what it keys goes to an internal stream, which another stage reads."""
        unnamed = 0
        for node in self._nodes:
            if node["op"] != "keyBy":
                continue
            place, own = node["id"], self._of[node["id"]]
            name = node.get("name")
            if name is None:
                unnamed += 1
                name = f"rekey{unnamed}"
            following = self._readers[place]
            if following:
                below = self._of[following[0]]
            else:  # nothing but the sink: a stage that hands on what arrives
                below = len(self._stages)
                self._stages.append(_Stage())
            if below == own:
                raise self._fault(
                    node,
                    "what follows this keyBy is merged or joined with what comes before it, so one stage would read its"
                    " own output: key the other side by .keyBy(…) as well, before they meet",
                )
            stream = self._make_internal(node, str(name), node.get("path") or node.get("text"))
            self._stages[own].cuts.append((place, stream, True))
            self._stages[below].inputs[stream] = _Input([place], above=own)

    def _make_internal(self, node: Node, name: str, key: str | None) -> str:
        if not NAME.fullmatch(name):
            raise self._fault(
                node, f"{quoted(name)} cannot be the name of a keyBy: use letters, digits, '_', '-' and '.'"
            )
        whole = f"{self._settings.function}/{name}"
        if whole in self._internal:
            raise self._fault(
                node,
                f"the name {name} is used twice, first on line {self._internal[whole].line}: give this keyBy another"
                " one by its option name",
            )
        self._internal[whole] = InternalStream(whole, 0, key, int(node.get("line") or 0))
        return whole

    def _above(self, number: int) -> set[int]:
        return {each.above for each in self._stages[number].inputs.values() if each.above is not None}

    def _check_loops(self) -> None:
        """Among stages: the graph itself leads forward only, but two of them may still wait for each other."""
        done: set[int] = set()
        while ready := [n for n in range(len(self._stages)) if n not in done and self._above(n) <= done]:
            done.update(ready)
        left = [n for n in range(len(self._stages)) if n not in done]
        if not left:
            return
        reached = left[0]
        for _ in self._stages:  # so far up, one of those that go round
            reached = min(n for n in self._above(reached) if n not in done)
        place = min(place for place, _, _ in self._stages[reached].cuts)
        raise self._fault(
            self._nodes[place],
            "what follows this keyBy leads back to what comes before it, over another keyBy, so stages would wait for"
            " each other: key both sides by .keyBy(…) before they are merged or joined",
        )

    # ---- partitions ----

    def _count_partitions(self) -> None:
        """All inputs of a stage get the count that its keyBys ask for, else that of its sources, else the source's."""
        home = self._facts(self._settings.source)
        counts: list[int] = []
        for stage in list(self._stages):
            asked = {
                int(self._nodes[each.nodes[0]]["partitions"]): self._nodes[each.nodes[0]]
                for each in stage.inputs.values()
                if each.above is not None and self._nodes[each.nodes[0]].get("partitions") is not None
            }
            given = {name: self._facts(name) for name, each in stage.inputs.items() if each.above is None}
            if len(asked) > 1:
                (first, _), (second, node) = sorted(asked.items(), key=lambda item: int(item[1]["id"]))[:2]
                raise self._fault(
                    node,
                    f"this keyBy asks for {second} partitions, and what it is merged or joined with for {first}:"
                    " give both the same",
                )
            if asked:
                (count,) = asked
                if not 1 <= count <= DEFAULTS["partitions"]:
                    most = DEFAULTS["partitions"]
                    raise self._fault(asked[count], f"keyBy asks for {count} partitions: use 1 to {most} (partitions)")
            elif self._settings.source in given:
                count = home.partitions
            else:
                count = next((facts.partitions for facts in given.values()), home.partitions)
            counts.append(count)
        for number, count in enumerate(counts):
            for name, each in list(self._stages[number].inputs.items()):
                if each.above is not None:
                    self._internal[name] = replace(self._internal[name], partitions=count)
                elif self._facts(name).partitions != count:
                    self._copy(number, name, f"{name}-copy", count, None)

    def _facts(self, name: str) -> StreamFacts:
        return self._known[name]

    def _copy(self, number: int, name: str, copy: str, partitions: int, key: str | None) -> None:
        """Let a stage read a copy of one of its sources, made by a stage of its own."""
        stage = self._stages[number]
        old = stage.inputs.pop(name)
        node = self._nodes[old.nodes[0]]
        while f"{self._settings.function}/{copy}" in self._internal:
            copy += "2"
        stream = self._make_internal(node, copy, key)
        self._internal[stream] = replace(self._internal[stream], partitions=partitions)
        above = len(self._stages)
        first = old.nodes[0]
        self._stages.append(_Stage(list(old.nodes), {name: _Input([first])}, [(first, stream, False)]))
        stage.nodes = [place for place in stage.nodes if place not in old.nodes]
        stage.inputs[stream] = _Input(old.nodes, old.table, above)

    def _rekey_source(self) -> None:
        """A source that is keyed otherwise than config.key says: by that path, before anything else."""
        facts, key = self._facts(self._settings.source), self._settings.key
        if key is None or key == facts.key:
            return
        for number, stage in enumerate(list(self._stages)):
            for name, each in list(stage.inputs.items()):
                if 0 not in each.nodes:
                    continue
                if each.above is None:
                    self._copy(number, name, "rekey0", facts.partitions, key)
                else:  # copied already, with other partitions: that copy is keyed as well
                    self._internal[name] = replace(self._internal[name], key=key)

    def _check_keys(self) -> None:
        """Operators that keep something by key, over a source that is made here and has none."""
        for stage in self._stages:
            keyless = [
                name
                for name, each in stage.inputs.items()
                if each.above is None and not self._facts(name).exists and self._facts(name).key is None
            ]
            operator = next((self._nodes[place] for place in stage.nodes if self._nodes[place]["op"] in KEYED), None)
            if keyless and operator is not None:
                raise self._fault(
                    operator,
                    f"{operator['op']} works by the key of events, and {keyless[0]} has none: put .keyBy(e => …) before"
                    " it, or give the source a key by config.key or --key",
                )

    # ---- time ----

    def _measure_time(self) -> None:
        for number, stage in enumerate(self._stages):
            stage.hold_ms = hold_ms(self._nodes, stage.nodes)
            for place in stage.nodes:
                node = self._nodes[place]
                if node["op"] == "onTimer":
                    self._mark_timed(number)
                if gives_time(node):
                    self._mark_timed(number)
                    self._measure(number, node)

    def _mark_timed(self, number: int) -> None:
        """A stage and all that it hears the time from; tables tell none."""
        if self._stages[number].timed:
            return
        self._stages[number].timed = True
        for each in self._stages[number].inputs.values():
            if each.above is not None and not each.table:
                self._mark_timed(each.above)

    def _measure(self, number: int, node: Node) -> None:
        settings, stage = time_settings(node), self._stages[number]
        # Those in which the times that it goes by are first seen, and those on the way.
        passed = before(self._nodes, node["id"])
        for where in self._stages:
            if where is not stage and passed.isdisjoint(where.nodes):
                continue
            where.delay_ms = max(where.delay_ms, settings.get("delay_ms") or 0)
            if settings.get("idle_ms"):
                where.idle_ms.append(settings["idle_ms"])

    # ---- the result ----

    def _order(self) -> list[int]:
        """The stage that reads config.source, then each behind those that it reads from."""
        entry = next(
            (n for n, stage in enumerate(self._stages) if any(self._is_source(x) for x in stage.inputs.items())), None
        )
        order: list[int] = [] if entry is None else [entry]
        done: set[int] = set()
        heap = [(self._stages[n].first, n) for n in range(len(self._stages)) if not self._above(n)]
        heapq.heapify(heap)
        queued = {n for _, n in heap}
        while heap:
            _, number = heapq.heappop(heap)
            done.add(number)
            if number != entry:
                order.append(number)
            for n in range(len(self._stages)):
                if n not in queued and self._above(n) <= done:
                    queued.add(n)
                    heapq.heappush(heap, (self._stages[n].first, n))
        return order

    def _is_source(self, item: tuple[str, _Input]) -> bool:
        name, each = item
        return name == self._settings.source and each.above is None and 0 in each.nodes

    def _result(self) -> Plan:
        order = self._order()
        made = tuple(self._stage(number, self._stages[old], len(order) == 1) for number, old in enumerate(order))
        streams = tuple(sorted(self._internal.values(), key=lambda stream: stream.name))
        counts = []
        for stage in made:
            first = stage.inputs[0]
            known = self._internal[first.stream] if first.internal else self._facts(first.stream)
            counts.append(known.partitions)
        return Plan(made, streams, tuple(counts))

    def _stage(self, number: int, stage: _Stage, alone: bool) -> StagePlan:
        outputs = self._outputs(stage, alone)
        cuts = []
        for place, stream, rekey in sorted(stage.cuts):
            below = [other for other in self._stages if stream in other.inputs]
            timed = any(other.timed and not other.inputs[stream].table for other in below)
            path = self._internal[stream].key if not rekey else None
            outputs.append(StageOutput(stream, path, internal=True))
            moved = None if rekey else self._stream_of(self._nodes[place])
            time = time_of(self._nodes, self._readers, place, self._settings.filename, moved) if timed else None
            cuts.append(Cut(place, len(outputs) - 1, rekey, time, timed))
        return StagePlan(
            number=number,
            inputs=tuple(
                StageInput(name, tuple(each.nodes), each.table, each.above is not None)
                for name, each in stage.inputs.items()
            ),
            outputs=tuple(outputs),
            cuts=tuple(cuts),
            nodes=tuple(stage.nodes),
            timed=stage.timed,
            delay_ms=stage.delay_ms,
            hold_ms=stage.hold_ms,
            idle_ms=max(stage.idle_ms, default=IDLE_MS),
            keyed=any(self._nodes[place]["op"] in KEYED for place in stage.nodes),
        )

    def _is_end(self, place: int) -> bool:
        """What comes out of it goes to the sink."""
        read = any(self._nodes[reader]["op"] != "onTimer" for reader in self._readers[place])
        return not read and self._nodes[place]["op"] != "to"

    def _outputs(self, stage: _Stage, alone: bool) -> list[StageOutput]:
        """The sink, then what its operators and context.emit may name."""
        settings = self._settings
        named = {output_of(self._nodes[place]) for place in stage.nodes}
        cut = {place for place, _, _ in stage.cuts}
        run = {*stage.nodes, *(place for each in stage.inputs.values() for place in each.nodes)} - cut
        ends = any(self._is_end(place) for place in run)
        sink = settings.sink if alone or ends or settings.sink in settings.emits else None
        chosen = [name for name in settings.outputs if alone or name in named or name in settings.emits]
        return [StageOutput(sink), *(StageOutput(name) for name in chosen)]
