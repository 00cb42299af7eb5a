"""Plugins, modules and the cache of compiled code."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import wasmtime

from jeet.errors import DeployError, PluginError
from jeet.sandbox.call import InstanceSpec, OutputStream
from jeet.sandbox.engine import Engine
from jeet.sandbox.module import read_bytecode, write_dynamic_module
from jeet.sandbox.plugin import BUILT_IN, Compiled, Plugin
from jeet.sandbox.snapshot import keeps_state_in_memory
from jeet.testing import LocalFunction, MemoryState

from .conftest import TOTALS, batch_of, values
from .stream_io import without_event_loop

SPEC = InstanceSpec("f", 1, 0, (OutputStream("s"),), slice_ms=60_000)


def test_a_module_is_the_dynamically_linked_form_of_javy(plugin: Plugin, engine: Engine) -> None:
    compiled = plugin.compile("stream.map(e => e)", "f.js")
    module = wasmtime.Module(engine.wasm, plugin.module_bytes(compiled))
    assert {(imported.module, imported.name) for imported in module.imports} == {
        (plugin.namespace, name) for name in ("memory", "cabi_realloc", "invoke")
    }
    assert [exported.name for exported in module.exports] == ["_start"]


def test_a_module_runs_by_itself_when_linked_to_its_plugin(plugin: Plugin, engine: Engine) -> None:
    source = "const b = new TextEncoder().encode('it ran'); const { writeSync } = Javy.IO; writeSync(2, b);"
    module = wasmtime.Module(engine.wasm, plugin.module_bytes(Compiled(plugin._compile(source), plugin.hash)))
    with plugin._machine(64 * 2**20) as machine, machine._entered(machine._budget):
        machine.store.set_limits(instances=2)
        linker = wasmtime.Linker(engine.wasm)
        for name in ("memory", "cabi_realloc", "invoke"):
            linker.define(machine.store, plugin.namespace, name, machine._exports[name])
        start = linker.instantiate(machine.store, module).exports(machine.store)["_start"]
        assert isinstance(start, wasmtime.Func)
        start(machine.store)
        assert machine.stderr() == "it ran"


def test_a_wasm_runs_like_its_source(plugin: Plugin) -> None:
    compiled = plugin.compile(TOTALS, "totals.js")
    again = plugin.from_wasm(plugin.module_bytes(compiled), "totals.wasm")
    assert again.bytecode == compiled.bytecode
    described = plugin.describe(again)
    assert [node["op"] for node in described.graph] == ["source", "map"]
    instance = plugin.instantiate(again, SPEC, MemoryState())
    try:
        result = instance.run(batch_of([{"userId": "a", "amount": 2}, {"userId": "a", "amount": 3}]))
        assert [value["currentTotal"] for value in values(result.outputs[0].values)] == [2, 5]
    finally:
        instance.close()


def test_exports_of_a_foreign_wasm_are_seen_where_the_plugin_shows_them(plugin: Plugin) -> None:
    source = "export const config = { sink: 'x' }; export default async e => ({ got: e });"
    wasm = write_dynamic_module(
        plugin._compile(source), plugin.namespace
    )  # as the javy command makes it: not rewritten
    compiled = plugin.from_wasm(wasm, "f.wasm")
    if not plugin.has_extras:
        with pytest.raises(DeployError, match=r"f\.wasm: .*does not show the exports of a \.wasm.*deploy the \.js"):
            plugin.describe(compiled)
        return
    assert plugin.describe(compiled).config == {"sink": "x"}
    instance = plugin.instantiate(compiled, SPEC, MemoryState())
    try:
        assert values(instance.run(batch_of([1])).outputs[0].values) == [{"got": 1}]
    finally:
        instance.close()


GOOD = write_dynamic_module(b"bytecode", "space")


@pytest.mark.parametrize(
    ("wasm", "error"),
    [
        (b"not wasm", "not a WebAssembly module"),
        (b"", "not a WebAssembly module"),
        (GOOD[:60], "not a whole wasm module"),
        (GOOD[:-3], "not a whole wasm module"),
        (b"\0asm\1\0\0\0", "holds no bytecode"),
        (write_dynamic_module(b"x", "other"), "built for the plugin 'other'"),
        (GOOD.replace(b"\x06invoke", b"\x06system"), "imports space.system"),
        (GOOD.replace(b"\x05space\x06memory\x02\x00\x00", b"\x05space\x06memory\x03\x7f\x00"), "imports space.memory"),
        (GOOD + b"\x08\x01\x00", "start function"),
        (GOOD.replace(b"\x01\x08bytecode", b"\x00\x41\x00\x0b\x08bytecode").replace(b"\x0b\x0b\x01\x00", b"\x0b\x0e\x01\x00"), "active data segment"),  # noqa: E501
        (wasmtime.wat2wasm('(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32))))'), "only memory, cabi_realloc and invoke"),  # noqa: E501
        (wasmtime.wat2wasm("(module (func (export \"_start\")))"), "holds no bytecode"),
    ],
)  # fmt: skip
def test_any_other_wasm_is_refused(wasm: bytes, error: str) -> None:
    assert read_bytecode(GOOD, "space", "f.wasm") == b"bytecode"
    with pytest.raises(DeployError) as refused:
        read_bytecode(wasm, "space", "f.wasm")
    assert error in str(refused.value)


def test_garbage_instead_of_bytecode_is_refused_not_run(plugin: Plugin) -> None:
    for garbage in (b"x", b"\x15" * 400, plugin.compile("stream.map(e => e)", "f.js").bytecode[:-40]):
        with pytest.raises(DeployError):
            plugin.describe(Compiled(garbage, plugin.hash, "f.wasm"))


def test_bytecode_of_another_plugin_is_refused(plugin: Plugin) -> None:
    compiled = plugin.compile("stream.map(e => e)", "f.js")
    with pytest.raises(PluginError, match="another plugin"):
        plugin.instantiate(Compiled(compiled.bytecode, "0" * 64), SPEC, MemoryState())


@pytest.mark.parametrize(
    ("wasm", "error"),
    [
        (b"no", "not a WebAssembly module"),
        (b"\0asm\1\0\0\0", "no section import_namespace"),
        (b"\0asm\1\0\0\0" + b"\x00\x14\x10import_namespaceabc", "does not export memory"),
    ],
)
def test_a_file_that_is_no_plugin_is_refused(engine: Engine, tmp_path: Path, wasm: bytes, error: str) -> None:
    path = tmp_path / "plugin.wasm"
    path.write_bytes(wasm)
    with pytest.raises(PluginError, match=error):
        engine.load_plugin(path)


def test_a_missing_plugin_names_the_setting(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="JEET_JAVY_PLUGIN"):
        engine.load_plugin(tmp_path / "nowhere.wasm")


# The cache of native code.

EMPTY = wasmtime.wat2wasm('(module (memory (export "memory") 1))')


def test_native_code_is_kept_in_a_directory_of_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    engine = Engine(folder)
    engine.module(EMPTY)
    engine.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = list(folder.iterdir())
    assert any(path.suffix == ".cwasm" for path in kept)
    before = {path.name: path.stat().st_mtime_ns for path in kept}
    again = Engine(folder)
    again.module(EMPTY)
    again.close()
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_code_in_a_directory_that_was_open_to_others_is_thrown_away(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    engine = Engine(folder)
    engine.module(EMPTY)
    engine.close()
    folder.chmod(0o777)
    Engine(folder).close()
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_damaged_code_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    engine = Engine(folder)
    engine.module(EMPTY)
    engine.close()
    for path in folder.glob("*.cwasm"):
        path.write_bytes(b"damaged")
    again = Engine(folder)
    assert again.module(EMPTY).exports
    again.close()


def test_without_a_place_for_the_cache_everything_still_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = Engine(tmp_path / "file" / "cache")
    assert engine.module(EMPTY).exports
    engine.keep("kind", "digest", b"data")
    assert engine.cached("kind", "digest") is None
    engine.close()


def test_the_built_in_plugin_lies_in_the_package() -> None:
    assert BUILT_IN.exists()


# Threads.


def test_instances_in_two_threads_do_not_mix(plugin: Plugin) -> None:
    source = "stream.map(e => { state.n.x = (state.n.x || 0) + e; if (e === 3) throw new Error('three'); return state.n.x; })"  # noqa: E501
    compiled = plugin.compile(source, "f.js")
    wrong: list[object] = []

    def work(start: int) -> None:
        try:
            state = MemoryState()
            instance = plugin.instantiate(compiled, SPEC, state)
            total = 0
            for number in range(30):
                batch = batch_of([start, 3, start], committed=number)
                result = instance.run(batch)
                state.apply(result, batch.now_ms)
                expected = [total + start, total + 2 * start]
                total += 2 * start
                if values(result.outputs[0].values) != expected or [f.index for f in result.faults] != [1]:
                    wrong.append((start, number, result))
            instance.close()
        except BaseException as error:  # noqa: BLE001  handed to the test's own thread
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in (1, 10, 100, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_dead_instance_is_not_used_again(plugin: Plugin) -> None:
    from jeet.errors import SandboxError
    from jeet.sandbox.call import GuestTrap
    from jeet.sandbox.limits import Limits

    spec = InstanceSpec("f", 1, 0, (OutputStream("s"),), limits=Limits(event_cpu_ms=30))
    instance = plugin.instantiate(plugin.compile("stream.map(e => { for (;;); })", "f.js"), spec, MemoryState())
    with pytest.raises(GuestTrap):
        instance.run(batch_of([1]))
    with pytest.raises(SandboxError, match="dead"):
        instance.run(batch_of([1]))
    instance.close()
    instance.close()


def test_an_instance_from_the_snapshot_is_like_one_started_from_nothing(engine: Engine, plugin: Plugin) -> None:
    assert plugin._snapshots
    slow = Plugin(engine, plugin.path)
    slow._snapshots = False
    source = "let calls = 0; stream.map(e => [++calls, e, Math.random(), typeof Javy, state.n.x ?? 0, Object.isFrozen(Array.prototype)])"  # noqa: E501
    results = []
    for made_by in (plugin, slow):
        instance = made_by.instantiate(made_by.compile(source, "f.js"), SPEC, MemoryState())
        result = instance.run(batch_of([1, 2], first=5))
        assert instance._machine.shares_words
        results.append((result.outputs, result.faults, result.state))
        instance.close()
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("wat", "whole"),
    [
        ("(module (memory 1))", True),
        ("(module (global (mut i32) (i32.const 300000)) (global i64 (i64.const -1)) (memory 1))", True),
        ("(module (global (mut i32) (i32.const 1)) (global (mut i32) (i32.const 2)))", False),
        ("(module (global (mut f64) (f64.const 1)))", False),
    ],
)
def test_only_plugins_whose_state_is_their_memory_are_kept_as_snapshots(wat: str, whole: bool) -> None:
    assert keeps_state_in_memory(wasmtime.wat2wasm(wat)) is whole


def test_a_plugin_without_an_event_loop_runs_all_but_promises(plugin: Plugin, engine: Engine, tmp_path: Path) -> None:
    path = None if plugin.has_extras else without_event_loop(plugin.path, tmp_path)
    if path is None:
        pytest.skip("this plugin's event loop cannot be switched off")
    silent = engine.load_plugin(path)
    assert not silent.runs_jobs
    with LocalFunction(
        "stream.map(e => { if (e === 2) Promise.resolve().then(() => 1); return e; })", plugin=silent
    ) as function:
        assert "promises do not run on this Javy plugin" in function.description.lints[0]
        run = function.feed([1, 2, 3])
        assert run.values() == [1, 3]
        assert "uses promises" in run.failures[0].error
    with LocalFunction("stream.map(e => e)", plugin=silent) as function:
        assert function.description.lints == ()
        assert function.feed([1, 2]).values() == [1, 2]
