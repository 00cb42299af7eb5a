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
    "rope": "let s = ''; for (let i = 0; ; i++) s += 'piece ' + i",
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
    "source": "new Function('return [' + '1,'.repeat(2 ** 22) + ']')",
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


def test_a_limit_that_is_lifted_is_no_limit(maker: Maker) -> None:
    with maker.instance() as host:
        host.export("jeet-memory-limit", 4 * MIB)
        host.export("jeet-memory-limit", 0)
        assert run(host, "kept.push(new Uint8Array(16 << 20))") == "value"
