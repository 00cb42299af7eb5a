"""One wasmtime engine a process: compiled plugins, cached on disk, and the clock that bounds guests.

Promise: native code is loaded only from a directory of ours that nobody else may enter, under a name made from the
wasmtime version, the configuration and the hash of the wasm. Without such a directory each process compiles anew.
Time limits use epochs: a thread moves the epoch on each tick while any guest runs, and at each tick the guest's own
thread looks at its budgets (machine.py).
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import wasmtime

from jeet.errors import PluginError
from jeet.sandbox import native
from jeet.sandbox.schema_process import SchemaProcess

if TYPE_CHECKING:
    from jeet.sandbox.plugin import Plugin

log = logging.getLogger(__name__)

# Each tick makes a running guest's thread take Python's lock once: often enough for the budgets, and no oftener.
TICK_S = 0.02
_IDLE_TICKS = 100
# Above what QuickJS's own limit (256 KiB of its stack in the plugins seen) needs of native stack, and well below what a
# thread has: deep recursion is then an error in JavaScript, not a trap.
WASM_STACK_BYTES = 2 * 1024 * 1024
LEAST_STACK_BYTES = WASM_STACK_BYTES + 1024 * 1024
"""what a thread must have for a guest, which takes up to WASM_STACK_BYTES of it, or recursion would end the process"""
THREAD_STACK_BYTES = 16 * 1024 * 1024
_CONFIGURATION = f"epochs stack={WASM_STACK_BYTES}"


def make_room_for_guests() -> None:
    """Give threads that start from now on the stack that guests need, whatever this process's own limit is.

    Without a word glibc takes that limit for them, and 2 MiB if there is none.
    """
    threading.stack_size(max(THREAD_STACK_BYTES, threading.stack_size()))


class Engine:
    """Compiles wasm and keeps it in `cache_dir`, if there is one; close() stops the ticking thread."""

    def __init__(self, cache_dir: Path | None) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.max_wasm_stack = WASM_STACK_BYTES
        self.wasm = wasmtime.Engine(config)
        self._cache_dir = None if cache_dir is None else _private_directory(cache_dir)
        self._modules: dict[str, wasmtime.Module] = {}
        self._lock = threading.Lock()
        self._plugins: dict[Path, Plugin] = {}
        self.schemas = SchemaProcess()
        """where events are checked against input schemas; runs once it is used"""
        self._plugin_lock = threading.Lock()
        self._running = 0
        self._wake = threading.Condition()
        self._parked = False
        self._closed = False
        self._ticker = threading.Thread(target=self._tick, name="jeet-epoch", daemon=True)
        self._ticker.start()

    def close(self) -> None:
        """Stop the ticking thread. No guest may run any more."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._ticker.join()
        self.schemas.close()

    def load_plugin(self, path: Path | None = None) -> Plugin:
        """The plugin at this path, or the built-in one; loaded once."""
        from jeet.sandbox.plugin import BUILT_IN, Plugin

        wanted = path or BUILT_IN
        with self._plugin_lock:
            known = self._plugins.get(wanted)
            if known is None:
                known = self._plugins[wanted] = Plugin(self, wanted)
            return known

    def enter(self) -> None:
        """A guest is about to run: epochs move from now on, until leave()."""
        with self._wake:
            self._running += 1
            if self._parked:
                self._wake.notify()

    def leave(self) -> None:
        """The guest has come back."""
        with self._wake:
            self._running -= 1

    def _tick(self) -> None:
        idle = 0
        while True:
            time.sleep(TICK_S)
            with self._wake:
                idle = 0 if self._running else idle + 1
                # Parks only after a while, as waking up a thread costs more than many ticks.
                if idle > _IDLE_TICKS:
                    self._parked = True
                    while self._running == 0 and not self._closed:
                        self._wake.wait()
                    self._parked = False
                    idle = 0
                if self._closed:
                    return
            native.tick(self.wasm)

    def module(self, wasm: bytes) -> wasmtime.Module:
        """The compiled module, from memory, from disk, or made now (about a second)."""
        digest = hashlib.sha256(wasm).hexdigest()
        with self._lock:
            known = self._modules.get(digest)
            if known is None:
                known = self._modules[digest] = self._load(digest) or self._compile(digest, wasm)
            return known

    def cached(self, kind: str, digest: str) -> bytes | None:
        """A small piece derived from something with this digest, if it was kept."""
        path = self._path(kind, digest)
        if path is None or not _is_ours(path):
            return None
        try:
            return path.read_bytes()
        except OSError:
            return None

    def keep(self, kind: str, digest: str, data: bytes) -> None:
        """Keep a small piece for the next process; failing to is no error."""
        path = self._path(kind, digest)
        if path is not None:
            _write_whole(path, data)

    def _path(self, kind: str, digest: str) -> Path | None:
        if self._cache_dir is None:
            return None
        tag = f"{version('wasmtime')} {_CONFIGURATION} {os.uname().machine} {digest}"
        return self._cache_dir / f"{hashlib.sha256(tag.encode()).hexdigest()[:40]}.{kind}"

    def _load(self, digest: str) -> wasmtime.Module | None:
        path = self._path("cwasm", digest)
        if path is None or not _is_ours(path):
            return None
        try:
            return wasmtime.Module.deserialize_file(self.wasm, str(path))
        except wasmtime.WasmtimeError as error:
            log.info("compiled plugin not usable, compiling again", extra={"path": str(path), "reason": str(error)})
            return None

    def _compile(self, digest: str, wasm: bytes) -> wasmtime.Module:
        try:
            module = wasmtime.Module(self.wasm, wasm)
        except wasmtime.WasmtimeError as error:
            raise PluginError(f"this wasm module cannot be compiled: {str(error).splitlines()[0]}") from error
        self.keep("cwasm", digest, bytes(module.serialize()))
        return module


def _private_directory(path: Path) -> Path | None:
    """The directory if it is ours and closed to others, made if it is missing; else None, with a log line."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:  # root's home of Jeet: the embedded server's user has to pass through
                path.parent.chmod(0o711)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        log.info("no cache of compiled plugins: each process compiles them anew", extra={"reason": str(error)})
        return None
    if found.st_uid != os.geteuid() or path.is_symlink():
        log.warning("the cache of compiled plugins belongs to another user and is not used", extra={"path": str(path)})
        return None
    if found.st_mode & 0o077:
        path.chmod(0o700)
        # What others may have put there while it was open is not ours to run.
        for old in path.iterdir():
            with suppress(OSError):
                old.unlink()
    return path


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not path.is_symlink() and not found.st_mode & 0o022


def _write_whole(path: Path, data: bytes) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except OSError:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        log.info("cannot keep a compiled plugin", extra={"path": str(path), "reason": str(error)})
