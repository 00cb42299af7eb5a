"""`export function migrate`: what an earlier version wrote gets its new form with the event that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jeet.errors import DeployError
from jeet.sandbox.call import BatchResult
from jeet.sandbox.instance import Instance
from jeet.sandbox.plugin import Plugin
from jeet.testing import MemoryState

from .conftest import Open, batch_of, values

MIGRATE = """
export function migrate(collection, key, value, fromVersion) {
  if (value === 'bad') throw new RangeError('not this one');
  if (value === 'gone') return undefined;
  if (value === 'state') return state.totals.other;
  if (value === 'later') return Promise.resolve(1);
  if (value === 'strange') return { toJSON() { throw new Error('no text'); } };
  return { sum: value, from: `${collection}.${key}@${fromVersion}` };
}
"""
READ = MIGRATE + "stream.map(e => e.write ? (state.totals[e.key] = e.write) : state.totals[e.key] ?? null);"


def kept(rows: Mapping[str, Any], versions: Mapping[str, int] | int = 1) -> MemoryState:
    """State of one collection, and which version wrote what."""
    state = MemoryState()
    number = state.collection("totals").id
    state.rows[number] = {key: (json.dumps(value, separators=(",", ":")), None) for key, value in rows.items()}
    given = dict.fromkeys(rows, versions) if isinstance(versions, int) else versions
    state.versions = {(number, key): version for key, version in given.items()}
    return state


def written(result: BatchResult) -> dict[str, Any]:
    """Key → value that the batch leaves; None: deleted."""
    found: dict[str, Any] = {}
    for write in result.state:
        found |= dict(zip(values(write.put_keys), values(write.put_values), strict=True))
        found |= dict.fromkeys(values(write.delete_keys))
    return found


def run(instance: Instance, *events: Any, **more: Any) -> BatchResult:
    made = [{"key": event} if isinstance(event, str) else event for event in events]
    return instance.run(batch_of(made, keys=[event["key"] for event in made], **more))


def test_an_entry_is_migrated_by_the_first_event_that_reads_it_and_written_with_it(instances: Open) -> None:
    state = kept({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2})
    instance = instances(READ, state, version=3)
    result = run(instance, "a", "a", "b", "c", "none")
    a, b = {"sum": 1, "from": "totals.a@1"}, {"sum": 2, "from": "totals.b@2"}
    assert values(result.outputs[0].values) == [a, a, b, 3]
    assert written(result) == {"a": a, "b": b}
    assert state.reads == 1
    state.apply(result, 0)
    # From now on it is an entry like any other, cached or not.
    assert written(run(instance, "a", "b")) == {}
    assert values(run(instances(READ, state, version=3), "a").outputs[0].values) == [a]


def test_an_entry_of_a_version_before_versions_were_kept_comes_from_version_0(instances: Open) -> None:
    result = run(instances(READ, kept({"a": 1}, 0), version=1), "a")
    assert written(result) == {"a": {"sum": 1, "from": "totals.a@0"}}


def test_what_is_written_without_being_read_is_not_migrated(instances: Open) -> None:
    source = MIGRATE + "stream.map(e => { if (e.drop) delete state.totals[e.key]; else state.totals[e.key] = 'new'; });"
    result = run(instances(source, kept({"a": "bad", "b": "bad"}), version=2), {"key": "a"}, {"key": "b", "drop": True})
    assert result.faults == []
    assert written(result) == {"a": "new", "b": None}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("bad", "RangeError: not this one"),
        ("state", "migrate gets the old value and returns the new one: it cannot use state"),
        ("later", "it must return the value itself, not a promise"),
        ("strange", "no text"),
    ],
)
@pytest.mark.parametrize("caught", [False, True])
def test_a_throw_fails_the_event_names_the_entry_and_changes_nothing(
    instances: Open, value: str, error: str, caught: bool
) -> None:
    read = "try { state.totals[e.key]; } catch { }" if caught else "state.totals[e.key];"
    source = MIGRATE + f"stream.map(e => {{ state.totals.seen = e.key; {read} return e.key; }});"
    instance = instances(source, kept({"a": value, "b": 1}), version=2)
    result = run(instance, "a", "b", "a")
    assert [fault.index for fault in result.faults] == [0, 2]
    for fault in result.faults:
        assert 'migrate failed for state.totals["a"], written by version 1' in fault.error
        assert error in fault.error
    assert written(result) == {"seen": "b", "b": {"sum": 1, "from": "totals.b@1"}}


def test_what_is_returned_as_nothing_is_deleted(instances: Open) -> None:
    result = run(instances(READ, kept({"a": "gone"}), version=2), "a", "a")
    assert written(result) == {"a": None}
    assert list(result.outputs) == []


def test_an_event_that_fails_leaves_the_entry_to_the_next_one(instances: Open) -> None:
    source = (
        MIGRATE + "stream.map(e => { const v = state.totals[e.key]; if (e.fail) throw new Error('x'); return v; });"
    )
    result = run(instances(source, kept({"a": 1}), version=2), {"key": "a", "fail": True}, {"key": "a"})
    assert len(result.faults) == 1
    assert written(result) == {"a": {"sum": 1, "from": "totals.a@1"}}


def test_enumeration_migrates_too(instances: Open) -> None:
    source = MIGRATE + "stream.map(e => Object.entries(state.totals).map(([k, v]) => [k, v.sum ?? v]));"
    state = kept({"a": 1, "b": "gone", "c": 3}, {"a": 1, "b": 1})
    result = run(instances(source, state, version=2), "x")
    assert values(result.outputs[0].values) == [[["a", 1], ["c", 3]]]
    assert written(result) == {"a": {"sum": 1, "from": "totals.a@1"}, "b": None}


def test_an_expired_entry_is_not_migrated(instances: Open) -> None:
    state = kept({"a": "bad"})
    (number,) = state.rows
    state.rows[number]["a"] = ('"bad"', 1000.0)
    result = run(instances(READ, state, version=2), "a", now_ms=2000.0)
    assert result.faults == []
    assert written(result) == {}


def test_in_what_a_batch_prefetched_each_is_migrated_by_its_own_event(instances: Open) -> None:
    names = [f"k{n}" for n in range(2000)]
    state = kept(dict.fromkeys(names, 1))
    result = run(instances(READ, state, version=2), *names)
    assert written(result) == {name: {"sum": 1, "from": f"totals.{name}@1"} for name in names}
    assert state.reads < 10


def test_what_operators_keep_is_theirs(instances: Open) -> None:
    source = MIGRATE + "stream.reduce((acc, e) => ({ n: acc.n + 1 }), { name: 'totals' });"
    state = kept({"a": {"n": 4}})
    result = run(instances(source, state, version=2), "a")
    assert result.faults == []
    assert written(result)["a"] == {"n": 5}


def test_the_description_knows_of_it_and_refuses_what_is_no_function(plugin: Plugin) -> None:
    describe: Callable[[str], Any] = lambda source: plugin.describe(plugin.compile(source, "f.js"))  # noqa: E731
    assert describe(READ).migrates is True
    assert describe("stream.map(e => e);").migrates is False
    with pytest.raises(DeployError, match="migrate must be a function"):
        describe("export const migrate = 1; stream.map(e => e);")
