"""The parser in C agrees with JSON.parse, and the writer in C with the strict rules in JavaScript, about everything they take."""

# ruff: noqa: E501

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from importlib.resources import files
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .host import Host, Maker

GUEST = files("jeet.sandbox") / "guest"

# The driver's own strict writer, beside the native one, and a judge of each.
JUDGE = "\n".join(
    [
        *((GUEST / f"{part}.js").read_text() for part in ("intrinsics", "wire", "strict")),
        r"""
function same(a, b) {
  if (typeof a !== 'object' || a === null || b === null || typeof b !== 'object') return Object.is(a, b);
  if (getPrototypeOf(a) !== getPrototypeOf(b) || isArray(a) !== isArray(b)) return false;
  const names = ownKeys(a), others = ownKeys(b);
  if (names.length !== others.length) return false;
  for (let i = 0; i < names.length; i++) {
    const x = getOwnPropertyDescriptor(a, names[i]), y = getOwnPropertyDescriptor(b, names[i]);
    if (names[i] !== others[i] || !('value' in x) || x.writable !== y.writable || x.enumerable !== y.enumerable) return false;
    if (x.configurable !== y.configurable || !same(x.value, y.value)) return false;
  }
  return true;
}

globalThis.parseAll = () => {
  const bytes = Javy.Jeet.inputBytes(0);
  native.openEvents(bytes, new Uint8Array(0));
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const wrong = [];
  let good = 0, start = 0;
  for (let i = 0; start <= bytes.length; i++) {
    let end = bytes.indexOf(10, start);
    if (end < 0) end = bytes.length;
    let expected, valid = true;
    try { expected = parse(decoder.decode(bytes.subarray(start, end))); } catch { valid = false; }
    const found = native.parseEvent(i);
    if (valid ? !same(found, expected) : found !== undefined) wrong.push(i);
    if (valid) good++;
    start = end + 1;
  }
  native.closeEvents();
  console.log(stringify([good, wrong]));
};

let seed = 1;
const below = (n) => {
  seed ^= seed << 13; seed ^= seed >>> 17; seed ^= seed << 5;
  return (seed >>> 0) % n;
};
const NUMBERS = [
  0, -0, 1, -1, 2 ** 31, -(2 ** 31), 2 ** 53 - 1, 1 - 2 ** 53, 2 ** 53, -(2 ** 60), 1e21, 1.5e300, 1e-7, 1e-6, 123456.789, 0.1, 0.1 + 0.2, 1 / 3,
  5e-324, 1e-308, 2.2250738585072014e-308, 9.5e-309, 1.7976931348623157e308, NaN, Infinity, -Infinity, 1e9 + 0.5, 999999999.999999, 0.000001, 100.25,
];
const number = () => {
  switch (below(6)) {
    case 0: return NUMBERS[below(NUMBERS.length)];
    case 1: return below(2000) - 1000;
    case 2: return (below(2000000) - 1000000) / [10, 100, 1000, 1e4, 1e5, 1e6, 1e7, 3, 7][below(9)];
    case 3: return below(2 ** 31) * below(2 ** 31) / 2 ** below(40);
    case 4: return below(1e9) * 10 ** (below(40) - 20);
    default: return new DataView(new Uint32Array([below(2 ** 32), below(2 ** 32)]).buffer).getFloat64(0);
  }
};
const PIECES = ['a', 'user17', '"', '\\', '\n', '\u0001', '\u001f', '\x7f', 'é', 'ÿ', 'Ā', '語', '🌍', '\u2028', '/', '\b\f\r\t', 'a longer piece of ASCII'];
const string = () => {
  if (below(60) === 0) return ['\0', '\ud800', '\udc00x', 'x\ud83c', '\ud800\ud800\udc00'][below(5)];
  let text = '';
  for (let n = below(6); n > 0; n--) text += PIECES[below(PIECES.length)];
  if (below(40) === 0) { const piece = text + 'rope'.repeat(600); text = piece + below(10); for (let i = 0; i < 12; i++) text += piece; }
  return below(30) === 0 ? ('xxxx'.repeat(3000) + text + 'y').slice(5, -1) : text;
};
const NAMES = ['a', 'b', 'id', '__proto__', 'constructor', 'length', 'toString', '', 'é', 'a b', '4294967295', '4294967294x', '01', '-1'];
const name = () => (below(8) === 0 ? (below(3) === 0 ? `${below(50)}` : string()) : NAMES[below(NAMES.length)]);
class Point { constructor() { this.x = number(); } }
class List extends Array {}
const unusual = () => {
  const v = value(1);
  switch (below(26)) {
    case 0: return undefined;
    case 1: return () => v;
    case 2: return 1n;
    case 3: return Symbol('s');
    case 4: return new Date(below(1e9));
    case 5: return new Date(NaN);
    case 6: return { toJSON: () => v };
    case 7: return { toJSON: v };
    case 8: return new Map([[v, v]]);
    case 9: return [, v];
    case 10: { const a = [v]; a.length = 3; return a; }
    case 11: { const a = [v]; a.more = v; return a; }
    case 12: { const a = [v]; a.toJSON = () => 1; return a; }
    case 13: return new Point();
    case 14: return List.from([v]);
    case 15: return new Proxy({ v }, {});
    case 16: return new Proxy([v], {});
    case 17: return { get v() { return v; } };
    case 18: return defineProperty({ v }, 'hidden', { value: () => 1, enumerable: false });
    case 19: return defineProperty({ v }, 'toJSON', { value: () => 2, enumerable: false });
    case 20: return { [Symbol('s')]: () => 1, v };
    case 21: { const o = { gone: undefined, v, later: 1 }; delete o.gone; return o; }
    case 22: { const o = {}; o.o = o; return o; }
    case 23: return Object.create({ inherited: v });
    case 24: return freeze([Object(string()), Object(1)][below(2)]);
    default: return [new Uint8Array(2), /x/, new Error('x'), JSON.rawJSON('1'), (function () { return arguments; })(), globalThis, Math, new Set()][below(8)];
  }
};
function value(depth) {
  const kind = below(depth > 5 ? 6 : 10);
  if (kind < 2) return number();
  if (kind < 4) return string();
  if (kind === 4) return below(3) === 0 ? null : below(2) === 1;
  if (kind === 5) return below(12) === 0 ? unusual() : below(100);
  if (kind < 8) {
    const array = [];
    for (let n = below(5); n > 0; n--) array.push(value(depth + 1));
    return array;
  }
  const object = below(10) === 0 ? create(null) : {};
  for (let n = below(6); n > 0; n--) defineProperty(object, name(), { value: value(depth + 1), writable: true, enumerable: true, configurable: true });
  return object;
}

globalThis.writeAll = () => {
  const [start, count] = new Uint32Array(Javy.Jeet.inputBytes(0).buffer);
  const told = { wrote: 0, unusual: 0, refused: 0 };
  for (let i = 0; i < count; i++) {
    seed = (start + i * 2654435761 | 0) || 1;
    for (let n = 0; n < 5; n++) below(2);
    const candidate = value(0);
    const limit = below(4) === 0 ? below(60) : 1 << 20;
    depthLimit = below(4) === 0 ? below(6) : 128;
    const text = native.jsonText(candidate, limit, depthLimit);
    let expected = null;
    if (text !== WRITE_UNUSUAL) try { expected = carefulText(candidate, 'it', limit, 'bytes'); } catch (error) { if (!(error instanceof JsonError)) throw error; }
    if (text === WRITE_UNUSUAL) told.unusual++;
    else if (text === WRITE_REFUSED) told.refused++;
    else told.wrote++;
    // What the writer refused before it came to a toJSON, whose answer stands for all of it, is for the rules to say.
    if (text === WRITE_REFUSED && followed) continue;
    if (text !== WRITE_UNUSUAL && (typeof text === 'string' ? text : null) !== expected) {
      throw new Error(`case ${i} of ${start}: ${text} instead of ${expected}`);
    }
  }
  console.log(stringify(told));
};
""",
    ]
)


@pytest.fixture(scope="module")
def judge(wide_maker: Maker) -> Iterator[Host]:
    with wide_maker.instance() as host:
        host.export("jeet-host-stack", 2 << 20)
        assert host.evaluate(JUDGE) == 0, host.error
        yield host


def ask(judge: Host, name: str, data: bytes) -> str:
    assert judge.export("jeet-input", 0, judge.put(data), len(data)) == 0
    before = len(judge.stdout)
    assert judge.call(name) == 0, judge.error
    return judge.stdout[before:]


def disagreements(judge: Host, lines: list[bytes]) -> list[bytes]:
    _good, wrong = json.loads(ask(judge, "parseAll", b"\n".join(lines)))
    return [lines[i] for i in wrong]


TEXTS = [
    "0", "-0", "-", "+1", "01", "-01", "1.", ".5", "1.0", "-0.0", "1e5", "1E+5", "1e-5", "1e", "1e+", "1.e1", "0e1", "0.1e-400", "1e400", "-1e400",
    "123456789012345", "1234567890123456", "9007199254740993", "123456789012345678901234567890", "0.1234567890123456789", "2.5e-324", "1.7976931348623159e308",
    "0.30000000000000004", "100.25", "1e22", "1e23", "0x10", "Infinity", "NaN", "2147483647", "2147483648", "-2147483648", "-2147483649", "1_000", "1 2",
    '""', '"a"', '"', '"a', '"\\"', '"\\', '"\\u', '"\\u12', '"\\u123g"', '"\\u0000"', '"\\ud83c\\udf0d"', '"\\ud800"', '"\\udc00\\ud800"', '"\\uD83C"',
    '"\\x41"', '"\\/\\b\\f\\n\\r\\t\\"\\\\"', "\"\\'\"", '"tab\there"', '"\x00"', '"\x1f"', '"\x7f"', '"é"', '"ÿ"', '"Ā"', '"語🌍"', '"mixed é and 語 and \\u00e9"', '"\u2028"',
    "'a'", "true", "false", "null", "nul", "nulll", "True", "undefined", "", " ", "\t1\r", "\v1", "\f1", "\u00a01", "\ufeff1", "1\ufeff", "\x001", "1\x00",
    "[]", "[ ]", "[1]", "[1,]", "[,1]", "[,]", "[1,,2]", "[1", "[1 2]", "]", "[1]]", "[[1],[2,[3]],{}]", "[", "[null,true,false]", "[\x001]",
    "{}", "{ }", '{"a":1}', '{"a":1,}', '{"a"}', '{"a":}', "{a:1}", '{"a":1 "b":2}', '{,"a":1}', '{1:2}', "{'a':1}", '{"a":1', '{"a"', "{", '{"a" : 1 , "b" : [ ] }',
    '{"a":1,"a":2}', '{"a":{"b":1},"a":{"c":2},"b":3}', '{"__proto__":1}', '{"__proto__":{"x":1},"x":2}', '{"constructor":1,"toString":2,"length":3}',
    '{"2":1,"1":2,"b":3,"a":4,"0":5}', '{"4294967294":1,"4294967295":2,"2147483648":3,"2147483647":4,"-1":5,"01":6,"1.5":7}', '{"":1}', '{"\\u0061":1,"a":2}', '{"é":1,"\\u00e9":2}',
    '{"a longer name than the table of names keeps, by some":1,"a longer name than the table of names keeps, by some":2}', '{"語":1,"🌍":{"語":[]}}',
    '{"a\\u0000b":1}', '[{"id":1,"v":"x"},{"id":2,"v":"y"},{"v":"z","id":3}]', "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, "[" * 300, '[{"a":' * 200,
    '{"toJSON":1,"valueOf":null}', '[1e2,-1E-2,0.0,-0]', '"' + "x" * 5000 + '"', '"' + "é" * 5000 + '"', '"' + "x" * 63 + '\\n"', "//1", "/*1*/1", "1//", '{"a":1}{"b":2}',
]  # fmt: skip
BYTES = [
    b'"\xff"', b'"\xc3"', b'"\xc3\x28"', b'"\xc0\xaf"', b'"\xe0\x80\xaf"', b'"\xed\xa0\x80"', b'"\xed\xa0\xbc\xed\xbc\x8d"', b'"\xf4\x90\x80\x80"', b'"\xf8\x88\x80\x80\x80"',
    b'"\xe2\x82"', b'"\xf0\x9f\x8c"', b"\xef\xbb\xbf1", b'\xef\xbb\xbf{"a":1}', b"\xff", b'{"\xff":1}', b'"\x80"', b'"a\xf0\x9f\x8c\x8db"', b'"\xe2\x82\xac', b"\xe2\x82\xac",
]  # fmt: skip
CORPUS = [text.encode("utf-8", "surrogatepass") for text in TEXTS] + BYTES
SOUP = [*b'{}[],:"\\\x00 \t/-+.eE0123456789truefalsnu\xc3\xa9\xed\xa0\x80\xef\xbb\xbf']


def mutated(random: Random, text: bytes) -> bytes:
    """A few bytes gone, doubled, changed, or put in; or cut off; or two texts in one."""
    data = bytearray(text)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0:
                del data[at : at + random.randrange(1, 4)]
            case 1:
                data[at:at] = data[at : at + random.randrange(1, 6)]
            case 2:
                data[at : at + 1] = bytes([random.choice(SOUP)])
            case 3:
                data[at:at] = bytes([random.randrange(256)])
            case 4:
                del data[at:]
            case _:
                data[at:at] = random.choice(CORPUS)[:200]
    return bytes(data).replace(b"\n", b" ")


def cases(random: Random, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        value = random.choice(CORPUS)
        if random.randrange(3) == 0:
            value = json.dumps(grown(random, 0), ensure_ascii=random.randrange(2) == 0).encode("utf-8", "surrogatepass")
        found.append(mutated(random, value) if random.randrange(4) else value)
    return found


def grown(random: Random, depth: int) -> object:
    match random.randrange(5 if depth > 4 else 8):
        case 0:
            return random.choice(
                [
                    0,
                    -1,
                    1.5,
                    random.uniform(-1e3, 1e3),
                    random.randrange(-(2**60), 2**60),
                    random.random() * 10.0 ** random.randrange(-320, 308),
                ]
            )
        case 1 | 2:
            return "".join(
                random.choice(["a", "user", "é", "語", "🌍", "\\", '"', "\n", "\0", "\ud800", "long text "])
                for _ in range(random.randrange(8))
            )
        case 3:
            return random.choice([None, True, False])
        case 4:
            return random.randrange(1000)
        case 5:
            return [grown(random, depth + 1) for _ in range(random.randrange(5))]
        case _:
            return {
                random.choice(["a", "b", "id", "userId", "é", "12", "3", "__proto__"]): grown(random, depth + 1)
                for _ in range(random.randrange(6))
            }


def test_the_parser_agrees_with_json_parse_on_the_corpus(judge: Host) -> None:
    assert disagreements(judge, CORPUS) == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_parser_agrees_with_json_parse(judge: Host, seed: int) -> None:
    assert disagreements(judge, cases(Random(seed), 200)) == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(1, 2**32 - 1))
def test_the_writer_agrees_with_the_strict_rules(judge: Host, seed: int) -> None:
    ask(judge, "writeAll", struct.pack("<II", seed, 200))


def test_the_writer_takes_most_of_what_it_meets(judge: Host) -> None:
    told = json.loads(ask(judge, "writeAll", struct.pack("<II", 7, 2000)))
    assert told["wrote"] > 1000
    assert min(told.values()) > 50


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100))
def test_parser_and_writer_agree_in_many_cases(judge: Host, seed: int) -> None:
    assert disagreements(judge, cases(Random(seed), 2000)) == []
    ask(judge, "writeAll", struct.pack("<II", seed * 65537 + 1, 2000))


def test_what_is_nested_too_deeply_for_the_parser_is_left_to_json_parse(judge: Host) -> None:
    lines = [b"[" * depth + b"]" * depth for depth in (999, 1000, 1001, 100_000)]
    data = b"\n".join(lines)
    assert judge.export("jeet-input", 0, judge.put(data), len(data)) == 0
    source = """
    const { openEvents, parseEvent, closeEvents } = Javy.Jeet;
    openEvents(Javy.Jeet.inputBytes(0), new Uint8Array(0));
    console.log([0, 1, 2, 3].map((i) => typeof parseEvent(i)).join());
    closeEvents();
    """
    before = len(judge.stdout)
    assert judge.evaluate(source) == 0, judge.error
    assert judge.stdout[before:] == "object,object,undefined,undefined\n"
