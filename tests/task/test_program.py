"""Starting a version: what fails before any event has run is never an event's fault."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jeet.errors import RetryLater
from jeet.ids import FunctionId, StreamId, TaskId
from jeet.sandbox.engine import Engine
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Plugin
from jeet.task.program import CannotRun, Program
from jeet.task.retry import OnError
from jeet.task.state import StateConnection, TaskState
from task.rows import Deployed


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    engine = Engine(tmp_path_factory.mktemp("sandbox"))
    yield engine.load_plugin(None)
    engine.close()


def start(plugin: Plugin, source: str) -> None:
    program = Program(
        plugin=plugin,
        compiled=plugin.compile(source, "f.js"),
        function="totals",
        version=1,
        outputs=(),
        sink=False,
        state={},
        input_schema=None,
        on_error=OnError(),
        limits=Limits(),
        slice_ms=50.0,
    )
    deployed = Deployed(FunctionId(1), StreamId(1), StreamId(2), (TaskId(1),))
    state = TaskState(StateConnection("", 1.0), TaskId(1), FunctionId(1), 0.0, {})
    program.instantiate(deployed.lease(), state).close()


def test_a_module_whose_top_level_fails_cannot_run(plugin: Plugin) -> None:
    with pytest.raises(CannotRun, match=r"version 1 of totals cannot start: .*no such thing"):
        start(plugin, "throw new Error('no such thing');")
    with pytest.raises(CannotRun, match=r"used more than 1000 ms of CPU"):
        start(plugin, "for (;;);")


def test_a_module_that_finds_no_memory_starts_later(plugin: Plugin) -> None:
    with pytest.raises(RetryLater, match="out of memory"):
        start(plugin, "const all = []; for (;;) all.push(new Uint8Array(1 << 20)); stream.map(e => e);")


SHORT_OF_MEMORY = """
import resource, sys
from pathlib import Path
from jeet.errors import RetryLater
from jeet.sandbox.call import InstanceSpec
from jeet.sandbox.engine import Engine
from jeet.testing import MemoryState

plugin = Engine(Path(sys.argv[1])).load_plugin(None)
compiled = plugin.compile("stream.map(e => e);", "f.js")
spec = InstanceSpec("f", 1, 0)
plugin.instantiate(compiled, spec, MemoryState()).close()
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), resource.RLIM_INFINITY))
for make in (lambda: plugin.instantiate(compiled, spec, MemoryState()), lambda: plugin.compile("1", "g.js")):
    made = []
    try:
        for _ in range(50):
            made.append(make())
    except RetryLater as error:
        print("later", error)
"""


def test_a_host_that_is_short_of_memory_condemns_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, str(tmp_path / "cache")], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.count("later no sandbox could be made") == 2, done.stderr
