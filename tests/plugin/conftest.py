"""The plugin under test, compiled once a session for each kind of host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .host import PLUGIN, Maker

DEFAULT_WASM_STACK = 512 * 1024
WIDE_WASM_STACK = 2 * 1024 * 1024


@pytest.fixture(scope="session")
def maker() -> Maker:
    """A host with wasmtime's default stack."""
    return Maker(max_wasm_stack=DEFAULT_WASM_STACK)


@pytest.fixture(scope="session")
def wide_maker() -> Maker:
    """A host that gives as much stack as wasmtime allows by default."""
    return Maker(max_wasm_stack=WIDE_WASM_STACK)


@pytest.fixture(scope="session", params=["built-in", "official"])
def any_maker(request: pytest.FixtureRequest) -> Maker:
    """The built-in plugin, and the one that JEET_JAVY_PLUGIN names, which must behave alike."""
    if request.param == "built-in":
        return Maker(PLUGIN)
    path = os.environ.get("JEET_JAVY_PLUGIN")
    if not path:
        pytest.skip("JEET_JAVY_PLUGIN names no official Javy plugin")
    return Maker(Path(path))
