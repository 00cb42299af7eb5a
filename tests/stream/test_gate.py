"""One gate: the database refuses at the door exactly what the sandbox refuses in outputs, by the same name."""

from __future__ import annotations

import json

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jeet.sandbox.gate import check_json
from logtools import MakeStream

CORPUS = {
    "object": '{"a":1,"b":[true,false,null,"x"]}',
    "scalar": "17",
    "empty": "",
    "blank": "  ",
    "truncated": '{"a":1',
    "trailing": '{"a":1} x',
    "two values": "1 2",
    "single quotes": "{'a':1}",
    "comment": "[1/*x*/]",
    "trailing comma": "[1,]",
    "unquoted name": "{a:1}",
    "NaN": "NaN",
    "NaN inside": '{"a":NaN}',
    "Infinity": "[Infinity]",
    "minus Infinity": "[-Infinity]",
    "hex": "[0x10]",
    "leading zero": "[012]",
    "plus": "[+1]",
    "bare dot": "[.5]",
    "dot at end": "[1.]",
    "tab in string": '"a\tb"',
    "line break in string": '"a\nb"',
    "delete in string": '"a\x7fb"',
    "byte order mark": '\ufeff{"a":1}',
    "line breaks between": '{"a":\r\n1}',
    "line separator": '"\u2028"',
    "NUL escape": '"\\u0000"',
    "NUL escape in a name": '{"\\u0000":1}',
    "no NUL: escaped backslash": '"\\\\u0000"',
    "NUL after escaped backslash": '"\\\\\\u0000"',
    "surrogate pair": '"\\ud83d\\ude00"',
    "surrogate pair, capitals": '"\\uD83D\\uDE00"',
    "lone high": '"\\ud800"',
    "lone high, more text": '"\\ud800abc"',
    "lone low": '"\\udc00"',
    "swapped pair": '"\\ude00\\ud83d"',
    "high, high, low": '"\\ud800\\ud83d\\ude00"',
    "high, escaped backslash": '"\\ud800\\\\udc00"',
    "lone high in a name": '{"\\ud800":1}',
    "half an escape": '"\\u12"',
    "2^53-1": "9007199254740991",
    "2^53": "9007199254740992",
    "minus 2^53": "-9007199254740992",
    "2^53+1 in an array": '{"a":[1,9007199254740993]}',
    "digits in a string": '"9007199254740993"',
    "digits in a string after a quote": '"\\"9007199254740993"',
    "digits in a name": '{"9007199254740993":1}',
    "17 digits with fraction": "0.12345678901234567",
    "a fraction of 30 digits": "0.123456789012345678901234567890",
    "40 digits": "0." + "1" * 39,
    "41 digits": "0." + "1" * 40,
    "5000 digits": "1" * 5000,
    "1e308": "1e308",
    "1e309": "1e309",
    "1e999": "1e999",
    "1E+999": "1E+999",
    "1e-308": "1e-308",
    "1e-309": "1e-309",
    "1e-999": "1e-999",
    "largest double": "1.7976931348623157e308",
    "just below infinity": "1.797693134862315807e308",
    "just above": "1.7976931348623159e308",
    "9e308": "9e308",
    "123e307": "123e307",
    "tiny underflow": "0.00000000000000000000001e-308",
    "zeros in exponent": "1e00000001",
    "1e131071": "1e131071",
    "1e400000": "1e400000",
    "exponent in a string": '"1e999"',
    "minus zero": "-0",
    "128 deep": "[" * 128 + "]" * 128,
    "129 deep": "[" * 129 + "]" * 129,
    "129 objects deep": '{"a":' * 129 + "1" + "}" * 129,
    "128 mixed": '[{"a":' * 64 + "1" + "}]" * 64,
    "129 mixed": '[{"a":' * 64 + "[1]" + "}]" * 64,
    "100000 deep": "[" * 100000,
    "wide, not deep": "[" + ",".join(["[]"] * 1000) + "]",
    "wide objects": json.dumps([{"a": {"b": []}}] * 300),
    "brackets in strings": json.dumps(["[[[[{{{{" * 100] * 3),
    "many objects, truncated": json.dumps([{"a": 1}] * 200)[:-1],
    "1 MiB": '"' + "x" * (1024 * 1024 - 2) + '"',
    "1 MiB and a byte": '"' + "x" * (1024 * 1024 - 1) + '"',
    "1 MiB of two-byte characters": '"' + "é" * (512 * 1024 - 1) + '"',
    "duplicate names": '{"a":1,"a":2}',
    "duplicate names, nested": '{"a":{"b":1,"b":2}}',
    "__proto__": '{"__proto__":{"x":1},"constructor":1}',
    "emoji": '"🌍"',
    "escaped solidus": '"\\/"',
    "bad escape": '"\\x41"',
    "true in capitals": "True",
    "only a string quote": '"',
    "only a bracket": "[",
    "closed twice": "[]]",
}


def verdict(db: psycopg.Connection, text: str) -> str | None:
    row = db.execute("select jeet_internal.event_fault(%s)", (text,)).fetchone()
    assert row is not None
    return None if row[0] is None else row[0].split(":")[0]


def test_the_database_and_the_sandbox_give_the_same_verdict_on_every_case(db: psycopg.Connection) -> None:
    verdicts = {name: (verdict(db, text), check_json(text)) for name, text in CORPUS.items()}
    assert len(verdicts) > 80
    assert {name: pair[0] for name, pair in verdicts.items()} == {
        name: None if pair[1] is None else pair[1].code for name, pair in verdicts.items()
    }


def test_all_bad_texts_are_found_among_good_ones_by_the_bulk_path_too(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("events", 2)
    good = [f'{{"n":{n},"note":"\\ud83d\\ude00 {"9" * 20}"}}' for n in range(50)]
    texts = [text for pair in zip(good, CORPUS.values(), strict=False) for text in pair] + list(CORPUS.values())[50:]
    rows = db.execute("select ord, error from jeet.publish_texts('events', %s)", (texts,)).fetchall()
    found = {texts[ord_ - 1]: None if error is None else error.split(":")[0] for ord_, error in rows}
    for text in texts:
        mine = check_json(text)
        assert found[text] == (None if mine is None else mine.code), text[:60]
    stored = db.execute("select value::text from jeet.stream_events where stream = 'events'").fetchall()
    assert sorted(text for (text,) in stored) == sorted(
        text.replace("\n", " ").replace("\r", " ") for text in texts if check_json(text) is None
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


ONE_DATABASE = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ONE_DATABASE
@given(value=JSON, ascii_only=st.booleans())
def test_any_value_gets_the_same_verdict_from_both(db: psycopg.Connection, value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    mine = check_json(text)
    # A text may break two rules, of which each gate names the one that it meets first.
    assert (verdict(db, text) is None) == (mine is None)
    if mine is None or ("NaN" not in text and "Infinity" not in text):
        assert verdict(db, text) == (None if mine is None else mine.code)


@ONE_DATABASE
@given(value=JSON, cut=st.integers(0, 100))
def test_any_damaged_text_is_refused_by_both_or_neither(db: psycopg.Connection, value: object, cut: int) -> None:
    text = json.dumps(value)
    text = text[: cut % (len(text) + 1)]
    assert (verdict(db, text) is None) == (check_json(text) is None)
