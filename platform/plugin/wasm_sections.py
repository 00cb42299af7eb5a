"""The little that is changed in the linked module: exports that must go, and the custom section that Javy reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator

_HEADER = b"\0asm\x01\0\0\0"
_EXPORTS = 7


def add_custom_section(wasm: bytes, name: str, content: bytes) -> bytes:
    """The module with a custom section at its end."""
    label = name.encode()
    body = _leb(len(label)) + label + content
    return wasm + b"\0" + _leb(len(body)) + body


def without_exports(wasm: bytes, names: Collection[str]) -> bytes:
    """The module without the exports of these names; what they named stays in it."""
    out = bytearray(_HEADER)
    for kind, body in _sections(wasm):
        kept = _drop(body, names) if kind == _EXPORTS else body
        out += bytes([kind]) + _leb(len(kept)) + kept
    return bytes(out)


def _sections(wasm: bytes) -> Iterator[tuple[int, bytes]]:
    if not wasm.startswith(_HEADER):
        raise ValueError("not a WebAssembly module")
    at = len(_HEADER)
    while at < len(wasm):
        size, start = _read_leb(wasm, at + 1)
        yield wasm[at], wasm[start : start + size]
        at = start + size


def _drop(exports: bytes, names: Collection[str]) -> bytes:
    count, at = _read_leb(exports, 0)
    kept: list[bytes] = []
    for _ in range(count):
        size, start = _read_leb(exports, at)
        _, end = _read_leb(exports, start + size + 1)
        if exports[start : start + size].decode() not in names:
            kept.append(exports[at:end])
        at = end
    return _leb(len(kept)) + b"".join(kept)


def _leb(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _read_leb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
