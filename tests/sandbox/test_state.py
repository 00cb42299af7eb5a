"""Keyed state: like a plain object that takes any string as key, the same warm, reloaded and after a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jeet.sandbox.call import InstanceSpec, OutputStream, StateConfig
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Plugin
from jeet.testing import MemoryState

from .conftest import Local, Open, batch_of, values

# A small language of state operations: the guest runs it on `state`, the model on plain dictionaries.
INTERPRETER = """
stream.map(event => {
  const seen = [];
  for (const [op, name, key, value] of event.ops) {
    const c = state[name];
    switch (op) {
      case 'get': seen.push(c[key] === undefined ? 'undefined' : c[key]); break;
      case 'set': c[key] = value; break;
      case 'delete': delete c[key]; break;
      case 'has': seen.push(key in c); break;
      case 'keys': seen.push(Object.keys(c)); break;
      case 'forin': { const all = []; for (const k in c) all.push(k); seen.push(all); break; }
      case 'entries': seen.push(Object.entries(c)); break;
      case 'spread': seen.push({ ...c }); break;
      case 'own': seen.push(Object.hasOwn(c, key)); break;
      case 'push': { const o = c[key]; if (o !== null && typeof o === 'object') { if (Array.isArray(o)) o.push(value); else o.pushed = value; } break; }
      case 'share': { c[key] = { shared: [] }; c[key + '2'] = c[key]; c[key].shared.push(value); break; }
    }
  }
  if (event.fail) throw new Error('as asked');
  return JSON.stringify(seen);
});
"""  # noqa: E501

KEYS = st.sampled_from(
    ["a", "b", "10", "9", "", "__proto__", "constructor", "toString", "a\nb", "é", "\ue000", "🌍", "length", "x" * 300]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.integers(-1000, 1000).map(lambda n: n + 0.25)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["p", "q", "__proto__", "2", "1"]), inner, max_size=3)
    ),
    max_leaves=6,
)
OPS = st.sampled_from(
    ["get", "get", "set", "set", "delete", "has", "keys", "forin", "entries", "spread", "own", "push", "share"]
)
OP = st.tuples(OPS, st.sampled_from(["one", "two"]), KEYS, VALUES)
EVENTS = st.lists(
    st.fixed_dictionaries({"ops": st.lists(OP, max_size=6), "fail": st.integers(0, 3).map(lambda n: n == 0)}),
    min_size=1,
    max_size=8,
)
# What happens between batches: go on, let the commit of the last batches be known late, or lose the instance.
STEPS = st.lists(st.tuples(EVENTS, st.sampled_from(["go on", "late", "restart"])), min_size=1, max_size=5)


def js_order(value: Any) -> Any:
    """Objects as JavaScript orders them: array indexes first, rising."""
    if isinstance(value, list):
        return [js_order(item) for item in value]
    if isinstance(value, dict):
        numbers = sorted((k for k in value if k.isdigit() and str(int(k)) == k), key=int)
        return {k: js_order(value[k]) for k in [*numbers, *(k for k in value if k not in numbers)]}
    return value


class Model:
    """State as plain dictionaries of JSON texts."""

    def __init__(self) -> None:
        self.state: dict[str, dict[str, Any]] = {"one": {}, "two": {}}

    def event(self, event: dict[str, Any]) -> list[Any] | None:
        saved = json.dumps(self.state)
        seen: list[Any] = []
        for op, name, key, value in event["ops"]:
            collection = self.state[name]
            order = sorted(collection, key=str.encode)
            if op == "get":
                seen.append(collection.get(key, "undefined"))
            elif op == "set":
                collection[key] = js_order(json.loads(json.dumps(value)))
            elif op == "delete":
                collection.pop(key, None)
            elif op in ("has", "own"):
                seen.append(key in collection)
            elif op in ("keys", "forin"):
                seen.append(order)
            elif op == "entries":
                seen.append([[k, collection[k]] for k in order])
            elif op == "spread":
                seen.append({k: collection[k] for k in order})
            elif op == "push" and isinstance(collection.get(key), list):
                collection[key].append(value)
            elif op == "push" and isinstance(collection.get(key), dict):
                collection[key]["pushed"] = value
            elif op == "share":
                collection[key] = {"shared": [value]}
                collection[key + "2"] = collection[key]
        if event["fail"]:
            self.state = json.loads(saved)
            return None
        seen = json.loads(json.dumps(seen))
        self.state = json.loads(json.dumps(self.state))  # what was shared is shared no more
        return seen


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=STEPS)
def test_state_is_a_plain_object_through_failures_batches_and_restarts(plugin: Plugin, steps: list[Any]) -> None:
    compiled = plugin.compile(INTERPRETER, "interpreter.js")
    # A cache of three entries: eviction happens all the time.
    spec = InstanceSpec("f", 1, 0, (OutputStream("sink"),), slice_ms=60_000, cache_entries=3)
    committed, model = MemoryState(), Model()
    instance = plugin.instantiate(compiled, spec, committed)
    waiting: list[tuple[Any, float]] = []
    known = 0
    try:
        for events, then in steps:
            batch = batch_of(events, committed=known)
            result = instance.run(batch)
            waiting.append((result, batch.now_ms))
            expected = [(index, seen) for index, event in enumerate(events) if (seen := model.event(event)) is not None]
            group = result.outputs[0] if result.outputs else None
            got = [json.loads(text) for text in values(group.values)] if group else []
            sources = (list(range(len(got))) if group.sources is None else list(group.sources)) if group else []
            assert list(zip(sources, got, strict=True)) == expected
            assert [fault.index for fault in result.faults] == [i for i, event in enumerate(events) if event["fail"]]
            if then != "late":
                for done, now in waiting:
                    committed.apply(done, now)
                    known = done.sequence
                waiting.clear()
            if then == "restart":
                instance.close()
                instance, known = plugin.instantiate(compiled, spec, committed), 0
        for done, now in waiting:
            committed.apply(done, now)
    finally:
        instance.close()
    stored = {
        name: {key: json.loads(text) for key, (text, _) in committed.rows.get(number, {}).items()}
        for name, number in committed.names.items()
    }
    assert {"one": {}, "two": {}, **stored} == model.state


def test_a_batch_reads_all_its_keys_at_once(instances: Open) -> None:
    state = MemoryState()
    instance = instances("stream.map(e => { state.n[e.id] = (state.n[e.id] ?? 0) + 1; })", state)
    instance.run(batch_of([{"id": f"u{n % 300}"} for n in range(900)], keys=[f"u{n % 300}" for n in range(900)]))
    assert state.reads == 1
    instance.run(batch_of([{"id": f"u{n}"} for n in range(300)], keys=[f"u{n}" for n in range(300)], committed=1))
    assert state.reads == 1


def test_keys_taken_from_a_field_of_the_event_are_read_at_once_too(instances: Open) -> None:
    state = MemoryState()
    instance = instances("stream.map(e => { state.n[e.other] = (state.n[e.other] ?? 0) + 1; })", state)
    instance.run(batch_of([{"x": 1, "other": f"u{n}"} for n in range(400)], keys=["k"] * 400))
    assert state.reads == 1
    assert len(state.rows[1]) == 0


def test_a_plain_write_reads_nothing(instances: Open) -> None:
    state = MemoryState()
    result = instances("stream.map(e => { state.last[e.id] = e; delete state.gone[e.id]; })", state).run(
        batch_of([{"id": "a"}, {"id": "b"}])
    )
    assert state.reads == 0
    assert [(w.puts, w.deletes) for w in result.state] == [(2, 0), (0, 2)]


def test_only_the_last_value_of_each_key_is_written(instances: Open) -> None:
    source = "stream.map(e => { state.a.x = e; state.a.y = { e }; if (e === 2) delete state.a.x; if (e === 3) state.a.z = 1; })"  # noqa: E501
    result = instances(source).run(batch_of([1, 2]))
    (write,) = result.state
    assert (values(write.put_keys), values(write.put_values), values(write.delete_keys)) == (["y"], [{"e": 2}], ["x"])


def test_a_read_alone_writes_nothing(instances: Open) -> None:
    state = MemoryState()
    state.collection("a")
    state.rows[1] = {"x": ('{"deep":[1]}', None), "n": ("1", None)}
    result = instances(
        "stream.map(e => { JSON.stringify(state.a.x.deep); 'n' in state.a; Object.keys(state.a); return state.a.n; })",
        state,
    ).run(batch_of([1, 2]))
    assert result.state == []
    assert values(result.outputs[0].values) == [1, 1]


def test_what_an_event_kept_of_state_does_not_reach_later_events(local: Local) -> None:
    source = """
    let kept = null;
    stream.map(e => {
      if (kept === null) { kept = { n: 1 }; state.a.x = kept; kept.n = 2; }
      else kept.n = 99;
      return state.a.x.n;
    });
    """
    function = local(source)
    assert function.feed([1, 2, 3]).values() == [2, 2, 2]
    assert function.state("a") == {"x": {"n": 2}}


def test_dates_become_strings_at_once_as_after_a_reload(local: Local) -> None:
    source = "stream.map(e => { const was = typeof state.a.d; state.a.d ??= new Date(0); state.a.m = -0; return [was, Object.is(state.a.m, 0)]; })"  # noqa: E501
    function = local(source)
    assert function.feed([1, 2]).values() == [["undefined", True], ["string", True]]
    assert function.state("a") == {"d": "1970-01-01T00:00:00.000Z", "m": 0}


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("state.totals = {}", "TypeError"),
        ("state = null", "TypeError"),
        ("state.totals.x; state.totals = 5", "TypeError"),
        ("state['no-name'].x = 1", "TypeError"),
        ("state[''].x", "TypeError"),
        ("state['x'.repeat(64)].y", "TypeError"),
        ("state.a['x'.repeat(1025)] = 1", "key_bytes"),
        ("state.a['é'.repeat(513)]", "key_bytes"),
        ("state.a['a\\0b'] = 1", "NUL"),
        ("'\\ud800' in state.a", "lone surrogate"),
        ("state.a.x = undefined", "undefined"),
        ("state.a.x = NaN", "NaN"),
        ("state.a.x = { y: [1, Infinity] }", 'state.a["x"].y[1]'),
        ("state.a.x = () => 1", "function"),
        ("state.a.x = 5n", "BigInt"),
        ("state.a.x = Symbol()", "Symbol"),
        ("state.a.x = new Map()", "Map"),
        ("state.a.x = 2 ** 53", "2^53"),
        ("state.a.x = 'x'.repeat(2 ** 20)", "state_value_bytes"),
        ("state.a.x = '\\0'", "NUL"),
        ("state.a.x = { y: '\\udfff' }", "lone surrogate"),
        ("state.a.x = {}; state.a.x.y = state.a.x", "nested deeper"),
        ("state.a[Symbol.iterator] = 1", "symbol"),
        ("Object.defineProperty(state.a, 'x', { get() { return 1; } })", "plain values"),
        ("Object.freeze(state.a)", "cannot be frozen"),
        ("Object.setPrototypeOf(state.a, { x: 1 })", "no prototype"),
        ("Object.defineProperty(state, 'a', { value: 1 }); state.a.x = 1; throw new Error('self')", ""),
    ],
)
def test_what_state_cannot_hold_is_a_fault_of_its_event(local: Local, statement: str, error: str) -> None:
    source = f"stream.map(e => {{ state.ok[e] = 1; if (e === 1) {{ {statement}; }} return e; }})"
    function = local(source)
    run = function.feed([0, 1, 2])
    assert [failure.event for failure in run.failures] == [1]
    assert error in run.failures[0].error
    assert run.values() == [0, 2]
    assert function.state("ok") == {"0": 1, "2": 1}


def test_state_at_the_top_level_is_refused(plugin: Plugin) -> None:
    from jeet.errors import DeployError

    with pytest.raises(DeployError, match=r"^f\.js:2: .*while an event is processed"):
        plugin.describe(plugin.compile("const x = 1;\nstate.a.b = 1; stream.map(e => e);", "f.js"))


def test_there_is_a_limit_on_collections(local: Local) -> None:
    run = local("stream.map(e => { state['c' + e].x = 1; })", limits=Limits(collections=3)).feed(range(5))
    assert [failure.event for failure in run.failures] == [3, 4]
    assert "collections" in run.failures[0].error


def test_enumeration_is_bounded(instances: Open) -> None:
    state = MemoryState()
    state.collection("a")
    state.rows[1] = {f"{n:05}": ("1", None) for n in range(9_999)}
    instance = instances(
        "stream.map(e => { state.a['new' + e] = e; return Object.keys(state.a).length; })",
        state,
        limits=Limits(event_cpu_ms=5000, event_wall_ms=9000),
    )
    result = instance.run(batch_of([1, 2]))
    assert values(result.outputs[0].values) == [10_000]
    assert "RangeError" in result.faults[0].error
    assert "10000 keys" in result.faults[0].error


# Time to live.


def ttl_state(refresh: str = "write") -> MemoryState:
    state = MemoryState({"a": StateConfig(10_000, refresh)})  # type: ignore[arg-type]
    state.collection("a")
    return state


def test_expired_values_are_never_seen(instances: Open) -> None:
    state = ttl_state()
    state.rows[1] = {"old": ("1", 999.0), "live": ("2", 60_000.0), "edge": ("3", 1000.0), "object": ('{"x":1}', 5.0)}
    source = "stream.map(() => [state.a.old ?? null, 'old' in state.a, state.a.live, state.a.edge ?? null, Object.keys(state.a), Object.entries(state.a)])"  # noqa: E501
    result = instances(source, state).run(batch_of([1], now_ms=1000.0))
    assert values(result.outputs[0].values) == [[None, False, 2, None, ["live"], [["live", 2]]]]


def test_a_write_gives_a_new_life_and_expiry_is_judged_at_each_event(instances: Open) -> None:
    state = ttl_state()
    instance = instances("stream.map(e => { const was = state.a.x ?? null; if (e) state.a.x = e; return was; })", state)
    first = batch_of([7, 0], now_ms=1_000_000.0)
    assert values(instance.run(first).outputs[0].values) == [7]
    assert values(instance.run(batch_of([0], now_ms=1_001_000.0, committed=1)).outputs[0].values) == [7]
    late = instance.run(batch_of([0, 8, 0], now_ms=1_010_000.0, committed=1))
    assert late.outputs[0].sources == [2]
    assert values(late.outputs[0].values) == [8]


def test_expiry_passes_within_a_batch(instances: Open) -> None:
    state = ttl_state()
    state.rows[1] = {"x": ("1", 1_000_400.0)}
    source = """export const config = { deterministic: false };
    stream.map(e => {
      if (e) while (Date.now() < 1_000_500);
      const before = Date.now();
      return ['x' in state.a, before, Date.now()];
    });"""
    limits = Limits(event_cpu_ms=5000, event_wall_ms=20_000)
    result = instances(source, state, limits=limits).run(batch_of([0, 1, 0], now_ms=1_000_000.0))
    first, _, last = values(result.outputs[0].values)
    assert last[0] is False
    assert first[0] is True or first[2] >= 1_000_400  # the machine may have stood still meanwhile


def test_refresh_by_access_moves_the_expiry_only_after_a_tenth_of_it(instances: Open) -> None:
    state = ttl_state("access")
    state.rows[1] = {
        "fresh": ("1", 1_009_500.0),
        "stale": ("2", 1_008_000.0),
        "written": ("3", 1_001_000.0),
        "failed": ("4", 1_001_000.0),
    }
    source = "stream.map(e => { state.a.fresh; state.a.stale; state.a.written; state.a.written = e; if (e === 2) { state.a.failed; throw 1; } })"  # noqa: E501
    result = instances(source, state).run(batch_of([1, 2], now_ms=1_000_000.0))
    (write,) = result.state
    assert (values(write.put_keys), values(write.touched_keys), write.deletes) == (["written"], ["stale"], 0)
    state.apply(result, 1_000_000.0)
    assert state.rows[1]["stale"] == ("2", 1_010_000.0)


@pytest.mark.parametrize("ttl_ms", [None, 2_000, 10_000, 60_000], ids=["dropped", "shorter", "same", "longer"])
@pytest.mark.parametrize("before", [(None, "no expiry"), (1_010_000.0, "expiry")], ids=lambda value: value[1])
@pytest.mark.parametrize("write", ["s.n = (s.n ?? 0) + 1", "s.n = [(s.n?.[0] ?? 0) + 1]", "s.n = `${+(s.n ?? 0) + 1}`"])
def test_a_changed_ttl_means_the_same_warm_and_reloaded(
    instances: Open, ttl_ms: int | None, before: tuple[float | None, str], write: str
) -> None:
    source = f"stream.map(e => {{ const s = state.a; if (e) {write}; if (e === 2) throw 1; return s.n ?? null; }})"
    seen = []
    for warm in (True, False):
        state = MemoryState({"a": StateConfig(ttl_ms)})
        state.collection("a")
        state.rows[1] = {"n": ("[41]" if "[" in write else "41", before[0])}
        instance = instances(source, state)
        found = []
        for number, (events, now_ms) in enumerate(
            [
                ([0, 2, 1], 1_000_000.0),
                ([2, 1], 1_001_000.0),
                ([0], 1_005_000.0),
                ([0, 1], 1_010_500.0),
                ([0], 1_030_000.0),
            ]
        ):
            if not warm:
                instance = instances(source, state)
            result = instance.run(batch_of(events, now_ms=now_ms, committed=number if warm else 0))
            state.apply(result, now_ms)
            found.append([values(group.values) for group in result.outputs])
        seen.append((found, state.rows))
    assert seen[0] == seen[1]


def test_changes_that_are_not_known_to_be_committed_are_never_forgotten(instances: Open) -> None:
    state = MemoryState()
    instance = instances(
        "stream.map(e => { const was = state.a[e.k] ?? null; state.a[e.k] = e.n; return was; })", state, cache_entries=3
    )
    for number in range(1, 4):
        result = instance.run(batch_of([{"k": f"k{k}", "n": number} for k in range(20)], committed=0))
        assert [values(group.values) for group in result.outputs] == ([[number - 1] * 20] if number > 1 else [])


def test_the_cache_is_bounded(instances: Open) -> None:
    state = MemoryState()
    instance = instances("stream.map(e => { state.a[e.k] = 'x'.repeat(1000) + e.k; })", state, cache_bytes=200_000)
    for number in range(30):
        batch = batch_of([{"k": f"{number}-{k}"} for k in range(200)], committed=number)
        state.apply(instance.run(batch), batch.now_ms)
    assert len(state.rows[1]) == 6_000
    assert instance.memory_bytes < 7 * 2**20
    assert not instance.recycle_due
