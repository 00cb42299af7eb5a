"""Every test of the sandbox runs on the built-in plugin, on the same without what it has beyond Javy, and on an
official one if JEET_JAVY_PLUGIN names it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jeet.sandbox.call import BatchInput, Fault, InstanceSpec, OutputStream
from jeet.sandbox.engine import Engine
from jeet.sandbox.instance import Instance
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import BUILT_IN, Plugin
from jeet.testing import LocalFunction, MemoryState

from .stream_io import with_stream_io, without_extras

OFFICIAL = os.environ.get("JEET_JAVY_PLUGIN")

PATIENT = Limits(event_cpu_ms=3000, event_wall_ms=30_000)
"""for tests that are not about time: a busy machine must not fail them"""

CLOCK = "export const config = { deterministic: false };"
"""for functions that wait for time to pass"""

TOTALS = """\
stream.map(event => {
  const userId = event.userId;
  const value = event.amount;
  state.totals[userId] = (state.totals[userId] || 0) + value;
  return { userId, currentTotal: state.totals[userId] };
});
"""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("sandbox-cache"))
    yield engine
    engine.close()


@pytest.fixture(scope="session", params=["built-in", "ordinary", "official"])
def plugin(request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    if request.param == "built-in":
        return engine.load_plugin(None)
    if request.param == "ordinary":
        return engine.load_plugin(without_extras(BUILT_IN, tmp_path_factory.mktemp("ordinary")))
    if not OFFICIAL:
        pytest.skip("JEET_JAVY_PLUGIN names no official Javy plugin")
    return engine.load_plugin(with_stream_io(Path(OFFICIAL), tmp_path_factory.mktemp("plugin")))


Local = Callable[..., LocalFunction]


@pytest.fixture
def local(plugin: Plugin) -> Iterator[Local]:
    """Makes functions on the plugin at hand and closes them after the test."""
    made: list[LocalFunction] = []

    def make(source: str, **options: Any) -> LocalFunction:
        options.setdefault("limits", PATIENT)
        made.append(LocalFunction(source, options.pop("filename", "function.js"), plugin=plugin, **options))
        return made[-1]

    yield make
    for function in made:
        function.close()


Open = Callable[..., Instance]


@pytest.fixture
def instances(plugin: Plugin) -> Iterator[Open]:
    """Makes instances on the plugin at hand and closes them after the test."""
    made: list[Instance] = []

    def make(source: str, reader: Any = None, **spec: Any) -> Instance:
        compiled = plugin.compile(source, "function.js")
        full = InstanceSpec(
            **{
                "function": "f",
                "version": 1,
                "partition": 0,
                "outputs": (OutputStream("sink"),),
                "slice_ms": 60_000,
                "limits": PATIENT,
                **spec,
            }
        )
        made.append(plugin.instantiate(compiled, full, reader if reader is not None else MemoryState()))
        return made[-1]

    yield make
    for instance in made:
        instance.close()


@pytest.fixture
def stages(plugin: Plugin) -> Iterator[Callable[..., Any]]:
    """Makes stages on the plugin at hand and closes them after the test."""
    from .stages import Stage, open_stage

    made: list[Stage] = []

    def make(source: str, *plan: Any, **more: Any) -> Stage:
        made.append(open_stage(plugin, source, *plan, **more))
        return made[-1]

    yield make
    for stage in made:
        stage.task.close()


def batch_of(
    events: Sequence[Any],
    *,
    keys: Sequence[str | None] | None = None,
    first: int = 0,
    now_ms: float | None = None,
    committed: int = 0,
    headers: Sequence[Mapping[str, str] | None] | None = None,
    condemned: Mapping[int, Fault] | None = None,
    **more: Any,
) -> BatchInput:
    """Events as the columns of a batch."""
    return BatchInput(
        first_offset=first,
        count=len(events),
        values="\n".join(json.dumps(event) for event in events).encode(),
        keys=b"" if keys is None else "\n".join(json.dumps(key) for key in keys).encode(),
        timestamps="\n".join(str(1_700_000_000_000 + i) for i in range(len(events))).encode(),
        headers=b"" if headers is None else "\n".join(json.dumps(header) for header in headers).encode(),
        now_ms=time.time() * 1000 if now_ms is None else now_ms,
        fetched_at=time.monotonic(),
        committed_through=committed,
        condemned=condemned or {},
        **more,
    )


def values(text: str) -> list[Any]:
    """A text column as values."""
    return [json.loads(line) for line in text.split("\n")] if text else []
