"""How a function's graph is cut into stages: what each stage reads, runs and hands on. Values only.

A plan is made at deploy (control/planner.py), stored with the version (jeet_internal.stage.plan) and read by workers.
Streams are known by name here; the database knows them by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

IDLE_MS = 30_000
"""wall time without an event after which an input stops holding the watermark back"""


@dataclass(frozen=True)
class StageInput:
    """A stream that a stage reads, and the nodes of the graph at which its events enter."""

    stream: str
    nodes: tuple[int, ...] = (0,)
    table: bool = False
    """read to its end before any event of other inputs: only the latest value of each key counts"""
    internal: bool = False
    """made by another stage, whose watermark it carries; else its own events make the watermark"""


@dataclass(frozen=True)
class Cut:
    """A node at which a stage ends: what reaches it goes to an internal stream."""

    node: int
    output: int
    """place in the stage's outputs"""
    rekey: bool = True
    """by the node's key handler; else with the key it has (a stream that is only given another partition count)"""
    time_of: int | None = None
    """the window or join, in a later stage, whose `time` gives the event time; None: the time that the event has"""
    timed: bool = False
    """some later stage needs event time, so the item's time raises this stage's watermark"""


@dataclass(frozen=True)
class StageOutput:
    """A stream that a stage writes to, by its place: 0 is the sink (name None: there is none)."""

    stream: str | None
    key: str | None = None
    """path of the key in the value"""
    internal: bool = False
    """joins two stages: rows carry event time; user code cannot name it"""
    name: str | None = None
    """what code calls it; None: by the stream's own name"""


@dataclass(frozen=True)
class StagePlan:
    """One stage of a version."""

    number: int = 0
    inputs: tuple[StageInput, ...] = ()
    """by stream id, as jeet_internal.stage.inputs"""
    outputs: tuple[StageOutput, ...] = ()
    cuts: tuple[Cut, ...] = ()
    nodes: tuple[int, ...] = ()
    """of the graph: those that run in this stage"""
    timed: bool = False
    """keeps a watermark: it, or a later stage, has windows, stream-stream joins or event-time timers"""
    delay_ms: float = 0.0
    """an input's watermark is its highest event time less this"""
    hold_ms: float = 0.0
    """later stages see this stage's watermark less this, as results may be that much older (grace, within)"""
    idle_ms: float = IDLE_MS
    keyed: bool = False
    """some operator keeps state by the event's key, so each event must have one"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StagePlan:
        def each(kind: Any, items: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
            return tuple(
                kind(**{**item, **({"nodes": tuple(item["nodes"])} if "nodes" in item else {})}) for item in items
            )

        return cls(
            **{
                **value,
                "inputs": each(StageInput, value["inputs"]),
                "outputs": each(StageOutput, value["outputs"]),
                "cuts": each(Cut, value["cuts"]),
                "nodes": tuple(value["nodes"]),
            }
        )


WHOLE = StagePlan(inputs=(StageInput(""),))
"""The plan of a graph that is one stage, where none was made: every node runs in it."""
