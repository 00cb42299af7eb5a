"""No recursion of any kind ends an instance: JavaScript gets an error that it can catch, and goes on."""

from __future__ import annotations

import json

import pytest

from .host import Host, Maker
from .recursion import RECURSION

# Runs one kind in a function of its own, then shows that parser, calls and output still work.
RUN = """
globalThis.run = () => {
  try { (0, eval)(%s); globalThis.outcome = 'value'; } catch (error) { globalThis.outcome = String(error); }
};
globalThis.after = () => console.log(JSON.parse('["' + 'ok' + '"]')[0] + ' ' + globalThis.outcome);
"""
_LIMIT_BYTES = 256 * 1024  # of QuickJS
_HOST_BYTES_PER_LIMIT_BYTE = 4  # what the charges in platform/plugin/adapt_quickjs.py hold


def outcome(host: Host, source: str) -> str:
    assert host.evaluate(RUN % json.dumps("(function () { " + source + " })()")) == 0, host.error
    assert host.call("run") == 0, host.error
    assert host.call("after") == 0, host.error
    assert host.stdout.startswith("ok "), host.stdout
    return host.stdout[3:].strip()


@pytest.mark.parametrize("kind", RECURSION)
def test_recursion_becomes_an_error_on_wasmtimes_default_stack(maker: Maker, kind: str) -> None:
    with maker.instance(memory_bytes=1 << 30) as host:
        outcome(host, RECURSION[kind])


@pytest.mark.torture
@pytest.mark.parametrize("kind", RECURSION)
def test_recursion_becomes_an_error_on_a_wide_stack(wide_maker: Maker, kind: str) -> None:
    with wide_maker.instance(memory_bytes=1 << 30) as host:
        host.export("jeet-host-stack", 2 << 20)
        outcome(host, RECURSION[kind])


@pytest.fixture(scope="module")
def exact_maker() -> Maker:
    # With epochs, as the sandbox has them: looking at them makes frames larger.
    return Maker(max_wasm_stack=_LIMIT_BYTES * _HOST_BYTES_PER_LIMIT_BYTE, epochs=True)


@pytest.mark.torture
@pytest.mark.parametrize("kind", RECURSION)
def test_no_recursion_takes_more_of_the_hosts_stack_than_it_is_charged(exact_maker: Maker, kind: str) -> None:
    # A fifth of what the plugin is told is its limit: the host here has a fifth less than it says.
    with exact_maker.instance(memory_bytes=1 << 30, ticks=1 << 40) as host:
        host.export("jeet-host-stack", _LIMIT_BYTES * 5)
        outcome(host, RECURSION[kind])


@pytest.mark.parametrize(
    "source",
    [
        "JSON.parse('['.repeat(100000) + ']'.repeat(100000))",
        "let a = []; for (let i = 0; i < 100000; i++) a = [a]; JSON.stringify(a)",
        "function f() { return f() + 1 } f()",
    ],
)
def test_too_deep_is_a_range_error(maker: Maker, source: str) -> None:
    with maker.instance() as host:
        assert outcome(host, source) == "RangeError: Maximum call stack size exceeded"


def test_ordinary_depth_is_not_too_deep(maker: Maker, wide_maker: Maker) -> None:
    depth = "let n = 0; function f(left) { n++; if (left) f(left - 1) } f(%d); if (n !== %d) throw n"
    nested = "JSON.stringify(JSON.parse('['.repeat(%d) + ']'.repeat(%d)))"
    with maker.instance() as host:
        assert outcome(host, nested % (700, 700)) == "value"
    with maker.instance() as host:
        assert outcome(host, depth % (250, 251)) == "value"
    with wide_maker.instance() as host:
        host.export("jeet-host-stack", 2 << 20)
        assert outcome(host, nested % (3000, 3000)) == "value"
    with wide_maker.instance() as host:
        host.export("jeet-host-stack", 2 << 20)
        assert outcome(host, depth % (1200, 1201)) == "value"


def test_values_nested_a_million_deep_are_freed(maker: Maker) -> None:
    with maker.instance(memory_bytes=1 << 30) as host:
        source = "let a = null; for (let i = 0; i < 1000000; i++) a = { a }; a = null"
        assert outcome(host, source) == "value"
        host.export("jeet-gc")
        assert host.export("jeet-memory-used") < 1 << 20


def test_source_nested_too_deeply_does_not_compile(maker: Maker) -> None:
    for source in ("(" * 50_000, "[" * 50_000, "{" * 50_000, "()=>" * 50_000, "`${" * 50_000, "a?" * 50_000):
        with maker.instance() as host:
            with pytest.raises(SyntaxError):
                host.compile(source)
            assert host.run("console.log('alive')") == "alive\n"
