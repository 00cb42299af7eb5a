"""Hostile code harms nobody but itself: what it may touch is frozen, what it returns is checked."""

from __future__ import annotations

import json
import struct

import pytest

from jeet.sandbox.call import (
    BatchInput,
    BatchResult,
    GuestTrap,
    GuestViolation,
    InstanceSpec,
    Late,
    OutputStream,
    TimerSet,
)
from jeet.sandbox.frames import message
from jeet.sandbox.machine import BOOT_BUDGET
from jeet.sandbox.plugin import Plugin
from jeet.sandbox.result import TextRefused, read_result
from jeet.testing import MemoryState

from .conftest import TOTALS, Local, batch_of

TAMPERINGS = [
    "JSON.stringify = () => 'x'",
    "JSON.parse = () => ({ userId: 'evil', amount: 1e9 })",
    "globalThis.JSON = { parse() { return {}; }, stringify() { return '\"\"'; } }",
    "Array.prototype.push = function () { return 0; }",
    "Array.prototype.join = () => 'a\\nb'",
    "Map.prototype.get = () => undefined",
    "Map.prototype.set = () => {}",
    "String.prototype.includes = () => false",
    "String.prototype.split = () => []",
    "Object.prototype.get = () => { throw 1; }",
    "Object.prototype.toJSON = () => 'x'",
    "Object.prototype.then = (f) => f(666)",
    "Object.defineProperty(Object.prototype, 'value', { get() { return 1; } })",
    "Promise.prototype.then = () => {}",
    "RegExp.prototype.exec = () => null",
    "Function.prototype.call = () => {}",
    "Number.prototype.toString = () => 'NaN'",
    "Symbol.prototype[Symbol.toPrimitive] = () => 'x'",
    "Reflect.ownKeys = () => []",
    "Object.keys = () => []",
    "Object.getPrototypeOf = () => null",
    "Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: true })",
    "Object.getPrototypeOf(Int8Array.prototype).subarray = () => new Uint8Array(0)",
    "Object.setPrototypeOf(Array.prototype, { x: 1 })",
    "TextEncoder.prototype.encode = () => new Uint8Array([10, 10])",
    "TextDecoder.prototype.decode = () => ''",
    "Math.floor = () => 1e9",
    "globalThis.state = {}",
    "globalThis.stream = null",
    "delete globalThis.__jeet",
    "globalThis.__jeet = () => {}",
    "__jeet()",
    "__jeet({ default: () => 1 })",
    "new Function('return this')().Object = null",
    "(0, eval)('var JSON = null; Map = null; undefined')",
    "Object.freeze(globalThis)",
    "for (const k of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[k]; } catch {} }",
    "console.log = () => { throw 1; }",
    "console.log(new Proxy({}, { ownKeys() { throw 1; }, get() { throw 2; } }))",
    "console.log({ toString: null, [Symbol.toStringTag]: { } })",
    "Error.prepareStackTrace = () => { throw 1; }",
    "Error.stackTraceLimit = 0",
    "Object.getPrototypeOf(function* () {}).prototype = null",
]


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering_changes_nothing_for_other_events(local: Local, tampering: str) -> None:
    source = TOTALS.replace("const userId", f"if (event.tamper) {{ {tampering}; }}\n  const userId", 1)
    function = local(source)
    run = function.feed(
        [{"userId": "a", "amount": 1}, {"userId": "t", "amount": 1, "tamper": 1}, {"userId": "a", "amount": 2}]
    )
    others = [out.value for out in run.outputs if out.event != 1]
    assert others == [{"userId": "a", "currentTotal": 1}, {"userId": "a", "currentTotal": 3}]
    assert function.state("totals")["a"] == 3
    again = function.feed([{"userId": "a", "amount": 4}])
    assert again.values() == [{"userId": "a", "currentTotal": 7}]


@pytest.mark.parametrize(
    "name",
    [
        "Javy",
        "process",
        "require",
        "std",
        "os",
        "setTimeout",
        "fetch",
        "__javy_io_readSync",
        "__javy_io_writeSync",
        "WebAssembly",
        "performance",
    ],
)
def test_there_is_no_back_door(local: Local, name: str) -> None:
    assert local(f"stream.map(() => typeof {name})").feed([1]).values() == ["undefined"]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        ("new Date(0)", "toJSON"),
        ("new Date(0)", "getTime"),
        ("/x/", "exec"),
        ("/x/", "test"),
        ("Promise.resolve()", "then"),
        ("Promise.resolve()", "catch"),
        ("new RangeError('x')", "message"),
    ],
)
def test_an_object_may_have_its_own_in_place_of_a_frozen_method(local: Local, make: str, name: str) -> None:
    run = local(f"stream.map(() => {{ const o = {make}; o.{name} = () => 'own'; return o.{name}(); }})").feed([1])
    assert (run.values(), run.failures) == (["own"], [])


@pytest.mark.parametrize(("make", "name"), [("[]", "map"), ("new Map()", "get"), ("new Set()", "add")])
def test_where_it_may_not_the_error_says_why_and_what_to_do(local: Local, make: str, name: str) -> None:
    source = f"""stream.map(e => {{
      const own = {make};
      if (e) own.{name} = () => 'own';
      Object.defineProperty(own, '{name}', {{ value: () => 'own' }});
      return own.{name}();
    }})"""
    run = local(source).feed([0, 1])
    assert run.values() == ["own"]
    assert "the built-ins are frozen" in run.failures[0].error
    assert "Object.defineProperty" in run.failures[0].error


def test_what_user_code_froze_itself_is_not_blamed_on_built_ins(local: Local) -> None:
    run = local("stream.map(() => { 'use strict'; Object.freeze({ x: 1 }).x = 2; })").feed([1])
    assert run.failures[0].error == "TypeError: 'x' is read-only"


def test_ordinary_assignments_survive_the_freezing(local: Local) -> None:
    source = """
    class Base { greet() { return 'base'; } }
    class Sub extends Base { greet() { return 'sub ' + super.greet(); } toString() { return 'Sub!'; } }
    function Old() {}
    Old.prototype = Object.create(Base.prototype);
    Old.prototype.constructor = Old;
    Old.prototype.toString = function () { return 'Old!'; };
    class MyError extends Error { constructor(m) { super(m); this.name = 'MyError'; } }
    class List extends Array { first() { return this[0]; } }
    stream.map(event => {
      const plain = {};
      plain.toString = () => 'mine';
      plain.constructor = 'c';
      plain.hasOwnProperty = 1;
      plain.valueOf = () => 5;
      const error = new Error('a');
      error.name = 'Named';
      error.message = 'b';
      const f = () => 1;
      f.toString = () => 'f!';
      event.name = 'n'; event.length = 1; event.then = 2;
      return [String(plain), plain.constructor, plain + 1, String(error), new MyError('m').toString(), `${new Sub()}`, new Sub().greet(), `${new Old()}`,
              new Old() instanceof Base, String(f), List.from([7]).first(), event, Object.keys(plain), [3, 1, 2].sort().map(x => x * 2), 'abc'.replace(/b/, 'x')];
    });
    """  # noqa: E501
    run = local(source).feed([{"a": 1}])
    assert run.failures == []
    assert run.values() == [
        ["mine", "c", 6, "Named: b", "MyError: m", "Sub!", "sub base", "Old!", True, "f!", 7, {"a": 1, "name": "n", "length": 1, "then": 2},  # noqa: E501
         ["toString", "constructor", "hasOwnProperty", "valueOf"], [2, 4, 6], "axc"]
    ]  # fmt: skip


def test_one_event_cannot_leave_a_trap_in_the_prototypes(local: Local) -> None:
    source = "stream.map(e => { if (e.bad) { Object.assign({}, JSON.parse('{\"__proto__\": {\"isAdmin\": true}}')).__proto__.x = 1; ({}).__proto__.isAdmin = true; } return ({}).isAdmin ?? 'no'; })"  # noqa: E501
    run = local(source).feed([{}, {"bad": 1}, {}])
    assert run.values() == ["no", "no"]


def test_the_driver_cannot_be_spoken_to_from_the_top_level(plugin: Plugin) -> None:
    compiled = plugin.compile("__jeet(); __jeet({ default: () => 'mine' }); export default () => 'other';", "f.js")
    with pytest.raises(Exception, match="already handed over"):
        plugin.describe(compiled)


# A guest that has got hold of the channel: nothing it sends is believed.

GOOD = {"processed": 3, "outputs": [], "state": [], "faults": [], "logs": []}
SPEC = InstanceSpec("f", 1, 0, (OutputStream("a"), OutputStream("b"), OutputStream("f/c", internal=True)))
TIMER = ["window", "k", "60000", 120_000, False]


def judge(head: object, *columns: bytes, count: int = 3) -> BatchResult:
    payload = message((json.dumps(head).encode() if not isinstance(head, bytes) else head, *columns))[4:]
    batch = BatchInput(first_offset=0, count=count, values=b"1\n2\n3", keys=b'"x"\n"y"\nnull')
    return read_result(payload, batch, SPEC, frozenset({4}), lambda stack: stack, 1, 0, {"window"})


def test_an_honest_result_is_believed() -> None:
    sources = struct.pack("<2I", 0, 2)
    result = judge(
        {**GOOD, "outputs": [[0, 3, 0, 0], [1, 2, 1, 1]], "state": [[4, 1, 1, 0]]},
        b"1\n2\n3", b"true\nfalse", b'"k"\nnull', sources, b'"p"', b"1", b'"d"', b"",
    )  # fmt: skip
    assert result.outputs[0].keys == '"x"\n"y"\nnull'
    assert result.outputs[1].sources == [0, 2]


def test_an_honest_result_with_event_time_is_believed() -> None:
    result = judge(
        {
            **GOOD,
            "outputs": [[2, 2, 1, 1]],
            "timers": [TIMER, ["window", "", "n", None, True]],
            "late": [[0, "late"], [2, "late too"]],
            "late_count": 5,
            "highest": -1,
        },
        b"1\n2", b'"a"\n"b"', struct.pack("<2I", 0, 2), b"-62135596800000\n0",
    )  # fmt: skip
    assert result.outputs[0].times == "-62135596800000\n0"
    assert result.timers == [TimerSet("window", "k", "60000", 120_000), TimerSet("window", "", "n", None, wall=True)]
    assert (result.late, result.late_count) == ([Late(0, "late"), Late(2, "late too")], 5)
    assert result.highest_ms == -1


@pytest.mark.parametrize(
    ("head", "columns"),
    [
        (b"not json", ()),
        (b"[" * 100_000, ()),
        ({}, ()),
        ([], ()),
        ({**GOOD, "processed": 4}, ()),
        ({**GOOD, "processed": 0}, ()),
        ({**GOOD, "processed": True}, ()),
        ({**GOOD, "processed": 1.5}, ()),
        ({**GOOD, "outputs": [[3, 1, 0, 1]]}, (b"1", struct.pack("<I", 0))),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0))),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0), b"5\n6")),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0), b"")),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0), b"1.5")),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0), b"NaN")),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0), b"\xff")),
        ({**GOOD, "outputs": [[2, 1, 0, 1]]}, (b"1", struct.pack("<I", 0), b"253402300800000")),
        ({**GOOD, "timers": {}}, ()),
        ({**GOOD, "timers": [TIMER[:4]]}, ()),
        ({**GOOD, "timers": [TIMER, TIMER]}, ()),
        ({**GOOD, "timers": [["other", *TIMER[1:]]]}, ()),
        ({**GOOD, "timers": [[["window"], *TIMER[1:]]]}, ()),
        ({**GOOD, "timers": [["window", None, *TIMER[2:]]]}, ()),
        ({**GOOD, "timers": [["window", "\0", *TIMER[2:]]]}, ()),
        ({**GOOD, "timers": [["window", "\ud800", *TIMER[2:]]]}, ()),
        ({**GOOD, "timers": [["window", "k", "x" * 1025, 1, False]]}, ()),
        ({**GOOD, "timers": [["window", "k", "n", 1.5, False]]}, ()),
        ({**GOOD, "timers": [["window", "k", "n", True, False]]}, ()),
        ({**GOOD, "timers": [["window", "k", "n", 10**18, False]]}, ()),
        ({**GOOD, "timers": [["window", "k", "n", 1, 0]]}, ()),
        ({**GOOD, "timers": [["window", "k", str(n), 1, False] for n in range(3001)]}, ()),
        ({**GOOD, "late": [[3, "late"]], "late_count": 1}, ()),
        ({**GOOD, "late": [[0, 5]], "late_count": 1}, ()),
        ({**GOOD, "late": [[0, "late"]]}, ()),
        ({**GOOD, "late": [[1, "late"], [1, "late"]], "late_count": 2}, ()),
        ({**GOOD, "late": [], "late_count": 10**9}, ()),
        ({**GOOD, "highest": 1e300}, ()),
        ({**GOOD, "highest": "1"}, ()),
        ({**GOOD, "highest": -(10**15)}, ()),
        ({**GOOD, "outputs": [[-1, 1, 0, 1]]}, (b"1", struct.pack("<I", 0))),
        ({**GOOD, "outputs": [[0, 2, 0, 0]]}, (b"1\n2",)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b"1\n2",)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b"1\n2\n3\n4",)),
        ({**GOOD, "outputs": [[0, 10**9, 0, 1]]}, (b"1", b"")),
        ({**GOOD, "outputs": [[0, 2, 0, 1]]}, (b"1\n2", struct.pack("<2I", 2, 1))),
        ({**GOOD, "outputs": [[0, 2, 0, 1]]}, (b"1\n2", struct.pack("<2I", 0, 3))),
        ({**GOOD, "outputs": [[0, 2, 0, 1]]}, (b"1\n2", struct.pack("<I", 0))),
        ({**GOOD, "outputs": [[0, 3, 0, 0], [0, 3, 0, 0]]}, (b"1\n2\n3", b"1\n2\n3")),
        ({**GOOD, "outputs": [[0, 3, 1, 0]]}, (b"1\n2\n3", b'"a"\n"b"\n{}')),
        ({**GOOD, "outputs": [[0, 3, 1, 0]]}, (b"1\n2\n3", b'"a"\n"b" "x"\n"c"')),
        ({**GOOD, "outputs": [[0, 3, 1, 0]]}, (b"1\n2\n3", b'"a"\n"b\\q"\n"c"')),
        ({**GOOD, "outputs": [[0, 3, 1, 0]]}, (b"1\n2\n3", b'"a"\n"' + b"x" * 1025 + b'"\n"c"')),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b'1\n"\\u0000"\n3',)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b"1\n\xff\n3",)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b"1\n" + b"[" * 200 + b"]" * 200 + b"\n3",)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b'1\n"' + b"x" * 2**20 + b'"\n3',)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, (b"1\n99999999999999999999\n3",)),
        ({**GOOD, "outputs": [[0, 3, 0, 0]]}, ()),
        (GOOD, (b"one column too many",)),
        ({**GOOD, "state": [[5, 1, 0, 0]]}, (b'"k"', b"1", b"", b"")),
        ({**GOOD, "state": [[4.0, 1, 0, 0]]}, (b'"k"', b"1", b"", b"")),
        ({**GOOD, "state": [[4, -1, 0, 0]]}, (b"", b"", b"", b"")),
        ({**GOOD, "state": [[4, 1, 0, 0]]}, (b"null", b"1", b"", b"")),
        ({**GOOD, "state": [[4, 1, 0, 0]]}, (b'"k"', b"1\n2", b"", b"")),
        ({**GOOD, "state": [[4, 0, 0, 0]]}, (b'"k"', b"", b"", b"")),
        ({**GOOD, "state": [[4, 1, 0, 0], [4, 1, 0, 0]]}, (b'"k"', b"1", b"", b"") * 2),
        ({**GOOD, "faults": [[3, "e", "", None]]}, ()),
        ({**GOOD, "faults": [[0, {"e": 1}, "", None]]}, ()),
        ({**GOOD, "faults": [[0, "e", "", None], [0, "e", "", None]]}, ()),
        ({**GOOD, "faults": 7}, ()),
        ({**GOOD, "logs": [[0, "shout", "x"]]}, ()),
        ({**GOOD, "logs": [[9, "info", "x"]]}, ()),
        ({**GOOD, "logs": [[0, "info", "x" * 3_000_000]]}, ()),
    ],
)
def test_a_result_that_breaks_a_rule_is_refused_whole(head: object, columns: tuple[bytes, ...]) -> None:
    with pytest.raises((GuestViolation, TextRefused)):
        judge(head, *columns)


def test_texts_of_faults_are_made_safe() -> None:
    result = judge({**GOOD, "faults": [[1, "a\0b\ud800", "x" * 100_000, "k\0"]], "logs": [[0, "info", "\0"]]})
    (fault,) = result.faults
    assert fault.error == "a\\u0000b\\ud800"
    assert len(fault.stack) <= 16 * 1024
    assert fault.stack.endswith("[cut]")
    assert result.logs[0].message == "\\u0000"


def driver_that_sends(plugin: Plugin, frames: str) -> None:
    """Run a batch with a driver that has been replaced by these statements."""
    source = f"""
    const {{ readSync, writeSync }} = Javy.IO;
    const send = (op, bytes) => {{
      const frame = new Uint8Array(8);
      frame.set([0, 0x4a, op, 0, bytes.length & 255, bytes.length >> 8, 0, 0]);
      writeSync(2, frame);
      if (bytes.length > 0) writeSync(2, bytes);
    }};
    const text = t => new TextEncoder().encode(t);
    {frames}
    """
    from jeet.sandbox.instance import Instance
    from jeet.sandbox.machine import Machine

    evil = plugin._compile(source)

    class Caller:
        keeps_modules = True

        def is_careful(self, digest: str) -> bool:
            return False

        def be_careful(self, digest: str) -> None:
            pass

        def call_driver(self, machine: Machine, budget: object) -> None:
            plugin._invoke(machine, evil, BOOT_BUDGET)

    with plugin._machine(32 * 2**20) as machine:
        Instance(machine, Caller(), SPEC, MemoryState(), lambda stack: stack, "evil").run(batch_of([1, 2, 3]))


@pytest.mark.parametrize(
    "frames",
    [
        'send(2, text(\'{"c":1,"k":["a"]}\'))',
        "send(2, text('nonsense'))",
        'send(2, text(\'{"c":[],"k":{}}\'))',
        'send(3, text(\'{"c":4,"after":null,"limit":1000000}\'))',
        "send(4, text('{\"name\":\"' + 'x'.repeat(100) + '\"}'))",
        "send(6, text('x'))",
        "send(200, text('x'))",
        "send(5, text('')); send(5, text(''))",
        "send(5, new Uint8Array([255, 255, 255, 255, 0]))",
        "send(5, new Uint8Array([2, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 5]))",
        "writeSync(2, new Uint8Array([0, 0x4a, 5]))",
        "writeSync(2, new Uint8Array([0, 0x4a, 5, 0, 255, 255, 255, 255]))",
        "writeSync(2, new Uint8Array([0, 0x4a, 5, 0, 1, 0, 0, 0])); writeSync(2, new Uint8Array(50))",
        "send(1, new Uint8Array(64)); send(8, text('null'))",
        "",
    ],
)
def test_no_message_on_the_channel_does_harm(plugin: Plugin, frames: str) -> None:
    with pytest.raises((GuestViolation, GuestTrap)):
        driver_that_sends(plugin, frames)
