"""Isolation: an event that fails leaves nothing behind but its fault and its log lines."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from jeet.sandbox.call import GuestTrap, OutputStream, StateConfig
from jeet.sandbox.limits import Limits
from jeet.testing import MemoryState

from .conftest import CLOCK, Local, Open, batch_of, values


def test_a_throwing_event_takes_back_its_state_and_outputs_and_no_other(local: Local) -> None:
    source = """
    export const config = { emits: ['side'] };
    stream.map((event, context) => {
      state.totals[event.id] = (state.totals[event.id] || 0) + event.n;
      state.seen[event.id] ??= { times: 0, last: [] };
      state.seen[event.id].times += 1;
      state.seen[event.id].last.push(event.n);
      state.created[event.n] = true;
      delete state.totals.gone;
      context.emit('side', event.n);
      if (event.fail) throw new Error(`failed ${event.n}`);
      return state.totals[event.id];
    });
    """
    function = local(source)
    function.feed([])
    run = function.feed(
        [{"id": "a", "n": 1}, {"id": "a", "n": 2, "fail": True}, {"id": "a", "n": 4}, {"id": "b", "n": 8, "fail": True}]
    )
    assert run.values() == [1, 5]
    assert run.values("side") == [1, 4]
    assert function.state("totals") == {"a": 5}
    assert function.state("seen") == {"a": {"times": 2, "last": [1, 4]}}
    assert function.state("created") == {"1": True, "4": True}
    assert [(failure.event, failure.error, failure.state_key) for failure in run.failures] == [
        (1, "Error: failed 2", "totals[gone]"),
        (3, "Error: failed 8", "totals[gone]"),
    ]


def test_a_stack_names_the_users_file_and_lines_only(local: Local) -> None:
    source = "function deep(e) {\n  return e.a.b.c;\n}\n\nexport default (event) =>\n  deep(event);\n"
    run = local(source, filename="orders.js").feed([{}])
    stack = run.failures[0].stack
    assert run.failures[0].error.startswith("TypeError: ")
    assert "at deep (orders.js:" in stack
    assert "orders.js:6:" in stack
    assert "function.mjs" not in stack
    assert len(stack.splitlines()) == 2


@pytest.mark.parametrize(
    ("thrown", "shown"),
    [
        ("null", "null was thrown"),
        ("undefined", "undefined was thrown"),
        ("Symbol('s')", "Symbol(s) was thrown"),
        ("'just text'", '"just text" was thrown'),
        ("{ code: 7 }", "{ code: 7 } was thrown"),
        ("Object.create(null)", "was thrown"),
        ("new Proxy({}, { get() { throw 1; }, has() { throw 2; } })", "an error was thrown that cannot be shown"),
        ("Object.assign(new Error('x'), { name: 5, message: { a: 1 } })", "Error: { a: 1 }"),
        ("new (class Custom extends Error { name = 'Custom'; })('mine')", "Custom: mine"),
    ],
)
def test_whatever_is_thrown_becomes_one_fault(local: Local, thrown: str, shown: str) -> None:
    run = local(f"stream.map(e => {{ if (e.bad) throw {thrown}; return e.n; }})").feed([{"n": 1}, {"bad": 1}, {"n": 2}])
    assert run.values() == [1, 2]
    assert len(run.failures) == 1
    assert shown in run.failures[0].error


def test_a_huge_error_is_cut_with_a_mark(local: Local) -> None:
    run = local("stream.map(() => { throw new Error('x'.repeat(5e6)); })").feed([1])
    assert run.failures[0].error.endswith("[cut]")
    assert len(run.failures[0].error.encode()) <= Limits().dead_letter_bytes


def test_an_endless_event_becomes_one_failure_and_the_others_are_exact(local: Local) -> None:
    source = "stream.map(e => { state.sum.all = (state.sum.all || 0) + e.n; if (e.n === 50) for (;;); return state.sum.all; })"  # noqa: E501
    function = local(source, limits=Limits(event_cpu_ms=40))
    run = function.feed([{"n": n} for n in range(100)])
    expected, total = [], 0
    for n in range(100):
        if n != 50:
            total += n
            expected.append(total)
    assert run.values() == expected
    assert [failure.event for failure in run.failures] == [50]
    assert "event_cpu_ms" in run.failures[0].error


def test_the_suspect_of_a_trap_is_the_event_that_ran(instances: Open) -> None:
    instance = instances("stream.map(e => { if (e === 7) for (;;); return e; })", limits=Limits(event_cpu_ms=30))
    with pytest.raises(GuestTrap) as trapped:
        instance.run(batch_of(list(range(20))))
    assert trapped.value.suspects == range(7, 8)
    assert trapped.value.kind == "timeout"


@pytest.mark.parametrize(
    "bomb",
    [
        "for (;;);",
        "while (true) Date.now();",
        "/(a+)+b/.test('a'.repeat(40));",
        "let n = 2n; for (;;) n *= n;",
        "[1, 2, 3].sort(() => { for (;;); });",
        "for (const x of (function* () { for (;;) yield 1; })());",
        "new Array(1e6).fill(0).map((_, i) => i).reduce((a, b) => { while (true); });",
        "try { for (;;); } finally { for (;;); }",
        "Array.from({ length: 1e9 });",
        "JSON.stringify({ toJSON() { for (;;); } });",
        "Object.defineProperty({}, 'x', { get() { for (;;); } }).x;",
        "while (true) try { null.x; } catch {}",
        "if (typeof Atomics === 'object') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); for (;;);",
    ],
)
def test_no_event_runs_past_its_budget(local: Local, bomb: str) -> None:
    source = f"stream.map(e => {{ if (e === 1) {{ {bomb} }} return e; }})"
    run = local(source, limits=Limits(event_cpu_ms=40, guest_memory_bytes=24 * 2**20)).feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert [failure.event for failure in run.failures] == [1]


@pytest.mark.parametrize(
    "bomb",
    [
        "const all = []; for (;;) all.push(new Array(1000).fill(all));",
        "let s = 'x'; for (;;) s += s;",
        "'x'.repeat(2 ** 30 - 1) + 'y'.repeat(2 ** 29);",
        "new Uint8Array(2 ** 31 - 1).fill(1);",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, [i]);",
        "globalThis.kept = []; for (;;) kept.push('x'.repeat(1e6) + kept.length);",
    ],
)
def test_an_event_that_eats_memory_becomes_one_failure(local: Local, bomb: str) -> None:
    source = f"stream.map(e => {{ if (e === 1) {{ {bomb} }} return 'x'.repeat(1e5).length + e; }})"
    run = local(source, limits=Limits(event_cpu_ms=4000, event_wall_ms=8000, guest_memory_bytes=16 * 2**20)).feed(
        [0, 1, 2]
    )
    assert run.values() == [100000, 100002]
    assert [failure.event for failure in run.failures] == [1]


@pytest.mark.parametrize(
    "bomb",
    [
        "const f = () => f() + 1; f();",
        "const o = {}; o.toString = () => `${o}`; `${o}`;",
        "let d = []; for (let i = 0; i < 1e5; i++) d = [d]; return d;",
        "let d = '['.repeat(1e5) + ']'.repeat(1e5); JSON.parse(d);",
        "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x;",
        "state.s.x = (() => { let d = {}; for (let i = 0; i < 1e5; i++) d = { d }; return d; })();",
        "'x'.replace(/x/, function again() { return 'x'.replace(/x/, again); });",
    ],
)
def test_an_event_that_recurses_becomes_one_failure(local: Local, bomb: str) -> None:
    source = f"stream.map(e => {{ if (e === 1) {{ {bomb} }} return e; }})"
    run = local(source, limits=Limits(event_cpu_ms=2000)).feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert [failure.event for failure in run.failures] == [1]


def test_the_output_limits_hold(local: Local) -> None:
    limits = Limits(outputs_per_event=10, output_bytes=100)
    run = local("stream.flatMap(n => Array(n).fill(1))", limits=limits).feed([10, 11])
    assert len(run.outputs) == 10
    assert "outputs_per_event" in run.failures[0].error
    run = local("stream.map(n => 'é'.repeat(n))", limits=limits).feed([49, 50])
    assert len(run.outputs) == 1
    assert "output_bytes" in run.failures[0].error
    endless = local("stream.flatMap(function* () { for (;;) yield 1; })", limits=limits)
    assert "outputs_per_event" in endless.feed([1]).failures[0].error


def test_a_flood_of_log_lines_is_cut(instances: Open) -> None:
    instance = instances(
        "stream.map(e => { for (let i = 0; i < 5000; i++) console.log('x'.repeat(100)); })",
        limits=Limits(event_cpu_ms=2000),
    )
    result = instance.run(batch_of([1, 2, 3]))
    assert sum(len(line.message) for line in result.logs) < 4 * Limits().log_bytes
    assert [line.index for line in result.logs if "log_bytes" in line.message] == [0, 1, 2]


def test_condemned_events_are_skipped_and_keep_their_fault(instances: Open) -> None:
    schema = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer"}, "at": {"type": "array", "items": {"type": "number"}}},
    }
    source = "stream.map(e => { state.seen[e.n] = 1; return e.n; })"
    instance = instances(source, input_schema=schema)
    result = instance.run(batch_of([{"n": 1}, {"n": "two"}, {"n": 3}, {"n": 4, "at": [1, "x"]}, {}]))
    assert values(result.outputs[0].values) == [1, 3]
    assert result.outputs[0].sources == [0, 2]
    assert values(result.state[0].put_keys) == ["1", "3"]
    assert [(fault.index, fault.error.split(":")[1].strip()) for fault in result.faults] == [
        (1, "$.n"),
        (3, "$.at[1]"),
        (4, "$"),
    ]


# Promises.

ASYNC = """
const later = (n) => new Promise(resolve => queueMicrotask(() => resolve(n)));
stream.map(async (event) => {
  state.n[event.id] = (state.n[event.id] || 0) + 1;
  await null;
  const n = await later(event.n);
  state.n[event.id] += n;
  if (event.fail) throw new Error('rejected');
  return state.n[event.id];
});
"""


def test_promises_settle_within_the_event_and_roll_back(local: Local) -> None:
    function = local(ASYNC)
    run = function.feed(
        [{"id": "a", "n": 10}, {"id": "a", "n": 100, "fail": 1}, {"id": "b", "n": 1}, {"id": "a", "n": 5}]
    )
    assert run.values() == [11, 2, 17]
    assert function.state("n") == {"a": 17, "b": 2}
    assert [(failure.event, failure.error) for failure in run.failures] == [(1, "Error: rejected")]


def test_a_promise_that_never_settles_fails_its_event_only(local: Local) -> None:
    function = local("stream.map(e => { state.s.x = e; return e === 1 ? new Promise(() => {}) : Promise.resolve(e); })")
    run = function.feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert "never settles" in run.failures[0].error
    assert function.state("s") == {"x": 2}


def test_promises_that_never_settle_do_not_prolong_the_time_slice(instances: Open) -> None:
    source = (
        CLOCK
        + "stream.map(e => { const end = Date.now() + 10; while (Date.now() < end); return new Promise(() => {}); })"
    )
    result = instances(source, slice_ms=300).run(batch_of(range(200)))
    assert 0 < result.processed < 200
    assert len(result.faults) == result.processed


def test_many_async_events_in_one_batch(local: Local) -> None:
    assert local("stream.map(async e => { await 1; return e; })").feed(range(500)).values() == list(range(500))


def test_async_steps_anywhere_in_a_chain(local: Local) -> None:
    source = """
    stream.filter(async e => e % 2 === 1).map(e => Promise.resolve(e * 10)).flatMap(async e => [e, e + 1]).peek(async () => {});
    stream.map(e => e);
    """  # noqa: E501
    run = local(source).feed([1, 2, 3])
    assert [(out.event, out.value) for out in run.outputs] == [
        (0, 10),
        (0, 11),
        (0, 1),
        (1, 2),
        (2, 30),
        (2, 31),
        (2, 3),
    ]


def test_an_endless_chain_of_promises_is_stopped(local: Local) -> None:
    source = "stream.map(async e => { while (e === 1) await 0; return e; })"
    run = local(source, limits=Limits(event_cpu_ms=40)).feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert "event_cpu_ms" in run.failures[0].error


def test_an_unhandled_rejection_fails_its_event(local: Local, plugin: object) -> None:
    if not plugin.has_extras:  # type: ignore[attr-defined]
        pytest.skip("only the built-in plugin tells of rejections")
    source = "stream.map(e => { if (e === 1) { state.s.x = 1; Promise.reject(new Error('nobody')); } return e; })"
    function = local(source)
    run = function.feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert run.failures[0].error == "Error: nobody"
    assert function.state("s") == {}


def test_what_a_promise_does_after_its_event_does_not_reach_the_next(local: Local, plugin: object) -> None:
    if not plugin.has_extras:  # type: ignore[attr-defined]
        pytest.skip("only the built-in plugin runs promise jobs at will")
    source = "stream.map(e => { Promise.resolve().then(() => { state.late[e] = 1; }); if (e === 1) throw new Error('x'); return e; })"  # noqa: E501
    function = local(source)
    assert function.feed([0, 1, 2]).values() == [0, 2]
    assert function.state("late") == {"0": 1, "2": 1}


def test_what_runs_on_after_the_batch_is_stopped_and_blamed_on_its_event(local: Local) -> None:
    source = "stream.map(e => { if (e === 1) Promise.resolve().then(() => { for (;;); }); return e; })"
    run = local(source, limits=Limits(event_cpu_ms=40)).feed([0, 1, 2])
    assert run.values() == [0, 2]
    assert [failure.event for failure in run.failures] == [1]


def test_emit_after_the_event_is_refused(local: Local) -> None:
    source = "let kept; export const config = {emits: ['x']}; export default (e, c) => { if (kept) kept.emit('x', 1); kept = c; return 1; }"  # noqa: E501
    run = local(source).feed([0, 1])
    assert "after its event had ended" in run.failures[0].error


def test_an_error_of_the_state_reader_comes_out_as_it_is(instances: Open) -> None:
    class Down(MemoryState):
        def read(self, collection_id: int, keys: object) -> list[None]:
            raise ConnectionError("gone")

    instance = instances(
        "stream.map(e => { try { state.x.y; } catch { } for (;;); })", Down(), outputs=(OutputStream("s"),)
    )
    with pytest.raises(ConnectionError, match="gone"):
        instance.run(batch_of([1]))


def test_slow_reads_condemn_no_event(instances: Open) -> None:
    class Slow(MemoryState):
        def read(self, collection_id: int, keys: object) -> object:
            time.sleep(0.03)
            return super().read(collection_id, keys)  # type: ignore[arg-type]

    source = "stream.map(e => { for (let i = 0; i < 20; i++) state.x['k' + i]; return state.x.y ?? 'none'; })"
    instance = instances(source, Slow(), limits=Limits(event_cpu_ms=50, event_wall_ms=150))
    assert values(instance.run(batch_of([1])).outputs[0].values) == ["none"]


def test_how_often_an_event_asks_for_state_is_bounded(instances: Open) -> None:
    source = "stream.map(e => { for (let i = 1; i < e; i++) try { state.x[e + 'k' + i]; } catch { } return e; })"
    limits = Limits(event_cpu_ms=5000, state_requests=30)
    assert len(values(instances(source, limits=limits).run(batch_of([30, 28, 27])).outputs[0].values)) == 3
    with pytest.raises(GuestTrap, match="asked for state more than 30 times") as caught:
        instances(source, limits=limits).run(batch_of([29, 32, 27]))
    assert caught.value.suspects == range(1, 2)


def test_an_event_that_uses_state_with_no_stack_left_corrupts_nothing(instances: Open) -> None:
    source = """
    stream.map((event, context) => {
      if (event.read) return [Object.entries(state.a), Object.entries(state.b), state.c.n ?? 0];
      let left = 120;
      const act = n => {
        const key = event.from + '-' + n % 14;
        switch (n % 7) {
          case 0: state.a['k' + key] = n; state.a['k' + key] = n + 1; break;
          case 1: (state.b['o' + key] ??= { list: [] }).list.push(n); break;
          case 2: delete state.a['k' + (event.from - 1) + '-' + n % 14]; break;
          case 3: context.emit('side', { n: event.from }, { key: 'e' + event.from }); break;
          case 4: state.c.n = (state.c.n ?? 0) + 1; break;
          case 5: state.b['o' + key] = { list: [n], text: 'x'.repeat(n % 50) }; break;
          default: 'k3' in state.a;
        }
      };
      // Down to where the stack ends; then, coming back, something at each level: first with no room, then with more.
      const dive = n => {
        try { dive(n + 1); } catch { }
        if (left-- > 0) try { act(n); } catch { }
      };
      // Starting a little deeper each time, the stack ends in another place.
      const shifted = k => k === 0 ? dive(0) : shifted(k - 1);
      shifted(event.from % 17);
      if (event.fail) throw new Error('as asked');
      return event.from;
    });
    """
    from jeet.sandbox.limits import Limits as L

    outputs = (OutputStream("sink", None), OutputStream("side"))
    limits = L(event_cpu_ms=4000, event_wall_ms=8000, outputs_per_event=100_000)
    state = MemoryState()
    instance = instances(source, state, outputs=outputs, limits=limits)
    committed = 0
    for round_ in range(10):
        events = [{"from": round_ * 8 + n, "fail": n % 2 == 0} for n in range(8)] + [{"read": 1}]
        batch = batch_of(events, keys=[f"e{n}" for n in range(9)], committed=committed)
        try:
            result = instance.run(batch)
        except GuestTrap:
            # The engine itself may give up on deep recursion: then nothing of the batch counts.
            instance = instances(source, state, outputs=outputs, limits=limits)
            committed = 0
            continue
        for group in result.outputs:
            lines, sources = values(group.values), group.sources or range(group.count)
            assert len(lines) == group.count == len(list(sources)) == len(group.keys.split("\n"))
            if group.stream == 1:
                made_by = [events[source]["from"] for source in sources]
                assert [line["n"] for line in lines] == made_by
                assert values(group.keys) == [f"e{number}" for number in made_by]
        seen = values(result.outputs[0].values)[-1]
        state.apply(result, batch.now_ms)
        committed = result.sequence
        fresh = instances(source, state, outputs=outputs, limits=limits).run(batch_of([{"read": 1}]))
        assert values(fresh.outputs[0].values)[-1] == seen


def test_an_event_that_is_no_json_is_a_fault_of_its_own(instances: Open) -> None:
    texts = [b'{"a":1}', b'{"a":', b'{"a":3}x', b'\xef\xbb\xbf{"a":1}', b'{"a":"\\u00e9\xc3\xa9"}']
    batch = replace(batch_of([0] * len(texts)), values=b"\n".join(texts))
    result = instances("stream.map(e => e.a)").run(batch)
    assert values(result.outputs[0].values) == [1, "éé"]
    assert result.outputs[0].sources == [0, 4]
    assert [fault.index for fault in result.faults] == [1, 2, 3]
    assert all(fault.error.startswith("SyntaxError: ") for fault in result.faults)


def test_what_comes_with_an_event_is_there_after_state_has_been_read(instances: Open) -> None:
    state = MemoryState({"a": StateConfig()})
    state.collection("a")
    state.rows[1] = {f"k{i}": (json.dumps("x" * 9000), None) for i in range(3)}
    parts = "state.a[e].length, context.timestamp, context.key, context.headers.h, context.offset"
    source = f"stream.map((e, context) => [{parts}])"
    events = ["k0", "k1", "k2"]
    result = instances(source, state).run(
        batch_of(events, keys=["a", "b", "c"], first=5, headers=[{"h": event} for event in events])
    )
    assert result.faults == []
    assert values(result.outputs[0].values) == [
        [9000, 1_700_000_000_000 + i, "abc"[i], event, 5 + i] for i, event in enumerate(events)
    ]
