"""What `jeet publish` shows: refused lines as they are met, a progress bar on a terminal, and what it came to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from jeet.cli.output import Done, Output, counted
from jeet.errors import Refused, UsageError
from jeet.stream.append import Producer, Published

SHOWN_REFUSALS = 100
"""refused lines that are told one by one"""


def publish(
    out: Output, url: str, stream: str, file: str, *, key: str | None, id_field: str | None, wait: bool
) -> None:
    """Publish a file, or stdin for `-`; print how many are in; UsageError at the end if any line was refused."""
    latest = Published()
    shown = 0

    def refused(line: Refused) -> None:
        nonlocal shown
        shown += 1
        if shown <= SHOWN_REFUSALS:
            out.note(str(line))
        elif shown == SHOWN_REFUSALS + 1:
            out.note("… further refused lines are only counted")

    async def run(lines: Input, progress: Callable[[Published], None]) -> Published:
        def reached(published: Published) -> None:
            nonlocal latest
            latest = published
            progress(published)

        async with Producer(url, wait_when_full=wait) as producer:
            return await producer.publish_lines(
                stream, lines, key=key, id_field=id_field, on_refused=refused, on_progress=reached
            )

    with source(file) as lines, _progress(lines) as progress:
        try:
            latest = asyncio.run(run(lines, progress))
        except KeyboardInterrupt:
            out.note(f"stopped: lines up to {latest.lines} are in; those just being sent may be")
            raise
    _report(out, stream, latest)


def _report(out: Output, stream: str, published: Published) -> None:
    new = published.written - published.repeated
    again = f"; {counted(published.repeated, 'event')} had been published before" if published.repeated else ""
    facts = {
        "stream": stream,
        "published": new,
        "repeated": published.repeated,
        "refused": published.refused,
        "lines": published.lines,
    }
    out.show(Done(f"published {counted(new, 'event')} to {stream}{again}", facts))
    if published.refused:
        were = "was" if published.refused == 1 else "were"
        others = f"all others are in {stream}" if published.written else f"nothing is in {stream} of this input"
        raise UsageError(f"{counted(published.refused, 'line')} {were} refused; {others}")


class Input:
    """A file or pipe without a buffer.

    A thread that waits in a buffered read holds the buffer's lock, and neither closing it nor ending Python gets past.
    """

    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self._number = number

    def fileno(self) -> int:
        return self._number

    def read1(self, size: int, /) -> bytes:
        try:
            return os.read(self._number, size)
        except OSError as error:
            raise UsageError(f"cannot read {self._name}: {error.strerror or error}") from error


@contextlib.contextmanager
def source(file: str) -> Iterator[Input]:
    """A file to read, or stdin for `-`."""
    if file == "-":
        if sys.stdin is None:
            raise UsageError("there is no standard input to read; name a file")
        yield Input("standard input", sys.stdin.fileno())
        return
    try:
        opened = Path(file).expanduser().open("rb", buffering=0)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    with opened:
        yield Input(file, opened.fileno())


@contextlib.contextmanager
def _progress(source: Input) -> Iterator[Callable[[Published], None]]:
    """A bar on stderr, by bytes if the size is known; nothing unless stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda published: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    total = _size(source)
    columns = (TextColumn("{task.fields[events]} events"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("publish", total=total, events="0")
        yield lambda published: bars.update(bar, completed=published.size, events=f"{published.written:,}")


def _size(source: Input) -> int | None:
    try:
        about = os.fstat(source.fileno())
    except OSError:
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None
