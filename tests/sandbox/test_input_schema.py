"""A schema and the events that it meets may cost what they like: the process that checks them pays, and is replaced."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jeet.errors import DeployError, StopTask
from jeet.sandbox.call import BatchResult
from jeet.sandbox.engine import Engine
from jeet.sandbox.limits import Limits
from jeet.sandbox.schema import InputSchema
from jeet.sandbox.schema_process import Schema, SchemaProcess, SchemaRefused

from .conftest import Local, Open, batch_of

TAGS = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
EITHER = {
    "$defs": {
        "tree": {
            "anyOf": [
                {
                    "type": "object",
                    "required": ["kid"],
                    "properties": {"kid": {"$ref": "#/$defs/tree"}, "t": {"const": tag}},
                }
                for tag in ("a", "b")
            ]
        }
    },
    "$ref": "#/$defs/tree",
}
ENDS = 28
DOUBLING = {
    "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(ENDS)}
    | {f"a{ENDS}": {"type": "null"}},
    "$ref": "#/$defs/a0",
}
BRIEF = Limits(event_cpu_ms=100, event_wall_ms=30_000)


def nested(levels: int) -> Any:
    event: Any = {"t": "c"}
    for _ in range(levels):
        event = {"kid": event}
    return event


def everything(open_instance: Open, schema: Any, events: list[Any]) -> tuple[list[int], dict[int, str]]:
    """Which events of a batch went through and what the others were condemned for; as many calls as it takes."""
    instance = open_instance("stream.map(e => 1)", input_schema=schema, limits=BRIEF)
    through: list[int] = []
    faults: dict[int, str] = {}
    start = 0
    while start < len(events):
        result: BatchResult = instance.run(batch_of(events[start:]))
        wrong = {start + fault.index: fault.error for fault in result.faults}
        faults |= wrong
        through += [index for index in range(start, start + result.processed) if index not in wrong]
        start += result.processed
    return through, faults


def test_the_first_of_many_errors_is_named_and_the_others_are_not_looked_for(instances: Open) -> None:
    events = [{"tags": ["a"]}, {"tags": list(range(100_000))}, {"tags": []}]
    through, faults = everything(instances, TAGS, events)
    assert through == [0, 2]
    assert faults == {1: 'InputError: $.tags[0]: 0 is not of type "string"'}


def test_an_event_that_takes_a_schema_for_ever_is_condemned_alone(instances: Open) -> None:
    events = [nested(1), 7, nested(60), nested(60), nested(2), 8]
    through, faults = everything(instances, EITHER, events)
    assert through == []
    assert faults[1].startswith("InputError: $: 7 is not valid")
    assert faults[5].startswith("InputError: $: 8 is not valid")
    over = "took more than 100 ms of CPU time (event_cpu_ms)"
    assert [index for index, fault in faults.items() if over in fault] == [2, 3]
    assert len(faults) == len(events)


def test_a_schema_that_is_slow_by_itself_is_refused_at_deploy_and_condemns_in_a_worker(
    local: Local, instances: Open
) -> None:
    with pytest.raises(DeployError, match=r"config\.input cannot be used: .* more than 100 ms .*event_cpu_ms"):
        local(f"export const config = {{ input: {json.dumps(DOUBLING)} }}; stream.map(e => e)")
    _, faults = everything(instances, DOUBLING, [None, None])
    over = "InputError: checking it against config.input took more than 100 ms of CPU time (event_cpu_ms)"
    assert faults == {0: over, 1: over}


def test_a_schema_fetches_nothing_and_reads_no_file(
    local: Local, instances: Open, asked: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, paths = asked
    (tmp_path / "s.json").write_text("{}")
    for outside in (url, (tmp_path / "s.json").as_uri(), "other.json"):
        schema = {"properties": {"a": {"$ref": outside}}}
        with pytest.raises(DeployError) as refused:
            local(f"export const config = {{ input: {json.dumps(schema)} }}; stream.map(e => e)")
        assert f"config.input refers to '{outside}', which is not in it" in str(refused.value)
        with pytest.raises(StopTask, match=r"config\.input refers to"):
            instances("stream.map(e => 1)", input_schema=schema).run(batch_of([1]))
    assert paths == []


@pytest.mark.parametrize("schema", [{"type": "foo"}, {"pattern": "(("}, {"$ref": "#/$defs/none"}, 7])
def test_what_is_no_schema_is_refused_at_deploy(local: Local, schema: Any) -> None:
    with pytest.raises(DeployError, match=r"config\.input (is not|must be) a JSON Schema"):
        local(f"export const config = {{ input: {json.dumps(schema)} }}; stream.map(e => e)")


@pytest.fixture
def process() -> Iterator[SchemaProcess]:
    process = SchemaProcess()
    yield process
    process.close()


def test_another_thread_goes_on_while_a_check_takes_its_time(process: SchemaProcess) -> None:
    """Of the slow call nothing but its end is known here, so the others are counted against it."""
    done = threading.Event()

    def slow() -> None:
        process.check(
            Schema(EITHER), json.dumps(nested(60)).encode(), Limits(event_cpu_ms=500, event_wall_ms=30_000), 9
        )
        done.set()

    thread = threading.Thread(target=slow)
    thread.start()
    turns = 0
    while not done.wait(0.01):
        turns += 1
    thread.join()
    assert turns > 10  # holding the GIL it would be 0 or 1


def test_the_process_bears_its_own_name_and_no_secret(process: SchemaProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JEET_DATABASE_URL", "postgresql://u:secret@h/d")
    started: list[dict[str, str]] = []

    class Seen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.append(options["env"])
            super().__init__(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Seen)
    assert process.pid is None  # nothing runs before it is needed
    process.check(Schema({"type": "null"}), b"null", BRIEF, 9)
    of = Path("/proc", str(process.pid))
    assert (of / "comm").read_text().strip() == "jeet-schema"
    assert b"jeet-worker" not in (of / "cmdline").read_bytes()
    assert len(started) == 1  # a title takes the place of the environment in /proc
    assert "secret" not in str(started)


def test_a_process_that_is_killed_is_replaced_and_no_verdict_is_lost(process: SchemaProcess) -> None:
    schema, values = Schema({"type": "integer"}), b'1\n"x"\n3'
    for _ in range(3):
        checked = process.check(schema, values, BRIEF, 9)
        assert (checked.count, list(checked.wrong)) == (3, [1])
        assert process.pid is not None
        os.kill(process.pid, 9)


def test_a_request_ends_with_its_time_slice_and_the_rest_is_left_over(engine: Engine, process: SchemaProcess) -> None:
    batch = InputSchema({"type": "integer"}, process, BRIEF, 0).condemn(batch_of([1, 2, 3, 4]))
    assert (batch.count, batch.values) == (1, b"1")
    assert process.check(Schema({}), b"1\n2", BRIEF, 0).count == 1


def test_an_event_that_takes_too_much_memory_is_condemned_alone() -> None:
    process = SchemaProcess(memory_bytes=128 * 2**20)
    numbers = b"[" + b",".join([b"7"] * 500_000) + b"]"
    values = b"\n".join([b'["a"]', numbers, b"[1]", b"[]"])
    patient = Limits(event_cpu_ms=30_000, event_wall_ms=60_000)
    checked = process.check(Schema({"anyOf": [{"items": {"type": "string"}}]}), values, patient, 60)
    process.close()
    assert checked.count == 4
    assert list(checked.wrong) == [1, 2]
    assert "schema_memory_bytes" in checked.wrong[1]
    assert "is not valid" in checked.wrong[2]


def test_many_schemas_in_turn(process: SchemaProcess) -> None:
    for number in [*range(150), 3]:
        checked = process.check(Schema({"const": number}), f"{number}\n-1".encode(), BRIEF, 9)
        assert list(checked.wrong) == [1]


def test_a_schema_of_which_nothing_compiles_in_time_is_refused_by_name(process: SchemaProcess) -> None:
    slow = {"properties": {f"p{n}": {"pattern": f"^(\\p{{L}}{{200}}{n})+$"} for n in range(4000)}}
    with pytest.raises(SchemaRefused, match="schema_compile_ms"):
        process.check(Schema(slow), b"1", BRIEF, 9)
    assert process.check(Schema({}), b"1", BRIEF, 9).wrong == {}
