"""Seed, rounds and figures of the torture tests.

JEET_SEED gives the seed (else a new one each run, printed with every failure), JEET_ROUNDS how often each drill is
repeated: once in an ordinary run (where guarantees/ has the freezes), more in `make torture`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator

import pytest

from jeet.sandbox.engine import Engine
from jeet.sandbox.plugin import Plugin

from .figures import Figures, commit

_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = Figures(int(os.environ.get("JEET_SEED") or random.SystemRandom().randrange(1_000_000)))


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    return pytestconfig.stash[_FIGURES]


@pytest.fixture
def seed(figures: Figures, request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, the same in each run with the same JEET_SEED."""
    return random.Random(f"{figures.seed} {request.node.nodeid}").randrange(2**32)


@pytest.fixture(scope="session")
def rounds() -> int:
    return int(os.environ.get("JEET_ROUNDS", "1"))


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    engine = Engine(tmp_path_factory.mktemp("cache"))
    yield engine.load_plugin(None)
    engine.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "torture" in item.nodeid:
        seed = item.config.stash[_FIGURES].seed
        report.sections.append(("replay", f"JEET_SEED={seed} at commit {commit()}: pytest '{item.nodeid}'"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash[_FIGURES].block():
        terminalreporter.section("torture")
        for line in lines:
            terminalreporter.line(line)
