"""What leaves an event is JSON that says exactly what the value said, or the event fails."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jeet.sandbox.call import InstanceSpec, OutputStream
from jeet.sandbox.gate import check_column, check_json
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Plugin
from jeet.testing import MemoryState

from .conftest import Local, batch_of, values


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("{ a: undefined }", "the result.a is undefined"),
        ("[1, undefined]", "the result[1] is undefined"),
        ("[, 1]", "the result[0] is undefined"),
        ("{ a: { b: [() => 1] } }", "the result.a.b[0] is a function"),
        ("() => 1", "the result is a function"),
        ("Symbol('x')", "is a Symbol"),
        ("{ a: 1n }", "is a BigInt"),
        ("NaN", "is NaN"),
        ("{ a: -Infinity }", "the result.a is -Infinity"),
        ("[[2 ** 53]]", "past 2^53-1"),
        ("-(2 ** 60)", "past 2^53-1"),
        ("{ a: 5e-324 }", "number_exponent"),
        ("'a\\0b'", "NUL"),
        ("{ 'a\\0b': 1 }", "NUL"),
        ("{ a: '🌍'.slice(1) }", "lone surrogate"),
        ("{ ['\\ud800']: 1 }", "lone surrogate"),
        ("new Map([[1, 2]])", "is a Map"),
        ("{ a: new Set() }", "is a Set"),
        ("/x/", "is a RegExp"),
        ("new Error('x')", "is a Error"),
        ("new Uint8Array(3)", "is a Uint8Array"),
        ("{ p: Promise.resolve(1) }", "is a Promise"),
        ("new Number(5)", "use the plain value"),
        ("new Date(NaN)", "invalid Date"),
        ("{ toJSON() { return { a: NaN }; } }", "is NaN"),
        ("{ toJSON() { return undefined; } }", "is undefined"),
        ("(() => { const o = {}; o.o = o; return o; })()", "nested deeper"),
        ("(() => { let d = []; for (let i = 0; i < 128; i++) d = [d]; return d; })()", "nested deeper"),
        ("'x'.repeat(2 ** 20)", "output_bytes"),
        ("'é'.repeat(2 ** 19)", "output_bytes"),
    ],
)
def test_what_json_would_drop_or_bend_is_a_fault_by_name(local: Local, value: str, error: str) -> None:
    run = local(f"stream.map(e => e === 1 ? ({value}) : e)").feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert error in run.failures[0].error


def test_what_json_can_say_passes(local: Local) -> None:
    source = """
    class Point { constructor() { this.x = 1; } }
    const deep = n => n === 0 ? 1 : [deep(n - 1)];
    stream.flatMap(() => [
      { __proto__: null, a: 1 }, new Point(), new Date(0), { toJSON: () => ({ b: [new Date(1)] }) }, deep(128), Object.create({ inherited: 1 }),
      2 ** 53 - 1, 1e300, 1.5e-7, 1e21, 0.1 + 0.2, '\\\\u0000', '\\\\ud800', 'a\\nb\\u2028', '', 'x'.repeat(2 ** 20 - 2),
      JSON.parse('{"__proto__": 1}'), [], {}, false, 'null',
    ]);
    """  # noqa: E501
    run = local(source).feed([1])
    assert run.failures == []
    deep: Any = 1
    for _ in range(128):
        deep = [deep]
    assert run.values() == [
        {"a": 1}, {"x": 1}, "1970-01-01T00:00:00.000Z", {"b": ["1970-01-01T00:00:00.001Z"]}, deep, {},
        2**53 - 1, 1e300, 1.5e-7, 1e21, 0.30000000000000004, "\\u0000", "\\ud800", "a\nb\u2028", "", "x" * (2**20 - 2),
        {"__proto__": 1}, [], {}, False, "null",
    ]  # fmt: skip


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6), inner, max_size=4),  # noqa: E501
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(JSON_VALUES.filter(lambda v: v is not None), min_size=1, max_size=10))
def test_any_event_passes_through_unchanged(plugin: Plugin, events: list[Any]) -> None:
    if any("e+" in json.dumps(event) or big(event) for event in events):
        return
    compiled = plugin.compile("stream.map(e => e)", "same.js")
    instance = plugin.instantiate(
        compiled, InstanceSpec("f", 1, 0, (OutputStream("s"),), slice_ms=60_000), MemoryState()
    )
    try:
        result = instance.run(batch_of(events))
    finally:
        instance.close()
    assert result.faults == []
    assert values(result.outputs[0].values) == events


def big(value: Any) -> bool:
    """Whether it holds a float that JavaScript writes as an integer past 2^53-1, or one too small."""
    if isinstance(value, float):
        return 2**53 <= abs(value) < 1e21 or 0 < abs(value) < 1e-308
    if isinstance(value, list):
        return any(map(big, value))
    return isinstance(value, dict) and any(map(big, value.values()))


# The gate itself.


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NaN", "not_json"), ("-Infinity", "not_json"), ("[1,]", "not_json"), ("{'a':1}", "not_json"), ("", "not_json"), ('"a', "not_json"),  # noqa: E501
        ("1 2", "not_json"), ('"tab\there"', "not_json"), ("01", "not_json"), ("nul", "not_json"), ('{"a":1}x', "not_json"), ("\ufeff1", "not_json"),  # noqa: E501
        ('"\\u0000"', "nul"), ('{"\\u0000":1}', "nul"), ('"\\ud800"', "lone_surrogate"), ('"\\udc00\\ud800"', "lone_surrogate"),  # noqa: E501
        ('"\\ud83c x \\udf0d"', "lone_surrogate"), ('"\\uD83C\\u0041"', "lone_surrogate"), ('"\ud800"', "lone_surrogate"),  # noqa: E501
        ("9007199254740992", "integer_range"), ('{"a":[-9007199254740993]}', "integer_range"), ("1" * 41, "number_digits"), ("0." + "1" * 41, "number_digits"),  # noqa: E501
        ("1e309", "number_exponent"), ("1e-400", "number_exponent"), ("1E+999999999", "number_exponent"), ("9.9e308", "number_range"),  # noqa: E501
        ("[" * 129 + "]" * 129, "depth"), ('{"a":' * 129 + "1" + "}" * 129, "depth"), ("[" * 200_000, "depth"), ('"' + "x" * 2**20 + '"', "event_bytes"),  # noqa: E501
    ],
)  # fmt: skip
def test_the_gate_refuses_by_name(text: str, code: str) -> None:
    verdict = check_json(text)
    assert verdict is not None
    assert verdict.code == code


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740991", "-9007199254740991", "1e308", "1.7976931348623157e308", "0.1234567890123456789", "1e-300", "-0", "1.0",  # noqa: E501
        '"9007199254740992999"', '"\\\\u0000"', '"\\\\\\\\ud800"', '"\\ud83c\\udf0d"', '"\\uD83C\\uDF0D"', '"[[[[" ', '"' + "[" * 1000 + '"', "[" * 128 + "]" * 128,  # noqa: E501
        '{"__proto__":1,"a":{"constructor":[]}}', " [ 1 , 2 ] ", '"\\"\\\\\\/\\b"', '"e999"', '"1e999"', "null", '{"a":1,"a":2}',  # noqa: E501
    ],
)  # fmt: skip
def test_the_gate_lets_good_json_pass(text: str) -> None:
    assert check_json(text) is None
    assert check_json(text.encode()) is None


def test_the_gate_refuses_bytes_that_are_not_utf8() -> None:
    verdict = check_json(b'"\xff"')
    assert verdict is not None
    assert verdict.code == "not_utf8"


@given(st.lists(JSON_VALUES, min_size=1, max_size=5))
def test_a_column_is_judged_as_its_lines_are(events: list[Any]) -> None:
    lines = [json.dumps(event, ensure_ascii=index % 2 == 0) for index, event in enumerate(events)]
    alone = [check_json(line) for line in lines]
    together = check_column("\n".join(lines).encode(), Limits().output_bytes)
    assert (together is None) == all(verdict is None for verdict in alone)


@pytest.mark.parametrize(
    "bad",
    ['"\\u0000"', '"\\ud800"', "12345678901234567890", "[" * 129 + "]" * 129, '"' + "x" * 2000 + '"', "1" * 60 + ".5"],
)
def test_a_bad_line_in_a_long_column_is_found(bad: str) -> None:
    good = '{"userId":"u12","currentTotal":123.45,"at":1700000000000}\n'
    assert check_column((good * 3000).rstrip().encode(), 1000) is None
    assert check_column((good * 1500 + bad + "\n" + good * 1500).rstrip().encode(), 1000) is not None


@pytest.mark.parametrize("events", [[1], [0, 1]], ids=["alone", "among others"])
@pytest.mark.parametrize(
    "value", ["'x'.repeat(3 << 20)", "{ a: [{ b: 'x'.repeat(3 << 20) }] }", "Array(3000).fill('x'.repeat(1024))"]
)
def test_a_text_that_is_too_long_is_refused_by_name_before_any_work(
    local: Local, value: str, events: list[int]
) -> None:
    late = "{ toJSON() { console.log('visited'); return 1; } }"
    run = local(f"stream.map(e => e ? [{value}, {late}] : 0)").feed(events)
    assert [failure.error for failure in run.failures] == [
        "JsonError: the result is longer than 1048576 bytes (output_bytes)"
    ]
    assert run.logs == []


def test_what_a_to_json_puts_out_itself_takes_no_room_from_the_value_around_it(local: Local) -> None:
    source = """
    export const config = { emits: ['side'] };
    stream.map((event, context) => {
      const big = 'x'.repeat(700_000);
      return [big, { toJSON() { context.emit('side', big); return 1; } }, 'y'.repeat(300_000)].concat(event);
    });
    """
    run = local(source).feed([1, 2])
    assert (run.failures, len(run.values())) == ([], 2)
