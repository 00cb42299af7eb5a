"""A small host for Javy plugins: just enough wasmtime to test a plugin by its ABI, without jeet's own sandbox."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import wasmtime

import jeet.sandbox

PLUGIN = Path(jeet.sandbox.__file__).with_name("jeet-plugin.wasm")  # of the checkout, or of an installed copy


@dataclass
class Host:
    """One instance of a plugin, its standard streams in files."""

    store: wasmtime.Store
    exports: wasmtime._instance.InstanceExports
    folder: Path
    memory: wasmtime.Memory = field(init=False)

    def __post_init__(self) -> None:
        memory = self.exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self.memory = memory

    def export(self, name: str, *arguments: int) -> int:
        function = self.exports[name]
        assert isinstance(function, wasmtime.Func)
        result = function(self.store, *arguments)
        return result if isinstance(result, int) else 0

    def put(self, data: bytes) -> int:
        pointer = self.export("cabi_realloc", 0, 0, 1, len(data)) & 0xFFFFFFFF
        self.memory.write(self.store, data, pointer)
        return pointer

    def get(self, pointer: int, size: int) -> bytes:
        pointer &= 0xFFFFFFFF
        return bytes(self.memory.read(self.store, pointer, pointer + size))

    def words(self, pointer: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.get(pointer, 4 * count))

    def compile(self, source: str, name: str | None = None) -> bytes:
        """The bytecode, or a SyntaxError with the plugin's message."""
        text = source.encode()
        if name is None:
            area = self.export("compile-src", self.put(text), len(text))
        else:
            area = self.export("jeet-compile", self.put(text), len(text), self.put(name.encode()), len(name.encode()))
        failed, pointer, size = self.words(area, 3)
        content = self.get(pointer, size)
        if failed:
            raise SyntaxError(content.decode())
        return content

    def invoke(self, bytecode: bytes, name: str | None = None) -> None:
        encoded = (name or "").encode()
        has_name = name is not None
        self.export(
            "invoke",
            self.put(bytecode),
            len(bytecode),
            int(has_name),
            self.put(encoded) if has_name else 0,
            len(encoded),
        )

    def run(self, source: str) -> str:
        """Evaluate a module and return all that it has written to stdout so far."""
        self.invoke(self.compile(source))
        return self.stdout

    def evaluate(self, source: str, name: str = "user.js") -> int:
        """jeet-eval-module; the status."""
        bytecode = self.compile(source, name)
        return self.export("jeet-eval-module", self.put(bytecode), len(bytecode))

    def call(self, name: str) -> int:
        """jeet-call; the status."""
        encoded = name.encode()
        pointer = self.put(encoded)
        status = self.export("jeet-call", pointer, len(encoded))
        self.export("cabi_realloc", pointer, len(encoded), 1, 1)
        return status

    @property
    def error(self) -> str:
        pointer, size = self.words(self.export("jeet-error"), 2)
        return self.get(pointer, size).decode(errors="surrogateescape")

    @property
    def stdout(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def stderr(self) -> str:
        return (self.folder / "err").read_text()


class Maker:
    """Compiles a plugin once and makes instances of it."""

    def __init__(self, path: Path = PLUGIN, max_wasm_stack: int | None = None, epochs: bool = False) -> None:
        config = wasmtime.Config()
        config.cache = True
        if max_wasm_stack is not None:
            config.max_wasm_stack = max_wasm_stack
        config.epoch_interruption = epochs
        self.path = path
        self.engine = wasmtime.Engine(config)
        self.module = wasmtime.Module.from_file(self.engine, str(path))

    @contextmanager
    def instance(self, stdin: bytes = b"", memory_bytes: int = -1, ticks: int | None = None) -> Iterator[Host]:
        with tempfile.TemporaryDirectory(prefix="jeet-plugin-test-") as name:
            folder = Path(name)
            (folder / "in").write_bytes(stdin)
            for stream in ("out", "err"):
                (folder / stream).touch()
            wasi = wasmtime.WasiConfig()
            wasi.stdin_file = str(folder / "in")
            wasi.stdout_file = str(folder / "out")
            wasi.stderr_file = str(folder / "err")
            store = wasmtime.Store(self.engine)
            store.set_wasi(wasi)
            store.set_limits(memory_size=memory_bytes)
            if ticks is not None:
                store.set_epoch_deadline(ticks)
            linker = wasmtime.Linker(self.engine)
            linker.define_wasi()
            host = Host(store, linker.instantiate(store, self.module).exports(store), folder)
            host.export("initialize-runtime")
            yield host
            store.close()
