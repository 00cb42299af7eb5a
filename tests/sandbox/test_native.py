"""The native calls: as safe as the binding's own, without giving Python's lock away."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable

import pytest
import wasmtime

from jeet.sandbox.native import Context, Function, HostFunction, Memory, OnTick, tick

GUEST = """
(module
  (import "host" "sum" (func $sum (param i32 i64) (result i32)))
  (memory (export "memory") 1 3)
  (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "ask") (param i32) (result i32) (call $sum (local.get 0) (i64.const -7)))
  (func (export "grow") (drop (memory.grow (i32.const 1))))
  (func (export "trap") unreachable)
  (func (export "spin") (loop (br 0)))
  (func (export "wide") (param i64))
)"""

Made = tuple[Context, dict[str, wasmtime.Func], Memory, wasmtime.Store]
Make = Callable[..., Made]


@pytest.fixture
def make() -> Make:
    kept: list[object] = []

    def made(host: Callable[..., int] = lambda _a, _b: 0) -> Made:
        config = wasmtime.Config()
        config.epoch_interruption = True
        engine = wasmtime.Engine(config)
        module = wasmtime.Module(engine, GUEST)
        kind = module.imports[0].type
        assert isinstance(kind, wasmtime.FuncType)
        function = HostFunction(kind, host, -1)
        linker = wasmtime.Linker(engine)
        function.define(linker, "host", "sum", kind)
        kept.extend([function, linker])
        store = wasmtime.Store(engine)
        context = Context(store)
        context.set_deadline(1)
        exports = linker.instantiate(store, module).exports(store)
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        functions = {name: item for name, item in exports.items() if isinstance(item, wasmtime.Func)}
        return context, functions, Memory(context, memory), store

    return made


def test_arguments_and_results_are_passed_whole(make: Make) -> None:
    context, functions, _, store = make()
    add = Function(store, context, functions["add"])
    assert add(2, 3) == 5
    assert add(0x7FFFFFFF, 1) == -0x80000000
    assert add(-1, -1) == -2
    assert add(0xFFFFFFFF, 0) == -1


def test_a_host_function_gets_signed_integers_of_either_width(make: Make) -> None:
    seen: list[tuple[int, int]] = []

    def host(first: int, second: int) -> int:
        seen.append((first, second))
        return 41

    context, functions, _, store = make(host)
    assert Function(store, context, functions["ask"])(-3) == 41
    assert seen == [(-3, -7)]


def test_nonsense_from_the_guest_is_answered_with_an_error_number(make: Make) -> None:
    def host(_first: int, _second: int) -> int:
        raise IndexError("outside")

    context, functions, _, store = make(host)
    assert Function(store, context, functions["ask"])(1) == -1


def test_what_a_host_function_raises_comes_out_of_the_call(make: Make) -> None:
    def host(_first: int, _second: int) -> int:
        raise KeyboardInterrupt

    context, functions, _, store = make(host)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            Function(store, context, functions["ask"])(1)
    assert Function(store, context, functions["add"])(1, 1) == 2


def test_each_tick_asks_whether_to_go_on(make: Make) -> None:
    context, functions, _, store = make()
    asked: list[int] = []
    stop = threading.Event()

    def ticking() -> None:
        while not stop.wait(0.001):
            tick(store.engine)

    def goes_on() -> bool:
        asked.append(1)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return True

    watch = OnTick(goes_on)
    watch.watch(store)
    ticker = threading.Thread(target=ticking)
    ticker.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            Function(store, context, functions["spin"])()
    finally:
        stop.set()
        ticker.join()
    assert len(asked) == 5
    no_longer = OnTick(lambda: False)
    context.set_deadline(0)
    no_longer.watch(store)
    with pytest.raises(wasmtime.WasmtimeError, match="stopped"):
        Function(store, context, functions["spin"])()


def test_memory_outside_the_guests_is_not_touched(make: Make) -> None:
    context, functions, memory, store = make()
    assert memory.size() == 65536
    memory.write(65530, b"abcdef")
    assert memory.read(65530, 6) == b"abcdef"
    for pointer, length in [(65531, 6), (65536, 1), (-1, 1), (0, -1), (0xFFFFFFFF, 2)]:
        with pytest.raises(IndexError):
            memory.read(pointer, length)
    for pointer in (65535, 65536, -1):
        with pytest.raises(IndexError):
            memory.write(pointer, b"xy")
    Function(store, context, functions["grow"])()
    assert memory.size() == 131072
    memory.write(131070, b"xy")
    assert memory.read(65530, 6) == b"abcdef"


def test_a_trap_is_raised_each_time_and_the_instance_can_be_called_again(make: Make) -> None:
    context, functions, _, store = make()
    trap, add = Function(store, context, functions["trap"]), Function(store, context, functions["add"])
    for _ in range(3):
        with pytest.raises(wasmtime.Trap) as raised:
            trap()
        assert raised.value.trap_code is wasmtime.TrapCode.UNREACHABLE
        gc.collect()
    assert add(1, 1) == 2


def test_a_deadline_ends_a_loop(make: Make) -> None:
    context, functions, _, store = make()
    context.set_deadline(0)
    with pytest.raises(wasmtime.Trap) as raised:
        Function(store, context, functions["spin"])()
    assert raised.value.trap_code is wasmtime.TrapCode.INTERRUPT


def test_only_functions_of_i32_can_be_called(make: Make) -> None:
    context, functions, _, store = make()
    with pytest.raises(TypeError):
        Function(store, context, functions["wide"])


def test_short_calls_keep_pythons_lock(make: Make) -> None:
    context, _, memory, _ = make()
    turns: list[int] = []
    ready, stop = threading.Event(), threading.Event()

    def other() -> None:
        ready.set()
        while not stop.is_set():
            turns.append(1)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    sys.setswitchinterval(1)  # from here on the lock changes hands only where it is given away, or after a second
    try:
        time.sleep(0)  # the other may have asked for it already: let it have its turn, of a second
        before = len(turns)
        for _ in range(1000):
            memory.write(0, b"12345678")
            assert memory.read(0, 8) == b"12345678"
            context.set_deadline(1)
        assert len(turns) == before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
