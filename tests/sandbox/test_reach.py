"""What a guest can reach: the imports of the plugin and of functions, what WASI answers, and every global by name."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
import wasmtime

from jeet.sandbox import wasi
from jeet.sandbox.engine import Engine
from jeet.sandbox.plugin import BUILT_IN, Plugin

from .conftest import Local

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"

PLUGIN_IMPORTS = {"clock_time_get", "fd_close", "fd_fdstat_get", "fd_read", "fd_seek", "fd_write"}
"""what the built-in plugin may ask of its host; a name more here is a wall less"""

ANSWERED = {
    "fd_read": "bytes of the call, from 0 only",
    "fd_write": "bytes to the host, to 1 and 2 only",
    "clock_time_get": "the event's time, and monotonic time",
    "clock_res_get": "a millisecond",
    "random_get": "random bytes",
    "args_sizes_get": "none",
    "args_get": "none",
    "environ_sizes_get": "none",
    "environ_get": "none",
    "fd_fdstat_get": "pipes 0 to 2",
    "fd_prestat_get": "no folder",
    "fd_close": "nothing",
    "fd_seek": "refused",
    "sched_yield": "nothing",
}
"""every WASI call that does not trap or fail with ENOSYS, and what it tells"""

LIST_GLOBALS = """
stream.map(() => {
  const names = new Set();
  for (let at = globalThis; at && at !== Object.prototype; at = Object.getPrototypeOf(at))
    for (const name of Reflect.ownKeys(at)) names.add(String(name));
  return [...names].sort();
});
"""


def documented(heading: str) -> set[str]:
    """The words set as code in one section of docs/security.md."""
    section = SECURITY.read_text(encoding="utf-8").split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]
    return set(re.findall(r"`([^`\s]+)`", section))


def test_the_built_in_plugin_imports_these_functions_and_nothing_else(engine: Engine) -> None:
    imports = engine.module(BUILT_IN.read_bytes()).imports
    assert {each.module for each in imports} == {wasi.MODULE}
    assert {each.name for each in imports} == PLUGIN_IMPORTS
    assert all(isinstance(each.type, wasmtime.FuncType) for each in imports), "no memory, table or global of the host's"


def test_the_host_answers_these_calls_and_no_other() -> None:
    assert wasi._FUNCTIONS.keys() == ANSWERED.keys()


def test_a_function_as_a_module_imports_memory_and_two_functions_of_the_plugin(plugin: Plugin) -> None:
    module = wasmtime.Module(wasmtime.Engine(), plugin.module_bytes(plugin.compile("stream.map(e => e)", "f.js")))
    assert {(each.module, each.name) for each in module.imports} == {
        (plugin.namespace, name) for name in ("memory", "cabi_realloc", "invoke")
    }


def test_every_global_of_user_code_is_documented(local: Local, plugin: Plugin) -> None:
    if not plugin.has_extras:
        pytest.skip("the list is the built-in plugin's")
    (names,) = local(LIST_GLOBALS).feed([{}]).values()
    assert set(names) == documented("Globals")


@pytest.mark.parametrize(
    "name",
    [
        *("Javy", "std", "os", "process", "require", "module", "exports", "fetch", "XMLHttpRequest", "WebSocket"),
        *(
            "WebAssembly",
            "Worker",
            "WeakRef",
            "FinalizationRegistry",
            "Atomics",
            "setTimeout",
            "setInterval",
            "scriptArgs",
            "print",
        ),
        *("load", "gc", "bjson", "Deno", "Bun", "navigator", "performance", "document", "window"),
    ],
)
def test_a_door_that_others_have_is_not_there(local: Local, name: str) -> None:
    function = local(f"stream.map(() => [typeof {name}, typeof globalThis['{name}'], typeof (0, eval)('{name}')]);")
    assert function.feed([{}]).values() in [[["undefined"] * 3], []]


class _Memory:
    """A guest that asks WASI and looks at what came back."""

    def __init__(self) -> None:
        self.bytes = bytearray(1024)
        self.taken: list[int] = []
        self.given: list[tuple[int, bytes]] = []

    def memory_read(self, pointer: int, length: int) -> bytes:
        return bytes(self.bytes[pointer : pointer + length])

    def memory_write(self, pointer: int, data: bytes) -> None:
        self.bytes[pointer : pointer + len(data)] = data

    def take_input(self, most: int) -> bytes:
        self.taken.append(most)
        return b""

    def give_output(self, fd: int, data: bytes, _pointer: int) -> bool:
        self.given.append((fd, data))
        return True

    def now_ns(self) -> int:
        return 7


def test_no_call_tells_anything_of_the_hosts_environment() -> None:
    for name in ("args", "environ"):
        guest = _Memory()
        guest.bytes[:8] = b"\xff" * 8
        assert wasi._FUNCTIONS[f"{name}_sizes_get"](guest, 0, 4) == wasi.SUCCESS
        assert struct.unpack("<II", guest.bytes[:8]) == (0, 0)
        before = bytes(guest.bytes)
        assert wasi._FUNCTIONS[f"{name}_get"](guest, 0, 4) == wasi.SUCCESS
        assert bytes(guest.bytes) == before
    guest = _Memory()
    assert wasi._FUNCTIONS["clock_time_get"](guest, 0, 0, 0) == wasi.SUCCESS
    assert struct.unpack("<Q", guest.bytes[:8]) == (7,)


@pytest.mark.parametrize("fd", [-1, 1, 2, 3, 4, 100, 2**31 - 1])
def test_no_descriptor_but_the_call_itself_can_be_read(fd: int) -> None:
    guest = _Memory()
    guest.bytes[:8] = struct.pack("<II", 64, 64)
    assert wasi._FUNCTIONS["fd_read"](guest, fd, 0, 1, 16) == wasi.BADF
    assert guest.taken == []


@pytest.mark.parametrize("fd", [-1, 0, 3, 4, 100])
def test_no_descriptor_but_the_two_outputs_can_be_written(fd: int) -> None:
    guest = _Memory()
    guest.bytes[:8] = struct.pack("<II", 64, 64)
    assert wasi._FUNCTIONS["fd_write"](guest, fd, 0, 1, 16) == wasi.BADF
    assert guest.given == []


@pytest.mark.parametrize("fd", [3, 4, 100])
def test_no_folder_and_no_file_is_open(fd: int) -> None:
    guest = _Memory()
    assert wasi._FUNCTIONS["fd_prestat_get"](guest, fd, 0) == wasi.BADF
    assert wasi._FUNCTIONS["fd_fdstat_get"](guest, fd, 0) == wasi.BADF


PROBE = """
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "env" "system" (func $system (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "open") (result i32)
    (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i64.const -1) (i64.const -1)
      (i32.const 0) (i32.const 0)))
  (func (export "accept") (result i32) (call $accept (i32.const 3) (i32.const 0) (i32.const 0)))
  (func (export "exit") (call $exit (i32.const 0)))
  (func (export "system") (result i32) (call $system (i32.const 0))))
"""


def test_what_a_plugin_asks_for_beyond_that_fails_or_traps() -> None:
    engine = wasmtime.Engine()
    module = wasmtime.Module(engine, wasmtime.wat2wasm(PROBE))
    linker = wasmtime.Linker(engine)
    wasi.define(linker, module)
    store = wasmtime.Store(engine)
    exports = linker.instantiate(store, module).exports(store)
    for name in ("open", "accept"):
        function = exports[name]
        assert isinstance(function, wasmtime.Func)
        assert function(store) == wasi.NOSYS
    for name in ("exit", "system"):
        function = exports[name]
        assert isinstance(function, wasmtime.Func)
        with pytest.raises((wasmtime.Trap, wasmtime.WasmtimeError)):
            function(store)
