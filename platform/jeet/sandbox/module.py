"""The driver's source, and the dynamically linked Javy module: what `javy build -C dynamic` writes, written and read.

Such a module imports `invoke`, `cabi_realloc` and `memory` from the plugin's namespace, holds the bytecode in a passive
data segment and exports `_start`. Read from outside it is only trusted as a box around bytecode: any other import,
any active segment, any start function and it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jeet.errors import DeployError

DRIVER_PARTS = (
    "intrinsics",
    "wire",
    "strict",
    "table",
    "collection",
    "entries",
    "cache",
    "migrate",
    "state",
    "random",
    "outputs",
    "context",
    "console",
    "options",
    "time",
    "timers",
    "graph",
    "keyed",
    "window",
    "join",
    "steps",
    "batch",
    "boot",
)
# The plugin calls every module function.mjs. The driver's lines start beyond any line of a user's file, so that a stack
# trace tells the two apart (graph.js uses the same number).
DRIVER_FIRST_LINE = 1_000_000


@cache
def driver_source() -> str:
    """All of guest/*.js as one module."""
    folder = files("jeet.sandbox") / "guest"
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in DRIVER_PARTS]
    return "\n" * DRIVER_FIRST_LINE + "\n".join(parts)


CALL_SOURCE = "\n" * DRIVER_FIRST_LINE + "__jeet();"


@dataclass(frozen=True)
class _Reader:
    data: bytes
    filename: str

    def fail(self, what: str) -> DeployError:
        return DeployError(f"{self.filename}: {what}")

    def u32(self, at: int) -> tuple[int, int]:
        result = shift = 0
        while True:
            if at >= len(self.data) or shift > 35:
                raise self.fail("this is not a whole wasm module")
            byte = self.data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result, at

    def text(self, at: int) -> tuple[str, int]:
        length, at = self.u32(at)
        return self.data[at : at + length].decode("utf-8", "replace"), at + length


_ALLOWED_IMPORTS = {"memory": 2, "cabi_realloc": 0, "invoke": 0}


def read_bytecode(wasm: bytes, namespace: str, filename: str) -> bytes:
    """The bytecode inside a dynamically linked module; DeployError if it is anything else or for another plugin."""
    reader = _Reader(wasm, filename)
    if wasm[:8] != b"\0asm\1\0\0\0":
        raise reader.fail("this is not a WebAssembly module; deploy the .js, or what `javy build -C dynamic` writes")
    at = 8
    segments: list[bytes] = []
    imports: set[str] = set()
    while at < len(wasm):
        section = wasm[at]
        size, body = reader.u32(at + 1)
        end = body + size
        if end > len(wasm):
            raise reader.fail("this is not a whole wasm module")
        if section == 2:
            imports = _read_imports(reader, body, namespace)
        elif section == 8:
            raise reader.fail("a start function is not allowed; build it with `javy build -C dynamic`")
        elif section == 11:
            segments = _read_segments(reader, body)
        at = end
    if not segments or "invoke" not in imports:
        raise reader.fail(
            "this module holds no bytecode for a Javy plugin; build it with `javy build -C dynamic -C plugin=…`,"
            " or deploy the .js"
        )
    return max(segments, key=len)


def _read_imports(reader: _Reader, at: int, namespace: str) -> set[str]:
    count, at = reader.u32(at)
    found: set[str] = set()
    for _ in range(count):
        module, at = reader.text(at)
        name, at = reader.text(at)
        kind = reader.data[at] if at < len(reader.data) else -1
        at += 1
        if _ALLOWED_IMPORTS.get(name) != kind:
            raise reader.fail(
                f"it imports {module}.{name}; only memory, cabi_realloc and invoke are allowed"
                " (build it with `javy build -C dynamic`)"
            )
        if module != namespace:
            raise reader.fail(
                f"it was built for the plugin {module!r}, but this Jeet runs {namespace!r}; build it with -C plugin=…"
                " of that one, or deploy the .js"
            )
        found.add(name)
        if kind == 0:
            _type, at = reader.u32(at)
        else:
            flags, at = reader.u32(at)
            _minimum, at = reader.u32(at)
            if flags & 1:
                _maximum, at = reader.u32(at)
    return found


def _read_segments(reader: _Reader, at: int) -> list[bytes]:
    count, at = reader.u32(at)
    segments = []
    for _ in range(count):
        flags, at = reader.u32(at)
        if flags != 1:
            raise reader.fail(
                "it writes into memory by itself (an active data segment); build it with `javy build -C dynamic`"
            )
        length, at = reader.u32(at)
        segments.append(reader.data[at : at + length])
        at += length
    return segments


def _leb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if value == 0:
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def _sleb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def _section(number: int, body: bytes) -> bytes:
    return bytes([number]) + _leb(len(body)) + body


def _vector(items: list[bytes]) -> bytes:
    return _leb(len(items)) + b"".join(items)


def _name(text: str) -> bytes:
    data = text.encode()
    return _leb(len(data)) + data


def write_dynamic_module(bytecode: bytes, namespace: str) -> bytes:
    """The module that `javy build -C dynamic` writes for this bytecode: `_start` copies it in and invokes it."""
    i32 = b"\x7f"
    realloc_type = b"\x60" + _vector([i32] * 4) + _vector([i32])
    invoke_type = b"\x60" + _vector([i32] * 5) + _vector([])
    start_type = b"\x60" + _vector([]) + _vector([])
    length = _sleb(len(bytecode))
    code = (
        _vector([_leb(1) + i32])  # local 0: where the bytecode lies
        + b"\x41\x00\x41\x00\x41\x01\x41" + length + b"\x10\x00\x22\x00"  # cabi_realloc(0, 0, 1, length) → local 0
        + b"\x41\x00\x41" + length + b"\xfc\x08\x00\x00"  # memory.init segment 0
        + b"\x20\x00\x41" + length + b"\x41\x00\x41\x00\x41\x00\x10\x01"  # invoke(bytecode, length, no name)
        + b"\x0b"
    )  # fmt: skip
    return (
        b"\0asm\1\0\0\0"
        + _section(1, _vector([realloc_type, invoke_type, start_type]))
        + _section(
            2,
            _vector(
                [
                    _name(namespace) + _name("cabi_realloc") + b"\x00\x00",
                    _name(namespace) + _name("invoke") + b"\x00\x01",
                    _name(namespace) + _name("memory") + b"\x02\x00\x00",
                ]
            ),
        )
        + _section(3, _vector([_leb(2)]))
        + _section(7, _vector([_name("_start") + b"\x00\x02"]))
        + _section(12, _leb(1))
        + _section(10, _vector([_leb(len(code)) + code]))
        + _section(11, _vector([b"\x01" + _leb(len(bytecode)) + bytecode]))
    )
