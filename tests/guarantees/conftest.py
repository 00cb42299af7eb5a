"""A Postgres server of a test's own, for tests that stop it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.torture.server import OwnServer
from tests.torture.server import own_server as an_own_server


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    with an_own_server() as server:
        yield server
