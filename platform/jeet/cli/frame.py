"""Draws an overview as lines of text for a screen of some width and height. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from jeet.cli.output import counted, duration, visible
from jeet.observe.overview import Overview, Row

Style = Literal["", "bold", "dim", "red", "green"]
BARS = "▁▂▃▄▅▆▇█"
NARROWEST = 60
_MOST_FINDINGS = 3
_KEEPS_UP = timedelta(seconds=5)
"""events that wait for less than this are under way, and tell of no backlog"""


@dataclass(frozen=True)
class Line:
    """One line of the screen, in one style."""

    text: str
    style: Style = ""


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    right: bool = True


def frame(overview: Overview, width: int, height: int | None = None) -> list[Line]:
    """The worst first. `height`: what does not fit is counted in a line; None: all of it."""
    width = max(width, NARROWEST)
    head = [*_headline(overview), *_doctor(overview, all_of_it=height is None), Line("")]
    workers = _table(_WORKERS, [_worker(row) for row in overview.workers], [_alarm(row) for row in overview.workers])
    functions = _functions(overview, width)
    behind = _table(_PARTITIONS, [_partition(row) for row in overview.partitions])
    blocks = [functions, workers, behind if overview.partitions else []]
    if height is not None:
        blocks = _fitted(blocks, height - len(head))
    lines = head
    for block in blocks:
        if block:
            lines += [*block, Line("")]
    return [Line(visible(line.text)[:width].rstrip(), line.style) for line in lines[:-1]]


def _headline(overview: Overview) -> list[Line]:
    running = sum(row["status"] == "running" for row in overview.workers)
    tasks = sum(row["tasks"] for row in overview.functions)
    led = "led by a coordinator" if overview.is_led else "no coordinator leads"
    functions = len(overview.functions)
    run = f"{counted(functions, 'function')} in {counted(tasks, 'task')}" if functions else "no function"
    waits = f"{counted(overview.waiting, 'event')} wait{'s' if overview.waiting == 1 else ''}"
    return [
        Line(f"jeet at {overview.at:%H:%M:%S} UTC: {run}, {waits}", "bold"),
        Line(f"{counted(running, 'worker')}, {led}"),
    ]


def _doctor(overview: Overview, *, all_of_it: bool) -> list[Line]:
    findings = overview.findings
    if not findings:
        return [Line("jeet doctor: healthy", "green")]
    shown = findings if all_of_it or len(findings) <= _MOST_FINDINGS + 1 else findings[:_MOST_FINDINGS]
    left = len(findings) - len(shown)
    return [
        Line(f"jeet doctor: {counted(len(findings), 'finding')}", "red"),
        *(Line(f"  {finding.observation}", "red") for finding in shown),
        *([Line(f"  … and {left} more: jeet doctor", "dim")] if left else []),
    ]


def _functions(overview: Overview, width: int) -> list[Line]:
    if not overview.functions:
        return [Line("no function is deployed; write one and: jeet deploy FILE")]
    columns = [*_FUNCTIONS]
    spare = width - sum(column.width + 1 for column in columns)
    if spare >= _DRAIN.width + _JS.width + _DB.width + 3 + 20:
        columns += [_DRAIN, _JS, _DB]
        spare -= _DRAIN.width + _JS.width + _DB.width + 3
    bars = max(min(spare, 60), 0)
    if bars >= 8:
        columns.append(_Column("LAST HOUR" if bars == 60 else f"LAST {bars} MIN", bars, right=False))
    rows = [
        [*_function(row)[: len(columns) - 1], spark(overview.history.get(row["function"], ())[-bars:])]
        if bars >= 8
        else _function(row)[: len(columns)]
        for row in overview.functions
    ]
    return _table(columns, rows, ["red" if row["status"] == "failed" else "" for row in overview.functions])


_FUNCTIONS = (
    _Column("FUNCTION", 16, right=False),
    _Column("STATUS", 10, right=False),
    _Column("IN/S", 7),
    _Column("DONE/S", 7),
    _Column("WAITING", 8),
    _Column("OLDEST", 7),
)
_DRAIN = _Column("CAUGHT UP IN", 12)
_JS = _Column("IN JS", 5)
_DB = _Column("IN DB", 5)
_WORKERS = (
    _Column("WORKER", 6),
    _Column("HOST", 16, right=False),
    _Column("PID", 8),
    _Column("STATUS", 8, right=False),
    _Column("TASKS", 5),
    _Column("BUSY", 5),
    _Column("MEMORY", 7),
    _Column("HEARTBEAT", 10),
)
_PARTITIONS = (
    _Column("FURTHEST BEHIND", 16, right=False),
    _Column("STAGE", 5),
    _Column("PARTITION", 9),
    _Column("STREAM", 16, right=False),
    _Column("WAITING", 8),
    _Column("OLDEST", 7),
    _Column("WORKER", 6),
)


def _function(row: Row) -> list[str]:
    return [
        row["function"],
        row["under_way"] if row["under_way"] and row["status"] == "running" else row["status"],
        _rate(row["arrival_per_s"]),
        _rate(row["processed_per_s"]),
        _number(row["lag"]),
        _span(row["oldest_age"]),
        _caught_up_in(row),
        _share(row["share_sandbox"]),
        _share(row["share_database"]),
    ]


def _caught_up_in(row: Row) -> str:
    if row["drain_s"] is not None:
        return _span(timedelta(seconds=row["drain_s"]))
    if not row["lag"]:
        return _span(timedelta())
    # What stands still, what nobody has measured yet, and what keeps up, tell nothing of a backlog.
    if row["under_way"] or row["processed_per_s"] is None or (row["oldest_age"] or timedelta()) < _KEEPS_UP:
        return "-"
    return "never"


def _worker(row: Row) -> list[str]:
    memory = row["memory_bytes"]
    return [
        str(row["id"]),
        row["host"],
        str(row["pid"]),
        row["status"],
        _number(row["tasks"]),
        _share(row["busy"]),
        "-" if memory is None else f"{memory / 2**20:,.0f} MB",
        f"{_span(row['heartbeat_age'])} ago",
    ]


def _alarm(row: Row) -> Style:
    return "" if row["status"] == "running" and row["heartbeat_age"] < timedelta(seconds=5) else "red"


def _partition(row: Row) -> list[str]:
    return [
        row["function"],
        str(row["stage"]),
        str(row["partition"]),
        row["stream"],
        _number(row["lag"]),
        _span(row["oldest_age"]),
        "nobody" if row["worker"] is None else str(row["worker"]),
    ]


def _table(
    columns: Sequence[_Column], rows: Sequence[Sequence[str]], styles: Sequence[Style] | None = None
) -> list[Line]:
    lines = [Line(_row(columns, [column.title for column in columns]), "dim")]
    for number, row in enumerate(rows):
        lines.append(Line(_row(columns, row), styles[number] if styles else ""))
    return lines


def _row(columns: Sequence[_Column], values: Sequence[str]) -> str:
    cells = []
    for column, value in zip(columns, values, strict=True):
        cut = value if len(value) <= column.width else f"{value[: column.width - 1]}…"
        cells.append(cut.rjust(column.width) if column.right else cut.ljust(column.width))
    return " ".join(cells)


def _fitted(blocks: Sequence[list[Line]], room: int) -> list[list[Line]]:
    """Cut the longest blocks until all fit below one another, a heading and a row of each at least."""
    kept = [len(block) for block in blocks]
    while sum(length + 1 for length in kept if length) > room + 1 and max(kept) > 2:
        kept[kept.index(max(kept))] -= 1
    fitted = []
    for block, length in zip(blocks, kept, strict=True):
        if length == len(block):
            fitted.append(block)
        else:
            left = Line(f"… and {len(block) - length + 1} more", "dim")
            fitted.append([*block[: length - 1], left])
    return fitted


def spark(values: Sequence[int]) -> str:
    """`▁▃█`: each value in relation to the highest; a blank is none."""
    most = max(values, default=0)
    return "".join(" " if value <= 0 else BARS[min(value * 8 // (most + 1), 7)] for value in values)


def _rate(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < value < 10 else _number(round(value))


def _number(value: int) -> str:
    return f"{value:,}" if value < 1_000_000 else f"{value / 1e6:,.1f}M"


def _share(value: Any) -> str:
    return "-" if value is None else f"{max(value, 0) * 100:.0f}%"


def _span(value: timedelta | None) -> str:
    return "-" if value is None else duration(value)
