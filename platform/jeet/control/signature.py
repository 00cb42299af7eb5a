"""Whether a new version's stages can take over those of the one before, where they stand; and if not, what differs.

Promise: a pure comparison. Stages fit if they read the same streams, hand on to the same internal streams by the same
keys, and keep every operator that they had, by name and meaning: then checkpoints, state, timers and what lies in the
internal streams go on meaning what they mean. What handlers do with items, and operators that are new, make no
difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jeet.control.graph import KEYED, Node, time_settings
from jeet.plan import StagePlan
from jeet.sandbox.describe import collections_of

_MOST_TOLD = 3


@dataclass(frozen=True)
class Signature:
    """A stage as far as what is stored of it depends on it. The texts are for people and for comparing."""

    inputs: Mapping[str, str]
    """by stream: how it is read"""
    cuts: Mapping[str, str]
    """by internal stream: how it is keyed"""
    operators: Mapping[str, str]
    """by name"""
    partitions: int

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(self.inputs)


@dataclass(frozen=True)
class Comparison:
    """What becomes of each stage."""

    moves: Mapping[int, int]
    """new stage → the old one whose tasks it takes over"""
    differences: tuple[str, ...]
    """none: all fits"""
    lost: Mapping[int, tuple[str, ...]]
    """by new stage that takes over: operators whose state and timers mean nothing any more"""

    @property
    def fits(self) -> bool:
        return not self.differences

    @property
    def told(self) -> str:
        more = len(self.differences) - _MOST_TOLD
        return "; ".join(self.differences[:_MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")


def signatures(graph: Sequence[Node], stages: Sequence[StagePlan], partitions: Mapping[str, int]) -> list[Signature]:
    """Of each stage of a version; `partitions` of all streams that it reads, where they are known."""
    keys: dict[str, str] = {}
    for stage in stages:
        for cut in stage.cuts:
            output = stage.outputs[cut.output]
            node = graph[cut.node]
            keys[str(output.stream)] = _key(node) if cut.rekey else output.key or "as it is"
    found = []
    for stage in stages:
        inputs = {}
        for each in stage.inputs:
            how = "as a table" if each.table else "as events"
            inputs[each.stream] = f"{how} keyed by {keys[each.stream]}" if each.internal else how
        cuts = {
            str(stage.outputs[cut.output].stream): keys[str(stage.outputs[cut.output].stream)] for cut in stage.cuts
        }
        cuts = {name: f"{key}, {partitions.get(name)} partitions" for name, key in cuts.items()}
        operators: dict[str, str] = {}
        tables = {place for each in stage.inputs if each.table for place in each.nodes}
        for place in (*stage.nodes, *tables):
            if (graph[place]["op"] == "table") == (place in tables):  # a copied table is kept where it is joined
                operators.update(_operators(graph[place]))
        count = next((partitions[each.stream] for each in stage.inputs if each.stream in partitions), 0)
        found.append(Signature(inputs, cuts, operators, count))
    return found


def compare(old: Sequence[Signature], new: Sequence[Signature]) -> Comparison:
    """Match new stages with old ones, and say what does not fit."""
    moves = _match(old, new)
    differences: list[str] = []
    lost: dict[int, tuple[str, ...]] = {}
    for number, signature in enumerate(new):
        if number not in moves:
            differences.append(f"stage {number} (reads {_list(signature.inputs)}) is new")
            continue
        before = old[moves[number]]
        where = f"stage {number}"
        differences += _differ(where, "reads", before.inputs, signature.inputs)
        differences += _differ(where, "hands on to", before.cuts, signature.cuts)
        kept = {name: text for name, text in signature.operators.items() if name in before.operators}
        differences += _differ(where, "keeps", before.operators, kept)
        lost[number] = tuple(name for name, text in before.operators.items() if kept.get(name) != text)
        if before.partitions != signature.partitions:
            differences.append(f"{where} had {before.partitions} partitions and has {signature.partitions}")
    for number, signature in enumerate(old):
        if number not in moves.values():
            differences.append(f"stage {number} of the version before (reads {_list(signature.inputs)}) is gone")
    return Comparison(moves, tuple(differences), lost)


def _match(old: Sequence[Signature], new: Sequence[Signature]) -> dict[int, int]:
    """Equal ones first, then those that read the same, then those that read at least one stream in the same way."""
    moves: dict[int, int] = {}

    def take(fit: Any) -> None:
        for number, signature in enumerate(new):
            if number in moves:
                continue
            for other, before in enumerate(old):
                if other not in moves.values() and before.partitions == signature.partitions and fit(before, signature):
                    moves[number] = other
                    break

    take(lambda before, signature: before == signature)
    take(lambda before, signature: before.inputs == signature.inputs)
    take(lambda before, signature: bool(before.inputs.items() & signature.inputs.items()))
    return moves


def _differ(where: str, verb: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    found = []
    for name, text in before.items():
        if name not in after:
            found.append(f"{where} {verb} {name} no more ({text})")
        elif after[name] != text:
            found.append(f"{where} {verb} {name} otherwise: it was {text}, it is {after[name]}")
    found += [f"{where} {verb} {name}, which is new ({text})" for name, text in after.items() if name not in before]
    return found


def _list(names: Mapping[str, str]) -> str:
    return " and ".join(sorted(names))


def _key(node: Node) -> str:
    return str(node["path"]) if node.get("path") is not None else f"function {str(node.get('text'))[:12]}"


def _operators(node: Node) -> dict[str, str]:
    """What an operator keeps, by name, each with what it means."""
    if node["op"] == "onTimer":
        return {str(node.get("name") or "onTimer"): "timers"}
    if node["op"] == "table":
        return dict.fromkeys(collections_of(node), f"table of {node['stream']}")
    if node["op"] not in KEYED:
        return {}
    return {name: describe(node) for name in collections_of(node)}


def describe(node: Node, *, digests: bool = True) -> str:
    """An operator in a few words: all that its state depends on, functions by their digests unless only to be shown."""
    if node["op"] == "window":
        window = node["window"]
        size = " every ".join(
            duration(window[name]) for name in ("size_ms", "every_ms", "gap_ms") if window.get(name) is not None
        )
        grace = f", grace {duration(window['grace_ms'])}" if window.get("grace_ms") else ""
        return f"{window['kind']} {size} {node['how']}{grace}{_time(node, digests)}"
    if node["op"] == "join":
        within = f" within {duration(node['within_ms'])}" if node.get("within_ms") is not None else ""
        return f"{node.get('kind')} join{within}{_time(node, digests)}"
    return str(node["op"])


def _time(node: Node, digests: bool) -> str:
    settings = time_settings(node)
    if settings.get("time") is None:
        return ""
    if settings["time"] == "function":
        return ", time by a function" + (f" ({settings.get('time_text')})" if digests else "")
    return f", time {settings.get('time_text') or settings['time']}"


def duration(ms: float) -> str:
    """`1m`, `90s`, `250ms`: the largest unit that leaves a whole number."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms / size:.0f}{unit}"
    return f"{ms:g}ms"
