"""Where in a graph the event time comes from that windows and joins go by. Pure; used by planner.py.

Promise: an event gets its time once, where it first comes in, from the window or join behind that which asks for one;
what stands between them hands it on as it was. Where that cannot be, DeployError says what to put elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from jeet.control.graph import KEEPS_ITEMS, KEYED, Node, fault, gives_time, time_settings
from jeet.errors import DeployError


def before(graph: Sequence[Node], place: int) -> set[int]:
    """All nodes whose items may come to this one, up to those that give them a time of their own."""
    waiting, seen = list(graph[place]["inputs"]), set[int]()
    while waiting:
        above = waiting.pop()
        if above not in seen:
            seen.add(above)
            if not gives_time(graph[above]):
                waiting.extend(graph[above]["inputs"])
    return seen


def hold_ms(graph: Sequence[Node], nodes: Sequence[int]) -> float:
    """How much older than the watermark of a stage its results may be. What windows and joins in a row hold back adds
    up: each is a millisecond behind the one before."""
    longest_ms = 0.0
    behind: dict[int, float] = {}
    for place in sorted(nodes):
        node = graph[place]
        behind_ms = max((behind.get(source, 0.0) for source in node["inputs"]), default=0.0)
        if gives_time(node):
            settings = time_settings(node)
            behind_ms += max(settings.get("grace_ms") or 0, settings.get("within_ms") or 0)
            longest_ms = max(longest_ms, behind_ms)
            behind_ms += 1
        behind[place] = behind_ms
    return longest_ms


def time_of(
    graph: Sequence[Node], readers: Sequence[Sequence[int]], place: int, filename: str, moved: str | None
) -> int | None:
    """The window or join whose `time` tells the time of what passes a cut; None: it has its time already, or none is
    asked for. `moved`: the stream that is moved to other partitions there, where no keyBy stands."""
    if any(gives_time(graph[above]) for above in before(graph, place)):
        return None
    found: list[Node] = []
    waiting: list[tuple[int, Node | None]] = [(reader, None) for reader in readers[place]]
    seen: set[tuple[int, bool]] = set()
    while waiting:
        reader, changed = waiting.pop(0)
        if (reader, changed is not None) in seen:
            continue
        seen.add((reader, changed is not None))
        node = graph[reader]
        if gives_time(node):
            if time_settings(node).get("time") is not None:
                if changed is not None:
                    raise _too_late(changed, node, filename, moved)
                found.append(node)
            continue
        if node["op"] == "onTimer":
            continue  # what comes out of it is no event that passed the cut
        if node["op"] not in KEEPS_ITEMS:
            changed = changed or node
        waiting.extend((each, changed) for each in readers[reader])
    for other in found[1:]:
        if _time(other) != _time(found[0]):
            raise fault(
                filename,
                other,
                f"{other['op']} and the one on line {found[0].get('line')} take the time of the same events"
                " differently: give each a keyBy of its own",
            )
    return int(found[0]["id"]) if found else None


def _too_late(changed: Node, node: Node, filename: str, moved: str | None) -> DeployError:
    op, where = changed["op"], "where they are keyed"
    remedy = f"move the {op} before keyBy"
    if op in KEYED:
        remedy = f"leave time out, as the time of events is carried along, or put .keyBy(…) after the {op}"
    elif moved is not None:
        where = f"before that, where {moved} is moved to other partitions"
        remedy = f"put .keyBy(…) after the {op}"
    return fault(
        filename,
        changed,
        f"{node['op']} on line {node.get('line')} takes the time from what this {op} makes, but events get their time"
        f" {where}: {remedy}",
    )


def _time(node: Node) -> tuple[object, object]:
    settings = time_settings(node)
    return settings.get("time"), settings.get("time_text")
