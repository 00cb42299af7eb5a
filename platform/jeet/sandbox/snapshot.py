"""A machine with the driver already running, kept as the memory pages in which it differs from a fresh one.

Making an instance is then a fresh machine and a copy of these pages, instead of starting an engine and evaluating the
driver. Only plugins whose whole state is their memory qualify: one mutable global at most, which is the stack pointer
and between calls is where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from jeet.sandbox.machine import Machine
from jeet.sandbox.wasmfile import mutable_globals

_PAGE = 4096


@dataclass(frozen=True)
class Snapshot:
    """Pages to write (offset, bytes) into a fresh machine that has `size` bytes of memory."""

    size: int
    runs: tuple[tuple[int, bytes], ...]
    shared_at: int
    notes: dict[str, int]

    def restore(self, machine: Machine) -> None:
        """Make a fresh machine the one that was kept."""
        machine.grow(self.size)
        for offset, data in self.runs:
            machine.memory_write(offset, data)
        machine.shared_at = self.shared_at
        machine.notes = dict(self.notes)


def take(started: Machine, fresh: Machine) -> Snapshot:
    """The difference between a started machine and a fresh one of the same plugin."""
    size = started.memory_bytes()
    now = started.memory_read(0, size)
    then = fresh.memory_read(0, fresh.memory_bytes()).ljust(size, b"\0")
    runs: list[tuple[int, bytes]] = []
    start = -1
    for offset in range(0, size + _PAGE, _PAGE):
        differs = offset < size and now[offset : offset + _PAGE] != then[offset : offset + _PAGE]
        if differs and start < 0:
            start = offset
        elif not differs and start >= 0:
            runs.append((start, now[start:offset]))
            start = -1
    return Snapshot(size=size, runs=tuple(runs), shared_at=started.shared_at, notes=dict(started.notes))


def keeps_state_in_memory(wasm: bytes) -> bool:
    """Whether the module has at most one mutable global."""
    mutable = mutable_globals(wasm)
    return mutable is not None and mutable <= 1
