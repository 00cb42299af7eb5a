"""Lines come out of any input whole and once, however it is sliced."""

from __future__ import annotations

import io
import itertools
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jeet.errors import Refused, UsageError
from jeet.stream.lines import EVENT_BYTES, LineReader


class Sliced:
    """A source that gives its bytes in pieces cut at given places."""

    def __init__(self, data: bytes, cuts: list[int]) -> None:
        places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
        self._pieces = [data[a:b] for a, b in itertools.pairwise(places)]

    def read1(self, size: int, /) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if len(piece) > size:
            self._pieces.insert(0, piece[size:])
        return piece[:size]


def read_all(source: object, **settings: int) -> tuple[dict[int, str], dict[int, str], int]:
    """Events by line number, codes of refusals by line number, number of lines."""
    events: dict[int, str] = {}
    refused: dict[int, str] = {}
    end = 0
    for block in LineReader(source, **settings):  # type: ignore[arg-type]
        texts = block.text.split("\n") if block.numbers else []
        assert len(texts) == len(block.numbers)
        for number, text in zip(block.numbers, texts, strict=True):
            assert number not in events
            events[number] = text
        for one in block.refused:
            assert isinstance(one, Refused)
            assert one.line is not None
            assert one.line not in events | refused
            refused[one.line] = one.code
        assert block.end >= end
        end = block.end
    return events, refused, end


def expected(data: bytes) -> tuple[dict[int, str], dict[int, str]]:
    events: dict[int, str] = {}
    refused: dict[int, str] = {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line.strip(b" \t\r"):
            continue
        if b"\0" in line:
            refused[number] = "not_json"
            continue
        try:
            events[number] = line.decode()
        except UnicodeDecodeError:
            refused[number] = "not_utf8"
    return events, refused


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b" ", b"\t \r", b'{"a":"\xc3\xa9\xf0\x9f\x8c\x8d"}', b'{"a":1}\r', b"\xff", b"a\0b", b"\xc3"]
        ),
        st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")),
    ),
    max_size=8,
)


@settings(max_examples=400, deadline=None)
@given(
    lines=LINES,
    end=st.sampled_from([b"", b"\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    cuts=st.lists(st.integers(0, 200), max_size=20),
    block=st.integers(1, 40),
)
def test_every_line_comes_once_whatever_the_slices(
    lines: list[bytes], end: bytes, mark: bytes, cuts: list[int], block: int
) -> None:
    data = mark + b"\n".join([b"{}", *lines]) + end
    events, refused, _ = read_all(Sliced(data, cuts), block_bytes=block)
    assert (events, refused) == expected(data)


def test_an_input_cut_at_every_byte_gives_the_same_lines() -> None:
    data = '\ufeff{"name":"Zoë 🌍"}\r\n\r\n{"n":2}\n{"last":true}'.encode()
    whole = read_all(io.BytesIO(data))
    assert whole[0] == {1: '{"name":"Zoë 🌍"}', 3: '{"n":2}', 4: '{"last":true}'}
    for cut in range(len(data) + 1):
        assert read_all(Sliced(data, [cut])) == whole
    assert read_all(Sliced(data, list(range(len(data))))) == whole


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf16_is_refused_with_the_remedy(encoding: str) -> None:
    with pytest.raises(UsageError, match="iconv"):
        read_all(io.BytesIO('{"a":1}\n'.encode(encoding)))


@pytest.mark.parametrize("block", [4096, 512 * 1024, 4 * EVENT_BYTES])
def test_a_line_longer_than_any_event_is_refused_by_number_and_its_neighbours_are_not(block: int) -> None:
    longest = b'"' + b"x" * (EVENT_BYTES - 2) + b'"'
    data = b"\n".join([b"1", longest, longest + b" ", b"2", b"y" * (3 * EVENT_BYTES), b"3"])
    events, refused, end = read_all(io.BytesIO(data), block_bytes=block)
    assert {number: len(text) for number, text in events.items()} == {1: 1, 2: EVENT_BYTES, 4: 1, 6: 1}
    assert refused == {3: "event_bytes", 5: "event_bytes"}
    assert end == 6


def test_memory_is_bounded_by_a_block_and_one_event_even_without_line_breaks() -> None:
    class Endless:
        left = 64

        def read1(self, size: int, /) -> bytes:
            self.left -= 1
            return b"z" * size if self.left >= 0 else b""

    reader = LineReader(Endless())
    largest = 0
    original = reader._keep

    def watched(begun: bytes) -> None:
        nonlocal largest
        original(begun)
        largest = max(largest, len(reader._rest))

    reader._keep = watched  # type: ignore[method-assign]
    blocks = list(reader)
    assert [one.code for block in blocks for one in block.refused] == ["event_bytes"]
    assert largest <= 2 * EVENT_BYTES


def test_a_slow_pipe_is_passed_on_line_by_line_and_a_full_one_in_blocks() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source, os.fdopen(write_end, "wb", buffering=0) as sink:
        reader = LineReader(source)
        sink.write(b'{"a":1}\n{"a":')
        block = reader.read()
        assert block is not None
        assert block.text == '{"a":1}'
        many = b"2}\n" + b'{"b":1}\n' * 20000
        writer = threading.Thread(target=lambda: (sink.write(many), sink.close()))
        writer.start()
        rest = [block.numbers for block in iter(reader.read, None)]
        writer.join()
    assert sum(map(len, rest)) == 20001
    assert [n for numbers in rest for n in numbers] == list(range(2, 20003))
