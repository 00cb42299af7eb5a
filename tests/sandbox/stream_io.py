"""Some plugins built with javy-plugin-api leave Javy.IO out by configuration, though its code is in them.

The test of a bit in the runtime's configuration is turned into a constant, so that such a plugin can stand in for one
that was configured with javy_stream_io(true).
"""

from __future__ import annotations

from pathlib import Path

# i32.load offset=20 (the configuration); i32.load8_u; i32.const 1; i32.and; if
_TESTED = bytes.fromhex("2802142d00004101710440")
_ALWAYS = bytes.fromhex("2802142d00004101720440")


def with_stream_io(path: Path, folder: Path) -> Path:
    """The plugin itself, or a copy in which Javy.IO is registered."""
    wasm = path.read_bytes()
    if b"javy-plugin-api" not in wasm or wasm.count(_TESTED) != 1:
        return path
    changed = folder / path.name
    changed.write_bytes(wasm.replace(_TESTED, _ALWAYS))
    return changed


def without_extras(path: Path, folder: Path) -> Path:
    """The built-in plugin as an ordinary Javy plugin: its exports and members beyond the ABI go by other names."""
    wasm = path.read_bytes()
    for known, other in (
        (b"\0Jeet\0", b"\0none\0"),
        (b"jeet-call", b"none-call"),
        (b"jeet-eval-module", b"none-eval-module"),
    ):
        assert wasm.count(known) == 1, known
        wasm = wasm.replace(known, other)
    changed = folder / f"ordinary-{path.name}"
    changed.write_bytes(wasm)
    return changed


# i32.const 1; i32.store8 offset=40: the configuration's event_loop(true)
_LOOP_ON = bytes.fromhex("200c41013a0028")
_LOOP_OFF = bytes.fromhex("200c41003a0028")


def without_event_loop(path: Path, folder: Path) -> Path | None:
    """A copy of the plugin whose event loop is off, if it can be switched off."""
    wasm = path.read_bytes()
    if wasm.count(_LOOP_ON) != 1:
        return None
    changed = folder / f"no-loop-{path.name}"
    changed.write_bytes(wasm.replace(_LOOP_ON, _LOOP_OFF))
    return changed
