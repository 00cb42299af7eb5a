"""Just enough of the WebAssembly binary format to look into a plugin."""

from __future__ import annotations

from collections.abc import Iterator

MAGIC = b"\0asm\1\0\0\0"


def u32(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and where it ends; IndexError past the end of the data."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result, at


def sections(wasm: bytes) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each section."""
    at = len(MAGIC)
    while at < len(wasm):
        number = wasm[at]
        size, start = u32(wasm, at + 1)
        yield number, start, start + size
        at = start + size


def custom_section(wasm: bytes, name: str) -> bytes | None:
    """What the custom section of this name holds."""
    for number, start, end in sections(wasm):
        if number == 0:
            length, at = u32(wasm, start)
            if wasm[at : at + length] == name.encode():
                return wasm[at + length : end]
    return None


def mutable_globals(wasm: bytes) -> int | None:
    """How many mutable globals the module defines; None if their initial values are not what compilers write."""
    for number, start, _end in sections(wasm):
        if number != 6:
            continue
        count, at = u32(wasm, start)
        mutable = 0
        for _ in range(count):
            mutable += wasm[at + 1]
            if wasm[at + 2] not in (0x41, 0x42):  # i32.const, i64.const
                return None
            at += 3
            while wasm[at] & 0x80:
                at += 1
            if wasm[at + 1] != 0x0B:
                return None
            at += 2
        return mutable
    return 0
