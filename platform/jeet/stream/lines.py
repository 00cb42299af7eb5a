"""Cuts bytes into blocks of lines, each line one event: NDJSON as it is found in files and pipes.

Promise: every line of the input is in exactly one block, as text or as a refusal with its number, however the input is
sliced; nothing is replaced, shortened or guessed. Blank lines are skipped but counted; a byte order mark and CR LF are
taken away. Memory is bounded by a block and one event. UTF-16 and what is compressed are refused with the remedy.
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from jeet.errors import Refused, UsageError
from jeet.limits import DEFAULTS

BLOCK_BYTES = 512 * 1024
"""how much is read at once: some thousands of common events"""
EVENT_BYTES = DEFAULTS["event_bytes"]
"""the longest event: the database's own limit, which here bounds memory"""

_PACKED = {b"\x1f\x8b": "gzip -dc", b"\x28\xb5": "zstd -dc", b"\xfd7": "xz -dc", b"BZ": "bzip2 -dc", b"PK": "unzip -p"}
"""how what is no NDJSON begins, and what unpacks it"""

_BLANK_LINE = re.compile(rb"(?:\A|\n)[ \t]*(?:\n|\Z)")


class Source(Protocol):
    """A binary file, pipe or buffer."""

    def read1(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Block:
    """Some lines that follow one another."""

    text: str
    """the events, joined by line breaks"""
    numbers: Sequence[int]
    """the line number of each event, from 1; empty: no events"""
    refused: Sequence[Refused]
    """lines that cannot even be sent"""
    end: int
    """the number of the block's last line"""
    size: int
    """bytes of input"""


class LineReader:
    """Reads a source block by block. Takes what the source has now, so that a slow pipe is passed on promptly."""

    def __init__(self, source: Source, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._source = source
        self._block_bytes = block_bytes
        self._line = 0
        self._rest = bytearray()  # the line that has begun
        self._overlong = 0  # or how much of it there was, once it is longer than any event
        self._begun = False
        self._ended = False

    def __iter__(self) -> Iterator[Block]:
        while (block := self.read()) is not None:
            yield block

    def read(self) -> Block | None:
        """The next block; None at the end."""
        while not self._ended:
            chunk = self._available() if self._begun else self._beginning()
            block = self._cut(chunk)
            if block is not None:
                return block
        return None

    def _beginning(self) -> bytes:
        self._begun = True
        start = b""
        # Two bytes tell UTF-16 with or without a mark, and are no more than the shortest line.
        while not self._ended and (len(start) < 2 or start == b"\xef\xbb"):
            start += self._available()
        if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start[:2]:
            raise UsageError("the input is not UTF-8 but UTF-16 or binary; convert it first: iconv -f UTF-16 -t UTF-8")
        for magic, unpack in _PACKED.items():
            if start.startswith(magic):
                raise UsageError(f"the input is compressed; unpack it on the way: {unpack} FILE | …, reading from -")
        return start.removeprefix(b"\xef\xbb\xbf")

    def _available(self) -> bytes:
        parts = [self._source.read1(self._block_bytes)]
        size = len(parts[0])
        while parts[-1] and size < self._block_bytes and self._has_more():
            parts.append(self._source.read1(self._block_bytes - size))
            size += len(parts[-1])
        self._ended = not parts[-1]
        return b"".join(parts)

    def _has_more(self) -> bool:
        """Whether reading again would not wait."""
        fileno = getattr(self._source, "fileno", None)
        if fileno is None:
            return False
        try:
            return bool(select.select([fileno()], [], [], 0)[0])
        except (OSError, ValueError):  # a buffer that is no file of the operating system, or cannot be waited for
            return False

    def _cut(self, chunk: bytes) -> Block | None:
        """A block of the lines that end in `chunk`; what has only begun is kept."""
        size = len(chunk)
        refused: list[Refused] = []
        if self._overlong:
            end = chunk.find(b"\n")
            self._overlong += len(chunk) if end < 0 else end
            chunk = chunk[end + 1 :] if end >= 0 else b""
            if end >= 0 or self._ended:
                self._line += 1
                refused.append(_too_long(self._overlong, self._line))
                self._overlong = 0
        cut = len(chunk) if self._ended else chunk.rfind(b"\n")
        if cut < 0:
            self._keep(chunk)
        else:
            lines = bytes(self._rest) + chunk[:cut]
            self._rest.clear()
            self._keep(chunk[cut + 1 :])
            if self._ended:
                lines = lines.removesuffix(b"\n")
            if lines or not self._ended:
                return self._block(lines, refused, size)
        return Block("", (), refused, self._line, size) if refused else None

    def _keep(self, begun: bytes) -> None:
        if self._overlong:
            self._overlong += len(begun)
            return
        self._rest += begun
        if len(self._rest) > EVENT_BYTES + 1:  # one for the CR
            self._overlong = len(self._rest)
            self._rest.clear()

    def _block(self, lines: bytes, refused: list[Refused], size: int) -> Block:
        first = self._line + 1
        self._line += lines.count(b"\n") + 1
        # The common case: clean lines go through untouched, whatever their number.
        if len(lines) <= EVENT_BYTES and b"\r" not in lines and b"\0" not in lines and not _BLANK_LINE.search(lines):
            try:
                return Block(lines.decode(), range(first, self._line + 1), refused, self._line, size)
            except UnicodeDecodeError:
                pass  # found again below, line by line
        texts: list[str] = []
        numbers: list[int] = []
        for number, line in enumerate(lines.split(b"\n"), first):
            event = line.removesuffix(b"\r")
            # What is too long is that, blank or not: it may have come in slices, of which only the length is known.
            if len(event) <= EVENT_BYTES and not event.strip(b" \t\r"):
                continue
            text = _decoded(event, number)
            if isinstance(text, Refused):
                refused.append(text)
            else:
                texts.append(text)
                numbers.append(number)
        return Block("\n".join(texts), numbers, refused, self._line, size)


def _decoded(event: bytes, line: int) -> str | Refused:
    if len(event) > EVENT_BYTES:
        return _too_long(len(event), line)
    if b"\0" in event:
        return Refused("is not JSON: holds a NUL byte", code="not_json", line=line)
    try:
        return event.decode()
    except UnicodeDecodeError as error:
        return Refused(f"is not UTF-8 at byte {error.start + 1}", code="not_utf8", line=line)


def _too_long(size: int, line: int) -> Refused:
    return Refused(f"has {size} bytes, more than {EVENT_BYTES}", code="event_bytes", line=line)
