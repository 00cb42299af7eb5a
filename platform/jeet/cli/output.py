"""What commands print: a value now (`Table`, `Record`, `Done`, `Page`) or a line at a time (`Output.item`).

Promise: stdout holds results only, whole lines, the same facts in both forms; nothing that was stored by others (keys,
events, error texts) can move the cursor or colour the terminal. Colours and progress only on a terminal.
As text or as JSON: a Table is an array of objects, a Record, Done or Page an object, an item one object a line.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from jeet.errors import JeetError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Table:
    """Rows under column names. `empty` is the line shown instead of a table without rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str = "nothing to show"


@dataclass(frozen=True)
class Record:
    """One thing: names and values, shown one a line; a value that is a Table is shown below."""

    values: Mapping[str, object]


@dataclass(frozen=True)
class Done:
    """What was done, in one line, and the facts behind it for --json."""

    message: str
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Text of several lines, the facts behind it for --json, and the exit code that says how things are."""

    lines: Sequence[str]
    facts: Mapping[str, object]
    code: int = 0


Result = Table | Record | Done | Page | None


class Unwritable(JeetError):
    """Standard output takes no more: the disk is full, say. What the command did before stays done."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"cannot write the results to standard output: {cause.strerror or cause}")


@dataclass
class Output:
    """Where a command prints; `json` is the form that was asked for."""

    json: bool = False

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def width(self) -> int | None:
        """Of the terminal; None where there is none, and lines are not folded."""
        return shutil.get_terminal_size().columns if self.is_terminal else None

    def show(self, result: Result) -> None:
        """Print what a command returned."""
        if result is None:
            return
        if self.json:
            self._line(json.dumps(_plain_result(result), ensure_ascii=False, default=_plain))
        elif isinstance(result, Done):
            self._line(visible(result.message))
        elif isinstance(result, Page):
            self.text("\n".join(visible(line) for line in result.lines))
        elif isinstance(result, Table):
            self._table(result)
        else:
            self._record(result)

    def item(self, text: str, facts: Mapping[str, object]) -> None:
        """Print one of many: its text, or its facts as one JSON object a line; flushed, so that followers see it."""
        self._line(json.dumps(facts, ensure_ascii=False, default=_plain) if self.json else visible(text))

    def text(self, text: str) -> None:
        """Print a result of several lines that is no table."""
        self._line(visible(text, keep_lines=True))

    def note(self, text: str) -> None:
        """Tell the person something that is not the result (stderr)."""
        print(visible(text), file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        # A lone surrogate cannot be written as UTF-8: show it escaped.
        try:
            sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_stdout()
            raise Unwritable(error) from error

    def _console(self) -> Console:
        from rich.console import Console

        # Piped output is never wrapped or cut; a terminal folds. What is drawn here is written by `_line` alone.
        return Console(
            file=io.StringIO(),
            force_terminal=self.is_terminal,
            width=None if self.is_terminal else 100_000,
            highlight=False,
            emoji=False,
            markup=False,
        )

    def _table(self, table: Table) -> None:
        from rich.table import Table as RichTable
        from rich.text import Text

        if not table.rows:
            self._line(table.empty)
            return
        console = self._console()
        texts = [[visible(text_of(value)) for value in row] for row in table.rows]
        widths = _widths([table.columns, *texts], console.width)
        if widths is None:
            self._entries(table.columns, texts)
            return
        numeric = [all(isinstance(row[i], int | float | None) for row in table.rows) for i in range(len(table.columns))]
        grid = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for name, right, width in zip(table.columns, numeric, widths, strict=True):
            grid.add_column(Text(name), justify="right" if right else "left", width=width)
        for row in texts:
            grid.add_row(*[Text(text) for text in row])
        self._print(console, grid)

    def _entries(self, columns: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
        """The rows one below the other, a value a line."""
        width = max(len(name) for name in columns) + 1
        for number, row in enumerate(texts):
            if number:
                self._line("")
            for name, text in zip(columns, row, strict=True):
                self._line(f"{name + ':':<{width}}  {text}")

    def _record(self, record: Record) -> None:
        width = max((len(name) for name in record.values), default=0)
        below = []
        for name, value in record.values.items():
            if isinstance(value, Table):
                below.append((name, value))
            else:
                self._line(f"{name + ':':<{width + 1}}  {visible(text_of(value), keep_lines=True)}")
        for name, table in below:
            self._line(f"\n{name}:")
            self._table(table)

    def _print(self, console: Console, grid: Any) -> None:
        with console.capture() as captured:
            console.print(grid)
        for line in captured.get().splitlines():
            self._line(line.rstrip() if not self.is_terminal else line)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """How wide each column is, so that all fit side by side and no word is cut; None if they cannot."""
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    natural = [max(cell_len(text) for text in column) for column in columns]
    widths = [max(cell_len(word) for text in column for word in text.split(" ")) for column in columns]
    spare = room - sum(widths) - _GAP * (len(widths) - 1)
    if spare < 0:
        return None
    if spare >= sum(natural) - sum(widths):
        return natural
    for _ in range(spare):  # to the column that would need most lines
        widest = max(range(len(widths)), key=lambda column: natural[column] / max(widths[column], 1))
        widths[widest] += 1
    return widths


_GAP = 2


def sentence(error: OSError) -> str:
    """What the operating system says, without its number: `events.ndjson: No such file or directory`."""
    what = re.sub(r"\[Errno -?\d+\] ", "", " ".join(str(error).split()))
    if error.strerror is None or error.filename is None:
        return what or type(error).__name__
    return f"{error.filename}: {error.strerror}"


def discard_stdout() -> None:
    """Send what is still to be written nowhere, so that Python does not try again, and complain, when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def quoted(text: str) -> str:
    """A name or text that somebody typed, set off from the words around it."""
    return json.dumps(text, ensure_ascii=False)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 event`, `2,000 events`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def visible(text: str, *, keep_lines: bool = False) -> str:
    """The text with control characters shown as escapes, so that it cannot command the terminal."""
    pattern = _CONTROL_IN_LINES if keep_lines else _CONTROL
    return pattern.sub(lambda match: json.dumps(match[0])[1:-1], text)


def text_of(value: object) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, timedelta):
        return duration(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, str | int | Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=_plain)


def duration(span: timedelta) -> str:
    """`1.2s`, `3m 20s`, `5h 2m`, `8d 3h`."""
    seconds = max(span.total_seconds(), 0.0)
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes}m"
    return f"{hours // 24}d {hours % 24}h"


def _plain_result(result: Table | Record | Done | Page) -> object:
    if isinstance(result, Table):
        return _rows(result)
    if isinstance(result, Page):
        return dict(result.facts)
    if isinstance(result, Done):
        return dict(result.facts) if result.facts else {"message": result.message}
    return {name: _rows(value) if isinstance(value, Table) else value for name, value in result.values.items()}


def _rows(table: Table) -> list[dict[str, object]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)
