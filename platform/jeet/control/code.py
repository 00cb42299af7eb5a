"""A function's code as a file holds it: compiled and described in the sandbox, its settings merged with the flags.

Nothing here knows the database. What is wrong with a file is a DeployError that names file and line where it can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jeet.control.spec import Flags, FunctionSpec, merge
from jeet.errors import DeployError
from jeet.limits import DEFAULTS
from jeet.sandbox.source import decode_source

if TYPE_CHECKING:
    from jeet.sandbox.plugin import Compiled, Plugin


_MOST_BYTES = DEFAULTS["file_bytes"]


@dataclass(frozen=True)
class Code:
    """A function's code, compiled and read; nothing of it is in the database yet."""

    filename: str
    source: str | None
    """None: it came as .wasm"""
    digest: str
    compiled: Compiled
    graph: Sequence[Mapping[str, Any]]
    spec: FunctionSpec
    lints: tuple[str, ...]


def read_code(path: Path, plugin: Plugin, flags: Flags) -> Code:
    """Compile a `.js` or `.wasm` in the sandbox, read what it declares, merge that with the flags; else DeployError."""
    try:
        with path.open("rb") as file:  # a pipe or a device has no size to ask for, and perhaps no end
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DeployError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise DeployError(f"{path} has more than {_MOST_BYTES} bytes (file_bytes); that is no function")
    if path.suffix == ".wasm" or data.startswith(b"\0asm"):
        source, compiled = None, plugin.from_wasm(data, path.name)
    else:
        source = decode_source(data, path.name)
        compiled = plugin.compile(source, path.name)
    description = plugin.describe(compiled)
    emits = [(emit.name, emit.declared) for emit in description.emits]
    spec = merge(description.config, emits, flags, path.name)
    digest = hashlib.sha256(data).hexdigest()
    return Code(path.name, source, digest, compiled, description.graph, spec, tuple(description.lints))
