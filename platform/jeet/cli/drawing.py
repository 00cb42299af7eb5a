"""Pictures of graphs: as text, as Mermaid, as SVG. What they show is control/picture.py's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jeet.cli.output import visible
from jeet.control.picture import Edge, Picture, StageBox, StreamBox

if TYPE_CHECKING:
    import drawsvg

FONT, LINE, PAD, GAP_X, GAP_Y = 13, 18, 10, 150, 28
_CHAR = 7.3
"""width of a character, about"""
_LOOK = {"stage": ("#eef4ff", "#3b6fb6"), "stream": ("#ffffff", "#555555"), "internal": ("#f4f4f4", "#999999")}
_ARROWS = {"table": "6,3", "emit": "2,3", "late": "2,3", "copy": "6,3"}


def stream_facts(stream: StreamBox) -> str:
    facts = [f"{stream.partitions} partition{'s' if stream.partitions != 1 else ''}"] if stream.partitions else []
    facts += [f"key {stream.key}"] if stream.key and not stream.internal else []
    return ", ".join(facts)


def as_text(picture: Picture) -> str:
    """A paragraph for each stage: what it reads, runs and writes."""
    streams = {stream.name: stream for stream in picture.streams}

    def line(word: str, edge: Edge) -> str:
        facts = [text for text in (stream_facts(streams[edge.stream]), edge.told) if text]
        return f"  {word:<7} {edge.stream}" + (f" ({'; '.join(facts)})" if facts else "")

    lines = [picture.title]
    for stage in picture.stages:
        time = ", by event time" if stage.timed else ""
        tasks = "" if stage.tasks is None else f", {stage.tasks} task{'s' if stage.tasks != 1 else ''}"
        lines += ["", f"{stage.name}{tasks}{time}"]
        edges = [edge for edge in picture.edges if edge.stage == stage.number]
        lines += [line("reads", edge) for edge in edges if edge.reads]
        lines += [f"  {'runs':<7} {' → '.join(chain)}" for chain in stage.chains]
        lines += [line("writes", edge) for edge in edges if not edge.reads]
    return "\n".join(lines)


def as_mermaid(picture: Picture) -> str:
    """A Mermaid flowchart: streams as rounded boxes, stages as boxes."""
    ids = {stream.name: f"s{place}" for place, stream in enumerate(picture.streams)}
    lines = ["flowchart LR"]
    for stream in picture.streams:
        text = _quoted([stream.name, stream_facts(stream)])
        lines.append(f"  {ids[stream.name]}([{text}]){':::internal' if stream.internal else ''}")
    for stage in picture.stages:
        lines.append(f"  t{stage.number}[{_quoted(_stage_lines(stage))}]")
    for edge in picture.edges:
        ends = (ids[edge.stream], f"t{edge.stage}")
        start, end = ends if edge.reads else ends[::-1]
        label = f"|{_quoted([edge.told])}|" if edge.told else ""
        lines.append(f"  {start} {'-.->' if edge.kind in _ARROWS else '-->'}{label} {end}")
    lines.append("  classDef internal stroke-dasharray: 4 3")
    return "\n".join(lines)


def _stage_lines(stage: StageBox) -> list[str]:
    head = stage.name + ("" if stage.tasks is None else f", {stage.tasks} task{'s' if stage.tasks != 1 else ''}")
    return [head, *(" → ".join(chain) for chain in stage.chains)]


def _quoted(lines: Sequence[str]) -> str:
    """A label: Mermaid takes entities in quotes, and what could end the quotes or be markup must be one."""
    text = "<br>".join(
        "".join(c if c.isalnum() or c in " .,:/_-()→+%" else f"#{ord(c)};" for c in visible(line))
        for line in lines
        if line
    )
    return f'"{text}"'


def as_svg(picture: Picture) -> str:
    """A drawing from left to right, each box behind all that it depends on."""
    import drawsvg

    boxes = {stream.name: [stream.name, stream_facts(stream)] for stream in picture.streams}
    looks = {stream.name: "internal" if stream.internal else "stream" for stream in picture.streams}
    for stage in picture.stages:
        name = f"\0{stage.number}"  # no stream is called so
        head, *chains = _stage_lines(stage)
        boxes[name] = [head, *(step if not place else f"→ {step}" for c in chains for place, step in _steps(c))]
        looks[name] = "stage"
    links = [(e.stream, f"\0{e.stage}", e) if e.reads else (f"\0{e.stage}", e.stream, e) for e in picture.edges]
    columns = _columns(list(boxes), [(start, end) for start, end, _ in links])
    places: dict[str, tuple[float, float, float, float]] = {}
    x = float(PAD)
    height = 0.0
    for column in columns:
        width = max(len(line) for name in column for line in boxes[name]) * _CHAR + 2 * PAD
        y = 2.0 * PAD + LINE
        for name in column:
            tall = len([line for line in boxes[name] if line]) * LINE + PAD
            places[name] = (x, y, width, tall)
            y += tall + GAP_Y
        height = max(height, y)
        x += width + GAP_X
    drawing = drawsvg.Drawing(x - GAP_X + PAD, height + PAD, font_family="sans-serif")
    drawing.append(drawsvg.Rectangle(0, 0, "100%", "100%", fill="#ffffff"))
    drawing.append(drawsvg.Text(visible(picture.title), FONT + 2, PAD, PAD + LINE / 2, font_weight="bold"))
    tip = drawsvg.Marker(-8, -4, 1, 4, scale=1, orient="auto")
    tip.append(drawsvg.Lines(-8, -4, 0, 0, -8, 4, close=True, fill="#555555"))
    for start, end, edge in links:
        _draw_edge(drawing, places[start], places[end], edge, tip)
    for name, lines in boxes.items():
        _draw_box(drawing, places[name], looks[name], [line for line in lines if line])
    return str(drawing.as_svg())


def _steps(chain: str) -> list[tuple[int, str]]:
    return list(enumerate(chain.split(" → ")))


def _draw_box(
    drawing: drawsvg.Drawing, place: tuple[float, float, float, float], look: str, lines: Sequence[str]
) -> None:
    import drawsvg

    x, y, width, height = place
    fill, stroke = _LOOK[look]
    dashes = {"stroke_dasharray": "4,3"} if look == "internal" else {}
    corner = 4 if look == "stage" else 14
    drawing.append(drawsvg.Rectangle(x, y, width, height, rx=corner, fill=fill, stroke=stroke, **dashes))
    for number, line in enumerate(lines):
        weight = {"font_weight": "bold"} if not number else {}
        drawing.append(drawsvg.Text(visible(line), FONT, x + PAD, y + PAD / 2 + (number + 0.7) * LINE, **weight))


def _draw_edge(
    drawing: drawsvg.Drawing,
    start: tuple[float, float, float, float],
    end: tuple[float, float, float, float],
    edge: Edge,
    tip: drawsvg.Marker,
) -> None:
    import drawsvg

    x1, y1 = start[0] + start[2], start[1] + start[3] / 2
    x2, y2 = end[0], end[1] + end[3] / 2
    if x2 < x1:  # back to the left, under the boxes
        x1, y1, x2, y2 = start[0] + start[2] / 2, start[1] + start[3], end[0] + end[2] / 2, end[1] + end[3] + 8
    dashes = {"stroke_dasharray": _ARROWS[edge.kind]} if edge.kind in _ARROWS else {}
    path = drawsvg.Path(stroke="#555555", fill="none", marker_end=tip, **dashes)
    bend = (x2 - x1) / 2
    drawing.append(path.M(x1, y1).C(x1 + bend, y1, x2 - bend, y2, x2, y2))
    if edge.told:
        middle = ((x1 + x2) / 2, (y1 + y2) / 2 - 4)
        drawing.append(drawsvg.Text(visible(edge.told), FONT - 2, *middle, text_anchor="middle", fill="#333333"))


def _columns(names: Sequence[str], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Each box in the column behind all that lead to it; within a column, near what leads to it."""
    depth = dict.fromkeys(names, 0)
    for _ in names:  # a loop over functions' own streams ends here as well
        moved = [(end, depth[start] + 1) for start, end in links if depth[end] <= depth[start] < len(names)]
        for end, at in moved:
            depth[end] = max(depth[end], at)
        if not moved:
            break
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(depth[name], []).append(name)
    columns = [found[at] for at in sorted(found)]
    row = {name: float(place) for column in columns for place, name in enumerate(column)}
    for column in columns[1:]:
        for name in column:
            above = [row[start] for start, end in links if end == name]
            row[name] = sum(above) / len(above) if above else row[name]
        column.sort(key=lambda name: row[name])
        row.update({name: float(place) for place, name in enumerate(column)})
    return columns
