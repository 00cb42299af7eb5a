"""The channel between host and driver as bytes: frames one way, messages the other, and a few shared words.

guest/wire.js holds the other end.
"""

from __future__ import annotations

import struct

FRAME_MARK = b"\x00J"
HEADER = struct.Struct("<2sBxI")

WORDS = 24
"""f64 words that the driver shares"""
PROGRESS, STOP, TIME, PROOF = range(4)

OP_SHARED, OP_READ, OP_SCAN, OP_COLLECTION, OP_RESULT, OP_ANSWER, OP_PROGRESS, OP_TIME = range(1, 9)
PROOF_FIRST = struct.pack("<d", 12345)
PROOF_SECOND = struct.pack("<d", 67890)


def message(sections: tuple[bytes, ...]) -> bytes:
    """Sections as one message to the driver: total, count, lengths, bytes (guest/wire.js reads it)."""
    count = len(sections)
    lengths = struct.pack(f"<{count + 1}I", count, *map(len, sections))
    body = b"".join(sections)
    return struct.pack("<I", len(lengths) + len(body)) + lengths + body


def split_sections(payload: bytes) -> list[bytes] | None:
    """The sections of a frame of the driver, or None if it is not well formed."""
    if len(payload) < 4:
        return None
    (count,) = struct.unpack_from("<I", payload)
    start = 4 + 4 * count
    if count > 4096 or start > len(payload):
        return None
    lengths = struct.unpack_from(f"<{count}I", payload, 4)
    if start + sum(lengths) != len(payload):
        return None
    sections = []
    for length in lengths:
        sections.append(payload[start : start + length])
        start += length
    return sections
