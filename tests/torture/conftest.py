"""How often each drill is repeated: a few times in every run, twenty in `make torture`."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def rounds() -> int:
    return int(os.environ.get("JEET_ROUNDS", "2"))
