"""What docs/graph.md shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jeet.cli.drawing import as_text
from jeet.control.code import read_code
from jeet.control.graphs import of_file
from jeet.control.spec import Flags
from jeet.sandbox.engine import Engine

TEXT = (Path(__file__).parents[2] / "docs" / "graph.md").read_text()
EXAMPLES = re.findall(r"```js\n(.*?)```", TEXT, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Each example of the page as `jeet graph` shows it."""
    folder = tmp_path_factory.mktemp("docs")
    engine = Engine(folder / "cache")
    found = []
    for number, source in enumerate(EXAMPLES):
        path = folder / ("pipeline.js" if number == 0 else f"example{number}.js")
        path.write_text(source)
        found.append(as_text(of_file(read_code(path, engine.load_plugin(), Flags()))))
    engine.close()
    return found


def test_every_example_is_a_function_that_can_be_deployed(pictures: list[str]) -> None:
    assert len(pictures) == len(EXAMPLES) == 3
    assert all("stage 0" in picture for picture in pictures)


def test_the_picture_is_that_of_the_example(pictures: list[str]) -> None:
    assert [shown.strip() for shown in SHOWN] == [pictures[0].strip()]
