"""The WASI preview 1 functions that a plugin sees: a channel to the host, a clock and random bytes, nothing else.

No files, no environment, no arguments. The functions are defined once a plugin and serve whichever machine runs on the
calling thread (one at a time). They never raise: what they refuse is an error number.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from typing import Protocol

import wasmtime
from wasmtime import FuncType, ValType

from jeet.sandbox.native import HostFunction

SUCCESS, BADF, FAULT, INVAL, IO, NOSYS, SPIPE = 0, 8, 21, 28, 29, 52, 70


class Guest(Protocol):
    """What the functions need of the machine that is running."""

    def memory_read(self, pointer: int, length: int) -> bytes: ...
    def memory_write(self, pointer: int, data: bytes) -> None: ...
    def take_input(self, most: int) -> bytes: ...
    def give_output(self, fd: int, data: bytes, pointer: int) -> bool: ...
    def now_ns(self) -> int: ...


class Current(threading.local):
    """The machine that runs on this thread."""

    guest: Guest | None = None


current = Current()

_MAX_VECTORS = 64


def _fd_read(guest: Guest, fd: int, vectors: int, count: int, result: int) -> int:
    if fd != 0:
        return BADF
    if not 0 <= count <= _MAX_VECTORS:
        return INVAL
    parts = struct.unpack(f"<{count * 2}I", guest.memory_read(vectors, count * 8))
    done = 0
    for pointer, length in zip(parts[::2], parts[1::2], strict=True):
        data = guest.take_input(length)
        guest.memory_write(pointer, data)
        done += len(data)
        if len(data) < length:
            break
    guest.memory_write(result, struct.pack("<I", done))
    return SUCCESS


def _fd_write(guest: Guest, fd: int, vectors: int, count: int, result: int) -> int:
    if fd not in (1, 2):
        return BADF
    if not 0 <= count <= _MAX_VECTORS:
        return INVAL
    parts = struct.unpack(f"<{count * 2}I", guest.memory_read(vectors, count * 8))
    done = 0
    for pointer, length in zip(parts[::2], parts[1::2], strict=True):
        if not guest.give_output(fd, guest.memory_read(pointer, length), pointer):
            return IO
        done += length
    guest.memory_write(result, struct.pack("<I", done))
    return SUCCESS


def _clock_time_get(guest: Guest, clock: int, _precision: int, result: int) -> int:
    now = guest.now_ns() if clock == 0 else time.monotonic_ns()
    guest.memory_write(result, struct.pack("<Q", max(0, now)))
    return SUCCESS


def _clock_res_get(guest: Guest, _clock: int, result: int) -> int:
    guest.memory_write(result, struct.pack("<Q", 1_000_000))
    return SUCCESS


def _random_get(guest: Guest, pointer: int, length: int) -> int:
    if not 0 <= length <= 65536:
        return INVAL
    guest.memory_write(pointer, os.urandom(length))
    return SUCCESS


def _two_zeros(guest: Guest, count: int, size: int) -> int:
    guest.memory_write(count, bytes(4))
    guest.memory_write(size, bytes(4))
    return SUCCESS


def _fd_fdstat_get(guest: Guest, fd: int, result: int) -> int:
    if not 0 <= fd <= 2:
        return BADF
    # A character device without rights to inherit: a pipe that is not a file.
    guest.memory_write(result, struct.pack("<BxHxxxxQQ", 2, 0, 0x42, 0))
    return SUCCESS


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "fd_read": _fd_read,
    "fd_write": _fd_write,
    "clock_time_get": _clock_time_get,
    "clock_res_get": _clock_res_get,
    "random_get": _random_get,
    "args_sizes_get": _two_zeros,
    "environ_sizes_get": _two_zeros,
    "args_get": lambda _guest, _pointers, _buffer: SUCCESS,
    "environ_get": lambda _guest, _pointers, _buffer: SUCCESS,
    "fd_fdstat_get": _fd_fdstat_get,
    "fd_prestat_get": lambda _guest, _fd, _result: BADF,
    "fd_close": lambda _guest, _fd: SUCCESS,
    "fd_seek": lambda _guest, _fd, _offset, _whence, _result: SPIPE,
    "sched_yield": lambda _guest: SUCCESS,
}

MODULE = "wasi_snapshot_preview1"


_made: dict[tuple[str, str], HostFunction] = {}
"""by name and type; kept, as linkers hold no reference that Python knows of"""


def define(linker: wasmtime.Linker, module: wasmtime.Module) -> None:
    """Define what `module` imports of WASI; its other imports become traps."""
    for wanted in module.imports:
        if wanted.module == MODULE and isinstance(wanted.type, FuncType) and wanted.name is not None:
            kind = wanted.type
            if kind.results == [ValType.i32()]:  # proc_exit and the like: a trap
                made = _made.setdefault((wanted.name, _spelled(kind)), HostFunction(kind, _host(wanted.name), FAULT))
                made.define(linker, MODULE, wanted.name, kind)
    linker.define_unknown_imports_as_traps(module)


def _host(name: str) -> Callable[..., int]:
    function = _FUNCTIONS.get(name)

    def call(*arguments: int) -> int:
        guest = current.guest
        return NOSYS if function is None or guest is None else function(guest, *arguments)

    return call


def _spelled(kind: FuncType) -> str:
    return " ".join(map(str, kind.params))
