"""Any input, made by chance: what is accepted comes out as it went in, whatever the slices, and keys have one place.

JEET_SEED repeats a run; a failure prints it. `make torture` tries many more examples than every run does.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from tests.torture.doors import exact, exact_value

from jeet.sandbox.gate import check_column, check_json
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Plugin
from jeet.stream.lines import LineReader
from jeet.testing import LocalFunction
from logtools import MakeStream

MANY = pytest.mark.parametrize("examples", [40, pytest.param(1000, marks=pytest.mark.torture)], ids=["some", "many"])


def tried(number: int, examples: int, test: Callable[[Any], None], strategy: st.SearchStrategy[Any]) -> None:
    """Run `test` on so many examples of the seed `number`."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    options = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks)

    @seeded(number)
    @options
    @given(strategy)
    def run(example: Any) -> None:
        test(example)

    run()


# JSON texts, most of them good, in all the ways that the same thing can be written.

DIGITS = st.text("0123456789", min_size=1, max_size=24)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "-"]),
        DIGITS,
        st.one_of(st.just(""), DIGITS.map(".{}".format)),
        st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 320))),
    ),
)
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32),
    st.sampled_from([r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\ud83c\udf0d", "🌍", "\u2028", "\x7f"]),
    st.integers(0, 0xFFFF).map(r"\u{:04x}".format),
)
STRINGS = st.lists(CHARACTERS, max_size=8).map(lambda parts: f'"{"".join(parts)}"')
NAMES = st.one_of(STRINGS, st.sampled_from(['"a"', r'"\u0061"', '"__proto__"', '"1"', '"toJSON"', '"constructor"']))
BLANKS = st.sampled_from(["", "", "", " ", "\t", " \r "])
TEXTS = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.sampled_from(["null", "true", "false", "NaN", "nul", "01", "1.", "-"])),
    lambda inner: st.one_of(
        st.builds("{0}[{0}{1}{0}]".format, BLANKS, st.lists(inner, max_size=4).map(",".join)),
        st.builds(
            "{0}{{{0}{1}{0}}}".format,
            BLANKS,
            st.lists(st.builds("{}{}:{}".format, NAMES, BLANKS, inner), max_size=4).map(",".join),
        ),
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def identity(plugin: Plugin) -> Iterator[LocalFunction]:
    source = "stream.map(event => { state.s.last = event; return { was: state.s.last }; })"
    patient = Limits(event_cpu_ms=10_000, event_wall_ms=60_000)
    with LocalFunction(source, plugin=plugin, limits=patient) as function:
        yield function


@MANY
def test_any_text_comes_out_of_a_function_as_it_went_in_or_is_refused_by_name(
    identity: LocalFunction, examples: int, seed: int, record_property: Callable[[str, object], None]
) -> None:
    counts: Counter[str] = Counter()

    def check(texts: list[str]) -> None:
        codes = [None if (verdict := check_json(text)) is None else verdict.code for text in texts]
        good = [text for text, code in zip(texts, codes, strict=True) if code is None]
        fed = identity._fed
        run = identity.feed_texts(good)
        failed = {failure.event - fed: failure.error for failure in run.failures}
        came = {output.event - fed: output.value["was"] for output in run.outputs}
        for index, text in enumerate(good):
            if index in failed:
                # A double that JavaScript would write as an integer past 2^53-1.
                assert "past 2^53-1" in failed[index], text
                counts["dead letters: integer_range"] += 1
            else:
                assert exact_value(came[index]) == exact(text), text
        counts.update(f"refused: {code}" if code is not None else "accepted" for code in codes)

    tried(seed, examples, check, st.lists(TEXTS, min_size=1, max_size=20))
    print(f"texts tried: {sum(counts.values())}; {dict(sorted(counts.items()))}; silent changes 0")
    record_property("texts", dict(counts))


@MANY
def test_any_text_gets_one_verdict_from_the_gates_of_sandbox_outputs_and_database(
    db: psycopg.Connection,
    make_stream: MakeStream,
    examples: int,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    make_stream("s", 1)
    counts: Counter[str] = Counter()

    def check(texts: list[str]) -> None:
        codes = [None if (verdict := check_json(text)) is None else verdict.code for text in texts]
        refused = [code is not None for code in codes]
        # A text may break two rules, of which each gate names the one that it meets first.
        rows = db.execute("select jeet_internal.event_fault(t) is not null from unnest(%s::text[]) t", (texts,))
        assert [row[0] for row in rows] == refused, texts
        rows = db.execute("select error is not null from jeet.publish_texts('s', %s) order by ord", (texts,))
        assert [row[0] for row in rows] == refused, texts
        # Whether a guest's text is JSON at all is left to the cast.
        for text, code in zip(texts, codes, strict=True):
            if code != "not_json":
                column = check_column(f"1\n{text}\n2".encode(), 2**20)
                assert (None if column is None else column.code) == code, text
        counts.update(code or "accepted" for code in codes)

    tried(seed, examples, check, st.lists(TEXTS, min_size=1, max_size=20))
    print(f"texts judged by four gates: {sum(counts.values())}; {dict(sorted(counts.items()))}")
    record_property("verdicts", dict(counts))


# Files.

LINES = st.lists(
    st.one_of(
        TEXTS.map(str.encode),
        st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"")),
        st.sampled_from([b"", b"\r", b" \t", "é🌍€".encode(), b'{"a":"\xf0\x9f\x8c\x8d"}\r', b"\xef\xbb\xbf1"]),
    ),
    max_size=5,
)


@MANY
def test_any_file_cut_at_every_byte_gives_the_same_lines(
    examples: int, seed: int, record_property: Callable[[str, object], None]
) -> None:
    cuts = 0

    def check(lines: list[bytes]) -> None:
        nonlocal cuts
        data = b"[]\n" + b"\n".join(lines)
        whole = lines_of(data, [])
        for cut in range(len(data) + 1):
            assert lines_of(data, [cut]) == whole
        assert lines_of(data, list(range(len(data)))) == whole
        cuts += len(data) + 2

    tried(seed, examples, check, LINES)
    print(f"files cut in {cuts} ways; lines lost 0")
    record_property("cuts", cuts)


def lines_of(data: bytes, cuts: list[int]) -> tuple[list[tuple[int, str]], list[tuple[int | None, str]]]:
    """The events with their line numbers, and the refusals, of data that comes in pieces."""
    events, refused = [], []
    for block in LineReader(Pieces(data, cuts)):
        events += list(zip(block.numbers, block.text.split("\n"), strict=True)) if block.numbers else []
        refused += [(one.line, one.code) for one in block.refused]
    return events, refused


class Pieces(io.RawIOBase):
    """A source that gives its bytes in pieces, as a pipe may."""

    def __init__(self, data: bytes, cuts: list[int]) -> None:
        ends = [cut for cut in cuts if 0 < cut < len(data)] + [len(data)]
        self._pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def read1(self, size: int, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


# Keys.

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@MANY
def test_any_key_has_one_place_by_whatever_door_it_comes(
    db: psycopg.Connection,
    make_stream: MakeStream,
    examples: int,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    make_stream("keyed", 97, key="k")
    make_stream("beside", 97)
    count = 0

    def check(keys: list[str]) -> None:
        nonlocal count
        count += len(keys)
        places = [zlib.crc32(key.encode()) % 97 for key in keys]
        inside = [json.dumps({"k": key}, ensure_ascii=index % 2 == 0) for index, key in enumerate(keys)]
        for call, values in (
            ("select partition, error from jeet.publish_many('keyed', %s::text[]::json[]) order by ord", (inside,)),
            (
                "select partition, error from jeet.publish_many('beside', array_fill('1'::json, %s), %s) order by ord",
                ([len(keys)], keys),
            ),
        ):
            rows = db.execute(call, values).fetchall()
            assert rows == [(place, None) for place in places]

    tried(seed, examples, check, st.lists(KEYS, min_size=1, max_size=30))
    wrong = db.execute(
        "select count(*) from jeet.stream_events where jeet.partition_of(key, 97) <> partition"
    ).fetchone()
    assert wrong == (0,)
    print(f"keys tried: {count}; in another partition 0")
    record_property("keys", count)
