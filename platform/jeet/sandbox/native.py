"""What wasmtime's Python binding does too slowly for each batch: memory, deadlines, calls and host functions.

Promise: only a call into a guest gives Python's lock away. A call through ctypes' CDLL does so each time, however short
it is, and whoever gave the lock away may wait for a switch interval (5 ms) to get it back while another thread
computes. So what takes nanoseconds goes through PyDLL, on the library that the binding has loaded. What Python code
raises while a guest calls it (Ctrl-C, say) stops the guest and is raised again by the call into the guest.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import NoReturn

import wasmtime
from wasmtime import FuncType, ValType
from wasmtime import _ffi as ffi

_VALUE = 16
"""bytes of a wasmtime_val_raw_t"""
_I32 = 0xFFFFFFFF

_process = ctypes.PyDLL(None)
_brief = ctypes.PyDLL(str(ffi.filename))
_memory_data = _brief.wasmtime_memory_data
_memory_data.argtypes, _memory_data.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
_memory_size = _brief.wasmtime_memory_data_size
_memory_size.argtypes, _memory_size.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_size_t
_copy_type = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
_copy = _copy_type(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)  # ctypes.memmove itself gives the lock away
_set_deadline = _brief.wasmtime_context_set_epoch_deadline
_set_deadline.argtypes, _set_deadline.restype = [ctypes.c_void_p, ctypes.c_uint64], None
_increment_epoch = _brief.wasmtime_engine_increment_epoch
_increment_epoch.argtypes, _increment_epoch.restype = [ctypes.c_void_p], None
_error_new = _brief.wasmtime_error_new
_error_new.argtypes, _error_new.restype = [ctypes.c_char_p], ctypes.c_void_p

_HOST_CALL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_define_function = _brief.wasmtime_linker_define_func_unchecked
_NAME = (ctypes.c_char_p, ctypes.c_size_t)
_define_function.argtypes = [
    ctypes.c_void_p, *_NAME, *_NAME, ctypes.c_void_p, _HOST_CALL, ctypes.c_void_p, ctypes.c_void_p
]  # fmt: skip
_define_function.restype = ctypes.POINTER(ffi.wasmtime_error_t)

_ON_TICK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_set_on_tick = _brief.wasmtime_store_epoch_deadline_callback
_set_on_tick.argtypes, _set_on_tick.restype = [ctypes.c_void_p, _ON_TICK, ctypes.c_void_p, ctypes.c_void_p], None

_guest_call = ctypes.CDLL(str(ffi.filename)).wasmtime_func_call_unchecked
_guest_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_guest_call.restype = ctypes.c_void_p


def stack_bytes() -> int | None:
    """How large this thread's stack is, or may become; None where the system does not tell."""
    try:
        describe, measure = _process.pthread_getattr_np, _process.pthread_attr_getstack
    except AttributeError:
        return None
    attributes = ctypes.create_string_buffer(256)  # a pthread_attr_t has 56 bytes, or some more
    start, size = ctypes.c_void_p(), ctypes.c_size_t()
    if describe(ctypes.c_void_p(threading.get_ident()), attributes) != 0:
        return None
    try:
        return None if measure(attributes, ctypes.byref(start), ctypes.byref(size)) != 0 else size.value
    finally:
        _process.pthread_attr_destroy(attributes)


def tick(engine: wasmtime.Engine) -> None:
    """Move the engine's epoch on."""
    _increment_epoch(engine.ptr())


class _Raised(threading.local):
    """What Python code that this thread's guest called has raised, on its way to the call into the guest."""

    error: BaseException | None = None


_raised = _Raised()


class Context:
    """A store, as native calls name it. Not to be used once the store was closed."""

    def __init__(self, store: wasmtime.Store) -> None:
        self._kept = store
        self.address = ctypes.cast(store._context(), ctypes.c_void_p).value

    def set_deadline(self, ticks: int) -> None:
        """Have the guest look at its budgets after so many ticks of the engine."""
        _set_deadline(self.address, ticks)


class Memory:
    """A guest's memory. Base and size are asked for each time, as the guest may have made it larger."""

    def __init__(self, context: Context, memory: wasmtime.Memory) -> None:
        self._context = context.address
        self._kept = (context, memory._memory)
        self._memory = ctypes.addressof(memory._memory)

    def size(self) -> int:
        """Bytes of it now."""
        return int(_memory_size(self._context, self._memory))

    def read(self, pointer: int, length: int) -> bytes:
        """A copy of that range; IndexError if it is not all inside."""
        pointer &= _I32
        if length < 0 or pointer + length > _memory_size(self._context, self._memory):
            raise IndexError("outside the guest's memory")
        return ctypes.string_at(_memory_data(self._context, self._memory) + pointer, length)

    def write(self, pointer: int, data: bytes) -> None:
        """Copy into that range; IndexError if it is not all inside."""
        pointer &= _I32
        if pointer + len(data) > _memory_size(self._context, self._memory):
            raise IndexError("outside the guest's memory")
        _copy(_memory_data(self._context, self._memory) + pointer, data, len(data))


class Function:
    """An exported function of one instance, ready to be called. Arguments and result are i32, as in all of Javy."""

    def __init__(self, store: wasmtime.Store, context: Context, function: wasmtime.Func) -> None:
        kind = function.type(store)
        if any(value != ValType.i32() for value in [*kind.params, *kind.results]) or len(kind.results) > 1:
            raise TypeError("it takes or returns something other than i32")
        self._context = context.address
        self._kept = (context, function._func)
        self._function = ctypes.addressof(function._func)
        self._takes = len(kind.params)
        self._returns = bool(kind.results)
        self._room = max(self._takes, len(kind.results), 1)
        self._values = ctypes.create_string_buffer(self._room * _VALUE)
        self._pack = struct.Struct("<" + "Q8x" * self._takes).pack_into
        self._signed = struct.Struct("<i").unpack_from
        self._trap = ctypes.POINTER(ffi.wasm_trap_t)()
        self._trap_at = ctypes.byref(self._trap)

    def __call__(self, *arguments: int) -> int:
        """What it returns, signed, or 0; a WasmtimeError or a Trap if it does not return."""
        self._pack(self._values, 0, *[argument & _I32 for argument in arguments])
        error = _guest_call(self._context, self._function, self._values, self._room, self._trap_at)
        if error is not None or self._trap:
            self._raise(error)
        return int(self._signed(self._values)[0]) if self._returns else 0

    def _raise(self, error: int | None) -> NoReturn:
        failure: Exception
        if error is not None:
            failure = wasmtime.WasmtimeError._from_ptr(ctypes.cast(error, ctypes.POINTER(ffi.wasmtime_error_t)))
        else:
            failure = wasmtime.Trap._from_ptr(self._trap)
            self._trap = ctypes.POINTER(ffi.wasm_trap_t)()
            self._trap_at = ctypes.byref(self._trap)
        raised, _raised.error = _raised.error, None
        raise failure if raised is None else raised


class OnTick:
    """What decides, at each tick of the engine, whether the guest that runs on this thread goes on."""

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        def call(_context: object, _data: object, ticks: int, kind: int) -> int | None:
            try:
                if goes_on():
                    ctypes.c_uint64.from_address(ticks).value = 1
                    ctypes.c_uint8.from_address(kind).value = 0  # WASMTIME_UPDATE_DEADLINE_CONTINUE
                    return None
            except BaseException as error:  # noqa: BLE001 - raised again where the guest was called
                _raised.error = error
            return int(_error_new(b"stopped"))

        self._call = _ON_TICK(call)

    def watch(self, store: wasmtime.Store) -> None:
        """Ask at each tick from the deadline of this store on; it must outlive the store."""
        _set_on_tick(store.ptr(), self._call, None, None)


class HostFunction:
    """A function that guests may import: integers in, an i32 out. It must outlive each linker that has it."""

    def __init__(self, kind: FuncType, function: Callable[..., int], on_error: int) -> None:
        """`function` may raise IndexError or struct.error: the guest gave it nonsense and gets `on_error`."""
        forms = ["i12x" if value == ValType.i32() else "q8x" for value in kind.params]
        room = ctypes.c_char * (max(len(forms), 1) * _VALUE)
        unpack = struct.Struct("<" + "".join(forms)).unpack_from
        answer = struct.Struct("<Q").pack_into

        def call(_data: object, _caller: object, values: int, _count: int) -> int | None:
            try:
                area = room.from_address(values)
                try:
                    result = function(*unpack(area))
                except (IndexError, struct.error):
                    result = on_error
                answer(area, 0, result & _I32)
            except BaseException as error:  # noqa: BLE001 - raised again where the guest was called
                _raised.error = error
                return ctypes.cast(wasmtime.Trap("stopped")._consume(), ctypes.c_void_p).value
            return None

        self._call = _HOST_CALL(call)

    def define(self, linker: wasmtime.Linker, module: str, name: str, kind: FuncType) -> None:
        """Let modules that this linker links import it under that name; the type is one of the linker's engine."""
        in_module, called = module.encode(), name.encode()
        error = _define_function(
            linker.ptr(), in_module, len(in_module), called, len(called), kind.ptr(), self._call, None, None
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
