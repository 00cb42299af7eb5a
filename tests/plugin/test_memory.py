"""Memory has a limit that JavaScript meets as an error, and garbage never counts against it."""

from __future__ import annotations

import pytest

from .host import Host, Maker

MIB = 1 << 20

BOMBS = {
    "array": "const a = []; for (;;) a.push({})",
    "objects": "let o = null; for (;;) o = { o, a: 1, b: 'x' + Math.random() }",
    "string": "let s = 'x'; for (;;) s += s",
    "strings": "const a = []; for (let i = 0; ; i++) a.push('text ' + i)",
    "rope": "let s = ''; const piece = 'piece '.repeat(100); for (let i = 0; ; i++) s += piece + i",
    "buffer": "const a = []; for (;;) a.push(new Uint8Array(100000))",
    "one buffer": "new ArrayBuffer(2 ** 31 - 8)",
    "map": "const m = new Map(); for (let i = 0; ; i++) m.set(i, i)",
    "properties": "const o = {}; for (let i = 0; ; i++) o['k' + i] = i",
    "closures": "const a = []; for (let i = 0; ; i++) a.push(() => i)",
    "array length": "new Array(2 ** 26).fill(0)",
    "join": "new Array(2 ** 20).fill('x'.repeat(1000)).join()",
    "repeat": "const a = []; for (;;) a.push('x'.repeat(2 ** 20))",
    "split": "'x'.repeat(2 ** 24).split('')",
    "parse": "JSON.parse('[' + '[],'.repeat(2 ** 22) + '1]')",
    "stringify": "const a = new Array(1000).fill('x'.repeat(10000)); let s = []; for (;;) s.push(JSON.stringify(a))",
    "regex": "'x'.repeat(2 ** 22).match(/./g)",
    "bigint": "let n = 1n; const a = []; for (;;) { n <<= 100000n; a.push(n) }",
    "symbols": "const a = []; for (;;) a.push(Symbol('s'))",
    "errors": "const a = []; for (;;) a.push(new Error('e'))",
    "promises": "const a = []; for (;;) a.push(Promise.reject(new Error('e')))",
    "bind": "let f = () => 1; for (;;) f = f.bind(null)",
    "source": "new Function('return [' + '1,'.repeat(2 ** 20) + ']')",
    "date": "const a = []; for (;;) a.push(new Date())",
    "generator": "function* g() { yield g() } const a = []; for (;;) { const x = g(); x.next(); a.push(x) }",
    "json records": "JSON.parse('[' + '{\"a\":1},'.repeat(2 ** 20) + '1]', (k, v) => v)",
}

OUTCOMES = {
    "InternalError: out of memory",
    "InternalError: string too long",
    "RangeError: invalid array length",
    "RangeError: BigInt is too large to allocate",
}

RUN = """
globalThis.kept = [];
globalThis.run = () => { try { (() => { %s })(); globalThis.outcome = 'value' } catch (e) { globalThis.outcome = e } };
globalThis.after = () => {
  const { outcome } = globalThis;
  Javy.Jeet.takeRejection();
  console.log(outcome instanceof Error ? `${outcome.name}: ${outcome.message}` : String(outcome));
  console.log(JSON.stringify(JSON.parse('{"a":[1,"two"]}')));
};
"""


def run(host: Host, source: str) -> str:
    assert host.evaluate(RUN % source) == 0, host.error
    assert host.call("run") == 0, host.error
    assert host.call("after") == 0, host.error
    outcome, alive = host.stdout.splitlines()
    assert alive == '{"a":[1,"two"]}'
    return outcome


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_meets_an_error_and_the_instance_goes_on(maker: Maker, bomb: str) -> None:
    with maker.instance(memory_bytes=35 * MIB) as host:
        host.export("jeet-memory-limit", 32 * MIB)
        assert run(host, BOMBS[bomb]) in OUTCOMES
        host.export("jeet-gc")
        assert host.export("jeet-memory-used") < 6 * MIB  # the table of names never shrinks


@pytest.mark.parametrize("bomb", ["array", "objects", "strings", "map", "promises"])
def test_the_hosts_own_limit_alone_is_an_error_too(maker: Maker, bomb: str) -> None:
    with maker.instance(memory_bytes=16 * MIB) as host:
        assert run(host, BOMBS[bomb]) == "InternalError: out of memory"


def test_usage_never_passes_the_limit_by_more_than_the_reserve(maker: Maker) -> None:
    with maker.instance() as host:
        host.export("jeet-memory-limit", 8 * MIB)
        source = "const a = []; let n = 0; while (n < 50) { try { for (;;) a.push({ n }) } catch { n++ } }"
        assert host.evaluate(f"globalThis.run = () => {{ {source} }}") == 0
        host.call("run")
        host.evaluate("console.log(JSON.stringify(Javy.Jeet.memoryUsage()))")
        assert '"limit":8388608' in host.stdout
        peak = int(host.stdout.split('"peak":')[1].split(",")[0])
        assert 8 * MIB - 64 * 1024 <= peak <= 8 * MIB + 256 * 1024


def test_garbage_in_cycles_costs_no_function_its_life(maker: Maker) -> None:
    # 20 MiB stay alive under a limit of 32; QuickJS alone would collect next at 30 and more, plus what one step makes.
    source = """
      for (let i = 0; i < 20; i++) kept.push(new Uint8Array(1 << 20));
      for (let i = 0; i < 3000; i++) { const a = { data: 'x'.repeat(20000) }, b = { a }; a.b = b; }
    """
    with maker.instance(memory_bytes=36 * MIB) as host:
        host.export("jeet-memory-limit", 32 * MIB)
        assert run(host, source) == "value"


def test_memory_that_is_given_back_can_be_used_again_and_again(maker: Maker) -> None:
    source = """
      for (let i = 0; i < 10; i++) {
        try { const a = []; for (;;) a.push({ i }) } catch (e) { kept.push(e.message) }
      }
    """
    with maker.instance(memory_bytes=19 * MIB) as host:
        host.export("jeet-memory-limit", 16 * MIB)
        assert run(host, source) == "value"
        assert host.evaluate("if (kept.length !== 10 || kept.some((m) => m !== 'out of memory')) throw kept") == 0
        assert host.evaluate("if (Javy.Jeet.memoryUsage().refusals < 10) throw 0") == 0


PARTS = r"""
const { openEvents, parseEvent, closeEvents, jsonText, putRow, putText, popRow, takeColumn, clearColumn } = Javy.Jeet;
const bytes = (text) => new TextEncoder().encode(text);
const columns = [Javy.Jeet.newColumn(), Javy.Jeet.newColumn('key')];
const parts = [
  () => {
    try {
      const first = '{"a":[1,"two",{"b":"grüße 語"}],"key":1.25,"' + 'long'.repeat(20) + '":{}}';
      openEvents(bytes(first + '\n[[[["' + 'é'.repeat(300) + '"]]]]'), bytes('"k"\n"l"'));
      return JSON.stringify([parseEvent(0), parseEvent(1)]).length;
    } finally { closeEvents(); }
  },
  () => {
    let rows = 0;
    for (const column of columns) {
      clearColumn(column);
      for (let i = 0; i < 20; i += i % 3 + 1) {
        try {
          if (i % 4) putRow(column, i, { key: 'user' + i, text: 'é🌍'.repeat(i), deep: [[{ i }], 1.5] }, 5000, 9, 100);
          else putText(column, i, '"' + 'text'.repeat(i * 9) + '"', i % 3 ? undefined : '"a key"');
          rows++;
          if (i % 5 === 0) { popRow(column); rows--; }
        } finally { if (takeColumn(column, rows)[0] !== rows) throw new Error('a row is half there'); }
      }
      rows = 0;
    }
  },
  () => jsonText({ a: ['rope '.repeat(100) + 'x'.repeat(300), { b: 1 / 3 }], key: '\u2028' }, 10000, 9).length,
  () => JSON.parse('{"a":[1,2,{"b":"c"}],"d":{"e":null}}', (k, v) => v),
  () => JSON.stringify({ a: [1, 'two', { three: 3n.toString() }], toJSON() { return [this.a] } }, null, 2),
  () => [5, 3, 1].sort((a, b) => a - b).map((x) => x * 2).filter(Boolean).flatMap((x) => [x, x]).join('-'),
  () => 'a1b22c333'.replace(/([a-z])(\d+)/g, (m, p, q) => q + p).split(/\d/u).length,
  () => new Map([[1, { a: 1 }], ['k', [2]]]).forEach((v, k, m) => new Set(m.keys())),
  () => {
    class A { #x = 1; get x() { return this.#x } static s = new A() }
    class B extends A { constructor() { super(); this.y = super.x } }
    return new B().y;
  },
  () => { function* g() { try { yield* [1, 2, 3] } finally { } } return [...g()].length },
  () => {
    let n = 0;
    (async () => { await null; for await (const x of [1, Promise.resolve(2)]) n += x })();
    Javy.Jeet.drainJobs();
    Javy.Jeet.takeRejection();
    return n;
  },
  () => {
    const get = () => 1, ownKeys = () => ['a', 'b'];
    const getOwnPropertyDescriptor = () => ({ value: 1, enumerable: true, configurable: true });
    return Object.entries(new Proxy({}, { get, ownKeys, getOwnPropertyDescriptor })).length;
  },
  () => { Promise.reject(new Error('x')); Javy.Jeet.drainJobs(); return Javy.Jeet.takeRejection().count },
  () => new Function('a', 'b', 'return `${a}${b}`')('é', '🌍').normalize('NFD').toUpperCase(),
  () => new Date(2020, 1, 2).toISOString() + (12345.678).toFixed(1) + (2n ** 200n),
  () => new TextDecoder().decode(new TextEncoder().encode('grüße 語')),
  () => { const w = new WeakMap(), k = {}; w.set(k, new WeakRef(k)); return w.get(k).deref() === k },
  () => { try { null.x } catch (e) { return e.stack.length } },
  () => { let s = ''; for (let i = 0; i < 200; i++) s += 'piece ' + i; return s.length },
  () => { const a = []; for (let i = 0; i < 300; i++) a.push({ i, s: 'v' + i }); return JSON.stringify(a).length },
  () => eval('let q = 1; (() => { late = q; var late; return late })()'),
  () => Array.from({ length: 50 }, (_, i) => Symbol(i)).length + [...'héllo'].reverse().join(''),
  () => /(?<y>\d{4})-(?<m>\d\d)/.exec('on 2024-05-06').groups.y + [...'aXbX'.matchAll(/X/g)].length,
  () => new DataView(new Float64Array([3, 1, 2]).sort().buffer).getFloat64(0),
];
const seen = new Set();
const touch = (o) => { // as a driver does that freezes all built-ins before user code runs
  if ((typeof o !== 'object' && typeof o !== 'function') || o === null || seen.has(o)) return;
  seen.add(o);
  for (const key of Reflect.ownKeys(o)) {
    const { value, get, set } = Reflect.getOwnPropertyDescriptor(o, key) ?? {};
    [value, get, set].forEach(touch);
  }
  touch(Reflect.getPrototypeOf(o));
};
touch(globalThis);
globalThis.go = () => {
  let failed = 0;
  for (const part of parts) {
    try { part() } catch (error) {
      if (error?.message !== 'out of memory') throw error;
      failed++;
    }
  }
  console.log(failed);
};
globalThis.exhaust = () => {
  let kept = [], failed = 0;
  for (let i = 0; i < 3000 && failed < 30; i++) {
    try { kept.push(parts[(i * 7) % parts.length](), 'x' + i, { i }, new Uint8Array(i % 300)) } catch { failed++ }
  }
};
"""


@pytest.fixture(scope="module")
def parts(maker: Maker) -> bytes:
    with maker.instance() as host:
        return host.compile(PARTS)


def load(host: Host, parts: bytes) -> None:
    assert host.export("jeet-eval-module", host.put(parts), len(parts)) == 0, host.error
    assert host.call("go") == 0, host.error
    host.export("jeet-gc")


def one_allocation_fails(maker: Maker, parts: bytes, room: int) -> None:
    with maker.instance() as host:
        load(host, parts)
        host.export("jeet-memory-limit", host.export("jeet-memory-used") + room)
        assert host.call("go") == 0, host.error
        host.export("jeet-memory-limit", 0)
        assert host.call("go") == 0, host.error
        assert host.stdout.split()[2] == "0"  # all is as before
        host.export("initialize-runtime")


def all_memory_goes(maker: Maker, parts: bytes, room: int) -> None:
    for by_host in (True, False):
        with maker.instance(memory_bytes=(2 << 20) + room if by_host else -1) as host:
            load(host, parts)
            if not by_host:
                host.export("jeet-memory-limit", host.export("jeet-memory-used") + room)
            assert host.call("exhaust") in (0, 1)
            host.export("jeet-memory-limit", 0)
            host.export("initialize-runtime")
            assert host.run("console.log('alive')").endswith("alive\n")


def test_any_allocation_may_fail_and_nothing_is_broken_after_it(maker: Maker, parts: bytes) -> None:
    for room in range(-20_000, 60_000, 1000):
        one_allocation_fails(maker, parts, room)


def test_running_out_of_memory_altogether_ends_in_errors_only(maker: Maker, parts: bytes) -> None:
    for room in range(0, 400_000, 20_000):
        all_memory_goes(maker, parts, room)


@pytest.mark.torture
def test_every_allocation_may_fail(maker: Maker, parts: bytes) -> None:
    for room in range(-20_000, 60_000, 40):
        one_allocation_fails(maker, parts, room)
    for room in range(0, 400_000, 1000):
        all_memory_goes(maker, parts, room)


def test_a_limit_that_is_lifted_is_no_limit(maker: Maker) -> None:
    with maker.instance() as host:
        host.export("jeet-memory-limit", 4 * MIB)
        host.export("jeet-memory-limit", 0)
        assert run(host, "kept.push(new Uint8Array(16 << 20))") == "value"
