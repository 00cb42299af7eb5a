"""Fixtures of the tests of control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from jeet.control.code import read_code
from jeet.control.deploy import Deployed, deploy
from jeet.control.spec import Flags
from jeet.sandbox.engine import Engine
from jeet.sandbox.plugin import Plugin

SEED_JS = """stream.map(event => {
  const userId = event.userId;
  state.totals[userId] = (state.totals[userId] || 0) + event.amount;
  return { userId, currentTotal: state.totals[userId] };
});
"""

Deploy = Callable[..., Deployed]


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    engine = Engine(tmp_path_factory.mktemp("cache"))
    yield engine.load_plugin()
    engine.close()


@pytest.fixture
def deploy_source(db: psycopg.Connection, plugin: Plugin, tmp_path: Path) -> Deploy:
    """Deploy a source text: `deploy_source(text, filename=…, wait_s=…, **flags)`."""

    def run(
        text: str | bytes = SEED_JS, /, *, filename: str = "f.js", wait_s: float = 0.0, **flags: object
    ) -> Deployed:
        path = tmp_path / filename
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return deploy(db, read_code(path, plugin, Flags(**flags)), wait_s=wait_s)  # type: ignore[arg-type]

    return run
