"""What a host of Javy 7 or 8 relies on holds, on the built-in plugin and on an official one."""

from __future__ import annotations

import pytest
import wasmtime

from .host import PLUGIN, Host, Maker

ABI = {
    "initialize-runtime": ([], []),
    "cabi_realloc": (["i32"] * 4, ["i32"]),
    "compile-src": (["i32"] * 2, ["i32"]),
    "invoke": (["i32"] * 5, []),
}


def section(wasm: bytes, wanted: str) -> bytes:
    at = 8
    while at < len(wasm):
        kind, size, start = wasm[at], *leb(wasm, at + 1)
        if kind == 0:
            length, name = leb(wasm, start)
            if wasm[name : name + length].decode() == wanted:
                return wasm[name + length : start + size]
        at = start + size
    raise AssertionError(f"no custom section {wanted}")


def leb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at


def test_exports_have_the_types_that_javy_expects(any_maker: Maker) -> None:
    exports = {export.name: export.type for export in any_maker.module.exports}
    assert isinstance(exports["memory"], wasmtime.MemoryType)
    for name, (parameters, results) in ABI.items():
        kind = exports[name]
        assert isinstance(kind, wasmtime.FuncType)
        assert ([str(p) for p in kind.params], [str(r) for r in kind.results]) == (parameters, results), name


def test_only_wasi_preview_1_is_imported(maker: Maker) -> None:
    assert {i.module for i in maker.module.imports} == {"wasi_snapshot_preview1"}
    assert {i.name for i in maker.module.imports} <= {
        "fd_read",
        "fd_write",
        "fd_close",
        "fd_seek",
        "fd_fdstat_get",
        "clock_time_get",
    }
    assert "_initialize" not in {e.name for e in maker.module.exports}


def test_the_namespace_is_in_a_custom_section() -> None:
    assert section(PLUGIN.read_bytes(), "import_namespace") == b"jeet-plugin-v1"


def test_bytecode_runs_and_globals_survive_between_invocations(any_maker: Maker) -> None:
    with any_maker.instance() as host:
        bytecode = host.compile("globalThis.n = (globalThis.n || 0) + 1; console.log('run ' + globalThis.n)")
        host.invoke(bytecode)
        host.invoke(bytecode)
        assert host.stdout == "run 1\nrun 2\n"


def test_invoke_evaluates_the_module_and_then_calls_the_export(any_maker: Maker) -> None:
    with any_maker.instance() as host:
        bytecode = host.compile(
            "console.log('top'); export function foo() { console.log('foo', arguments.length) }\n"
            "export default () => console.log('default')"
        )
        host.invoke(bytecode, "foo")
        host.invoke(bytecode, "default")
        assert host.stdout == "top\nfoo 0\ntop\ndefault\n"


def test_a_syntax_error_is_a_message_with_its_line(any_maker: Maker) -> None:
    with any_maker.instance() as host, pytest.raises(SyntaxError, match=r"function\.mjs:2:"):
        host.compile("let a = 1;\nlet b = ;\n")


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("\nthrow new Error('boo')", None, "Error: boo\n    at <anonymous> (function.mjs:2:"),
        ("export function foo() {\n\n  null.x }", "foo", "at foo (function.mjs:3:"),
        ("throw 5", None, "5\n"),
        ("throw Symbol('q')", None, "Symbol(q)\n"),
        ("throw null", None, "null\n"),
    ],
)
def test_an_uncaught_error_goes_to_stderr_and_ends_the_instance(
    any_maker: Maker, source: str, name: str | None, said: str
) -> None:
    with any_maker.instance() as host:
        bytecode = host.compile(source)
        with pytest.raises(wasmtime.Trap):
            host.invoke(bytecode, name)
        assert said in host.stderr


@pytest.mark.parametrize(
    "hostile",
    [
        "throw { toString() { throw new Error('again') } }",
        "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); throw e",
        "throw Object.create(null)",
        "const e = new Error('x'); e.toString = () => { for (;;) throw e }; throw e",
        "delete Symbol.prototype.toString; throw Symbol()",
        "throw new Proxy({}, { get() { throw 1 } })",
    ],
)
def test_an_error_that_resists_being_shown_still_ends_in_words(maker: Maker, hostile: str) -> None:
    with maker.instance() as host:
        with pytest.raises(wasmtime.Trap, match="unreachable"):
            host.invoke(host.compile(hostile))
        assert len(host.stderr) > 1


def test_an_export_that_is_missing_is_an_error_that_names_it(maker: Maker) -> None:
    with maker.instance() as host:
        with pytest.raises(wasmtime.Trap):
            host.invoke(host.compile("export const a = 1"), "nix")
        assert "'nix'" in host.stderr


def test_promise_jobs_run_until_there_are_none(maker: Maker) -> None:
    with maker.instance() as host:
        host.invoke(
            host.compile(
                "let p = Promise.resolve(0); for (let i = 0; i < 1000; i++) p = p.then((n) => n + 1);\n"
                "p.then((n) => console.log('top ' + n)); await null; console.log('awaited');\n"
                "export async function foo() {\n"
                "  await null; console.log('foo'); queueMicrotask(() => console.log('last')) }"
            ),
            "foo",
        )
        assert host.stdout == "awaited\ntop 1000\nfoo\nlast\n"


def test_a_rejected_promise_of_the_module_or_the_export_is_an_uncaught_error(maker: Maker) -> None:
    for source, name in (
        ("await null; throw new Error('late')", None),
        ("export async function foo() { await null; throw new Error('late') }", "foo"),
    ):
        with maker.instance() as host:
            with pytest.raises(wasmtime.Trap):
                host.invoke(host.compile(source), name)
            assert "Error: late" in host.stderr


def test_a_second_initialisation_makes_a_fresh_runtime(maker: Maker) -> None:
    with maker.instance() as host:
        host.run("globalThis.left = 1; Promise.reject(1)")
        host.evaluate("globalThis.more = 'x'.repeat(100000)")
        for _ in range(5):
            host.export("initialize-runtime")
            used = host.export("jeet-memory-used")
            assert used < 1 << 20
        assert host.run("console.log(typeof left, typeof more)") == "undefined undefined\n"


def test_many_sources_compile_in_one_instance_without_growing_it(maker: Maker) -> None:
    with maker.instance() as host:
        source = "export const f = (a) => a + 1; // " + "x" * 10_000
        for _ in range(20):
            host.compile(source)
        size = host.memory.data_len(host.store)
        for _ in range(300):
            host.compile(source)
        assert host.memory.data_len(host.store) == size


def test_invocations_do_not_leak(maker: Maker) -> None:
    with maker.instance() as host:
        bytecode = host.compile("export function foo() { return [1, 2, { a: 'b'.repeat(1000) }] }")
        for _ in range(50):
            host.invoke(bytecode, "foo")
        host.export("jeet-gc")
        used = host.export("jeet-memory-used")
        for _ in range(500):
            host.invoke(bytecode, "foo")
        host.export("jeet-gc")
        assert host.export("jeet-memory-used") - used < 16 * 1024


def dynamic_module(bytecode: bytes, namespace: str) -> bytes:
    """A module as the javy CLI links it: imports of the namespace, bytecode in a passive segment, `_start`."""

    def number(value: int) -> bytes:
        out = bytearray()
        while True:
            value, low = value >> 7, value & 0x7F
            out.append(low | (0x80 if value else 0))
            if not value:
                return bytes(out)

    def signed(value: int) -> bytes:
        out = bytearray()
        while True:
            low, value = value & 0x7F, value >> 7
            done = (value == 0 and not low & 0x40) or (value == -1 and low & 0x40)
            out.append(low | (0 if done else 0x80))
            if done:
                return bytes(out)

    def text(value: str) -> bytes:
        return number(len(value.encode())) + value.encode()

    def part(kind: int, body: bytes) -> bytes:
        return bytes([kind]) + number(len(body)) + body

    def const(value: int) -> bytes:
        return b"\x41" + signed(value)

    i32 = b"\x7f"
    types = b"\x03" + b"\x60\x04" + i32 * 4 + b"\x01" + i32 + b"\x60\x05" + i32 * 5 + b"\x00" + b"\x60\x00\x00"
    imports = b"\x03" + b"".join(
        text(namespace) + text(name) + what
        for name, what in (("cabi_realloc", b"\x00\x00"), ("invoke", b"\x00\x01"), ("memory", b"\x02\x00\x00"))
    )
    size = len(bytecode)
    code = (
        b"\x01\x01" + i32 + const(0) + const(0) + const(1) + const(size) + b"\x10\x00\x22\x00"  # realloc, local.tee 0
        + const(0) + const(size) + b"\xfc\x08\x00\x00"  # memory.init
        + b"\x20\x00" + const(size) + const(0) + const(0) + const(0) + b"\x10\x01\x0b"  # invoke
    )  # fmt: skip
    return (
        b"\0asm\x01\0\0\0"
        + part(1, types)
        + part(2, imports)
        + part(3, b"\x01\x02")
        + part(7, b"\x01" + text("_start") + b"\x00\x02")
        + part(12, b"\x01")
        + part(10, b"\x01" + number(len(code)) + code)
        + part(11, b"\x01\x01" + number(size) + bytecode)
    )


def test_a_dynamically_linked_module_runs(any_maker: Maker) -> None:
    namespace = section(any_maker.path.read_bytes(), "import_namespace").decode()
    with any_maker.instance() as host:
        bytecode = host.compile("console.log('linked')")
    with any_maker.instance() as host:
        module = wasmtime.Module(any_maker.engine, dynamic_module(bytecode, namespace))
        linker = wasmtime.Linker(any_maker.engine)
        for name in ("cabi_realloc", "invoke", "memory"):
            linker.define(host.store, namespace, name, host.exports[name])
        start = linker.instantiate(host.store, module).exports(host.store)["_start"]
        assert isinstance(start, wasmtime.Func)
        start(host.store)
        assert host.stdout == "linked\n"


def test_bytecode_of_anything_but_a_module_is_refused(maker: Maker) -> None:
    for junk in (b"", b"\0", b"junk" * 100):

        def refused(host: Host, junk: bytes = junk) -> None:
            pointer = host.put(junk or b" ")
            assert host.export("jeet-eval-module", pointer, len(junk)) == 1
            assert "Error" in host.error

        with maker.instance() as host:
            refused(host)
