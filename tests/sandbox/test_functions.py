"""Functions as people write them, in every form that deploys."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest

from jeet.errors import DeployError
from jeet.sandbox.call import GuestTrap, OutputStream
from jeet.sandbox.limits import Limits
from jeet.testing import MemoryState

from .conftest import CLOCK, TOTALS, Local, Open, batch_of, values


def test_the_running_total_is_exact_for_any_string_as_key(local: Local) -> None:
    users = ["u1", "__proto__", "constructor", "toString", "", "a\nb", "é", "🌍", "hasOwnProperty"]
    totals = local(TOTALS)
    run = totals.feed([{"userId": user, "amount": amount} for amount in range(1, 6) for user in users])
    assert run.failures == []
    assert [(out["userId"], out["currentTotal"]) for out in run.values()] == [
        (user, sum(range(1, amount + 1))) for amount in range(1, 6) for user in users
    ]
    assert totals.state("totals") == dict.fromkeys(sorted(users, key=str.encode), 15)


def test_a_default_export_is_a_graph_of_one_stage(local: Local) -> None:
    for source in (
        "export default (event) => ({ n: event.n + 1 });",
        "export default function add(event) { return { n: event.n + 1 }; }",
        "export default function (event) { return { n: event.n + 1 }; }",
        "const add = event => ({ n: event.n + 1 });\nexport { add as default };",
        "export default async (event) => ({ n: event.n + 1 })",
    ):
        assert local(source).feed([{"n": 1}, {"n": 2}]).values() == [{"n": 2}, {"n": 3}]


def test_no_result_makes_no_output(local: Local) -> None:
    run = local("export default e => e.n === 1 ? undefined : e.n === 2 ? null : e.n").feed(
        [{"n": 1}, {"n": 2}, {"n": 3}]
    )
    assert [(out.event, out.value) for out in run.outputs] == [(2, 3)]


def test_operators_chain_and_several_chains_share_their_input(local: Local) -> None:
    source = """
    const big = stream.filter(e => e.n > 1);
    big.map(e => ({ doubled: e.n * 2 })).peek(e => console.log('saw', e)).filter(e => e.doubled !== 6);
    big.flatMap(e => [e.n, [e.n]]);
    """
    run = local(source).feed([{"n": 1}, {"n": 2}, {"n": 3}])
    assert run.failures == []
    assert [(out.event, out.value) for out in run.outputs] == [(1, {"doubled": 4}), (1, 2), (1, [2]), (2, 3), (2, [3])]
    assert [line.message for line in run.logs] == [
        "saw {doubled: 4}".replace("{d", "{ d").replace("4}", "4 }"),
        "saw { doubled: 6 }",
    ]


def test_the_context_tells_where_an_event_stands(instances: Open) -> None:
    source = """
    stream.map((event, context) => {
      const { key, partition, offset, timestamp, headers, version, attempt } = context;
      return [key, partition, offset, timestamp, headers, context.function, version, attempt];
    });
    """
    instance = instances(source, function="orders", version=7, partition=3)
    result = instance.run(batch_of([{}, {}], keys=["k", None], first=41, headers=[{"trace": "x"}, None], attempts=2))
    assert values(result.outputs[0].values) == [
        ["k", 3, 41, 1_700_000_000_000, {"trace": "x"}, "orders", 7, 2],
        [None, 3, 42, 1_700_000_000_001, {}, "orders", 7, 2],
    ]


def test_offsets_of_redriven_events_are_their_own(instances: Open) -> None:
    instance = instances("stream.map((e, c) => c.offset)")
    result = instance.run(batch_of([1, 2], offsets=[2**40, 5]))
    assert values(result.outputs[0].values) == [2**40, 5]


def test_emit_writes_to_declared_streams_only(local: Local) -> None:
    source = """
    export const config = { emits: ['alerts'] };
    stream.map((event, context) => {
      context.emit('alerts', { from: event.n }, { key: `k${event.n}` });
      context.emit('alerts', 'again', { key: 7 });
      if (event.n === 2) context.emit('elsewhere' + '', 1);
      return event.n;
    });
    """
    run = local(source).feed([{"n": 1}, {"n": 2}, {"n": 3}])
    assert [(out.stream, out.key, out.value, out.event) for out in run.outputs] == [
        ("sink", None, 1, 0),
        ("alerts", "k1", {"from": 1}, 0),
        ("alerts", "7", "again", 0),
        ("sink", None, 3, 2),
        ("alerts", "k3", {"from": 3}, 2),
        ("alerts", "7", "again", 2),
    ]
    assert len(run.failures) == 1
    assert "config.emits" in run.failures[0].error
    assert '"elsewhere"' in run.failures[0].error


def test_an_output_key_is_that_of_emit_else_of_the_path_else_of_the_event(instances: Open) -> None:
    source = "stream.map((e, c) => { c.emit('other', 1); c.emit('keyed', {user: {id: e.n}}, e.k ? {key: e.k} : {}); return {user: {id: e.n}}; })"  # noqa: E501
    instance = instances(
        source, outputs=(OutputStream("sink", "user.id"), OutputStream("other"), OutputStream("keyed", "user.id"))
    )
    result = instance.run(
        batch_of([{"n": "a"}, {"n": 5, "k": "mine"}, {"n": [1]}, {"n": "z"}], keys=["k0", "k1", "k2", "k3"])
    )
    by_stream = {group.stream: group for group in result.outputs}
    assert values(by_stream[0].keys) == ["a", "5", "z"]
    assert by_stream[0].sources == [0, 1, 3]
    assert values(by_stream[1].keys) == ["k0", "k1", "k3"]
    assert values(by_stream[2].keys) == ["a", "mine", "z"]
    assert [fault.index for fault in result.faults] == [2]
    assert "user.id" in result.faults[0].error
    assert "an array" in result.faults[0].error


def test_one_output_an_event_needs_no_sources_and_keeps_the_keys(instances: Open) -> None:
    result = instances(TOTALS).run(batch_of([{"userId": "u", "amount": 1}] * 3, keys=["a", "b", "c"]))
    group = result.outputs[0]
    assert (group.sources, group.count, values(group.keys)) == (None, 3, ["a", "b", "c"])


def test_to_sends_a_chain_to_a_stream(local: Local) -> None:
    function = local("stream.filter(e => e.n > 1).to('big'); stream.map(e => e.n);")
    assert [(emit.name, emit.declared) for emit in function.description.emits] == [("big", True)]
    run = function.feed([{"n": 1}, {"n": 2}])
    assert (run.values("big"), run.values()) == ([{"n": 2}], [1, 2])


def test_without_a_sink_results_go_nowhere(instances: Open) -> None:
    instance = instances(
        "stream.map((e, c) => { c.emit('x', e); return e; })", outputs=(OutputStream(""), OutputStream("x")), sink=False
    )
    result = instance.run(batch_of([1, 2]))
    assert [(group.stream, group.values) for group in result.outputs] == [(1, "1\n2")]


def test_console_lines_are_kept_in_order_with_their_events(local: Local) -> None:
    source = """
    stream.map(e => {
      console.log('seen', e, [1, 'two', null], undefined);
      console.warn(new Map([[1, { a: 1 }]]), 5n, Symbol('s'));
      if (e.n === 1) throw new Error('no');
    });
    """
    run = local(source).feed([{"n": 1}, {"n": 2}])
    assert [(line.index, line.level, line.message) for line in run.logs] == [
        (0, "info", 'seen { n: 1 } [1, "two", null] undefined'),
        (0, "warning", "Map { 1 => { a: 1 } } 5n Symbol(s)"),
        (1, "info", 'seen { n: 2 } [1, "two", null] undefined'),
        (1, "warning", "Map { 1 => { a: 1 } } 5n Symbol(s)"),
    ]


def test_random_numbers_depend_on_the_place_in_the_log_only(instances: Open) -> None:
    source = "stream.map(() => [Math.random(), Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(3))]])"  # noqa: E501
    whole = values(instances(source).run(batch_of([1, 2, 3], first=10)).outputs[0].values)
    again = instances(source)
    parts = values(again.run(batch_of([1], first=10)).outputs[0].values) + values(
        again.run(batch_of([2, 3], first=11)).outputs[0].values
    )
    assert whole == parts
    assert len({json.dumps(drawn) for drawn in whole}) == 3
    assert whole != values(instances(source, partition=1).run(batch_of([1, 2, 3], first=10)).outputs[0].values)
    assert all(0 <= drawn[0] < 1 and drawn[2][14] == "4" and drawn[2][19] in "89ab" for drawn in whole)


def test_time_is_the_hosts(instances: Open) -> None:
    result = instances("stream.map(() => [Date.now(), new Date().getTime()])").run(batch_of([1], now_ms=86_400_000.0))
    now, date = values(result.outputs[0].values)[0]
    assert 86_400_000 <= now <= date < 86_400_000 + 60_000


def test_time_stands_still_while_an_event_runs(instances: Open) -> None:
    source = """
    stream.map(e => {
      const now = Date.now();
      for (let i = 0; i < 300000; i++);
      const made = new Date();
      return [now, made.getTime(), Date.now(), made instanceof Date, made.constructor === Date, new Date(5).getTime(),
              new (class extends Date {})().getTime(), typeof Date(), Date.UTC(1970, 0, 2), Date.length];
    });"""
    result = instances(source).run(batch_of(range(20), now_ms=86_400_000.0))
    for now, *rest in values(result.outputs[0].values):
        assert 86_400_000 <= now < 86_400_000 + 60_000
        assert rest == [now, now, True, True, 5, now, "string", 86_400_000, 7]


def test_an_event_that_waits_for_the_clock_to_move_is_not_kept_waiting_for_ever(instances: Open) -> None:
    source = """stream.map(e => {
      const start = Date.now();
      while (Date.now() < start + 3);
      return Date.now() - start;
    });"""
    result = instances(source).run(batch_of([1, 2]))
    assert not result.faults
    assert all(waited >= 3 for waited in values(result.outputs[0].values))


def test_a_function_that_is_not_deterministic_has_the_clock_and_draws_anew(instances: Open) -> None:
    source = """export const config = { deterministic: false };
    stream.map(e => { const end = Date.now() + 2; while (Date.now() < end); return Math.random(); });"""
    drawn = [values(instances(source).run(batch_of([1, 2])).outputs[0].values) for _ in range(2)]
    assert len({*drawn[0], *drawn[1]}) == 4


def test_a_time_slice_ends_a_batch_early_and_the_rest_can_be_given_again(instances: Open) -> None:
    source = CLOCK + "stream.map(e => { const end = Date.now() + 4; while (Date.now() < end); return e; })"
    instance = instances(source, slice_ms=20)
    seen: list[int] = []
    runs = 0
    while len(seen) < 40:
        result = instance.run(batch_of(list(range(len(seen), 40)), first=len(seen)))
        assert result.processed == result.outputs[0].count > 0
        assert result.outputs[0].sources is None
        seen += values(result.outputs[0].values)
        runs += 1
    assert seen == list(range(40))
    assert runs > 1


class SlowState(MemoryState):
    """A database that takes its time."""

    def __init__(self, read_s: float) -> None:
        super().__init__()
        self.read_s = read_s

    def read(self, collection_id: int, keys: Sequence[str]) -> Sequence[tuple[str, float | None] | None]:
        time.sleep(self.read_s)
        return super().read(collection_id, keys)


@pytest.mark.parametrize(("slice_ms", "whole"), [(1000, True), (100, False)])
def test_a_time_slice_is_cpu_time_but_does_not_last_for_ever(instances: Open, slice_ms: float, whole: bool) -> None:
    instance = instances("stream.map(e => state.s[e] ?? e)", SlowState(0.1), slice_ms=slice_ms)
    processed = instance.run(batch_of(list(range(12)))).processed
    assert (processed == 12) is whole


def test_sequences_count_the_batches_of_an_instance(instances: Open) -> None:
    instance = instances("stream.map(e => e)")
    assert [instance.run(batch_of([1])).sequence for _ in range(3)] == [1, 2, 3]


def test_a_big_batch_passes_whole(instances: Open) -> None:
    events = [{"userId": f"user-{n % 97}", "amount": n, "pad": "ü" * (n % 50)} for n in range(5000)]
    state = MemoryState()
    result = instances(TOTALS, state).run(batch_of(events, keys=[event["userId"] for event in events]))
    assert result.processed == 5000
    expected: dict[str, int] = {}
    for event, output in zip(events, values(result.outputs[0].values), strict=True):
        expected[event["userId"]] = expected.get(event["userId"], 0) + event["amount"]
        assert output == {"userId": event["userId"], "currentTotal": expected[event["userId"]]}
    assert state.reads == 1


@pytest.mark.parametrize(
    ("count", "text"), [(4000, "x" * 950), (3000, "語" * 400), (4, "x" * (2**20 - 60)), (30, "é🌍" * 7_000)]
)
def test_batches_of_four_mebibytes_fit(instances: Open, count: int, text: str) -> None:
    instance = instances("stream.map(e => { state.last[e.k] = e; return e; })")
    events = [{"k": f"k{n}", "text": text} for n in range(count)]
    done = sequence = 0
    while done < count:
        result = instance.run(batch_of(events[done:], first=done, committed=sequence))
        assert result.faults == []
        assert result.outputs[0].count == result.state[0].puts == result.processed
        done, sequence = done + result.processed, result.sequence


def test_a_plugin_that_shows_no_progress_still_runs_and_stops(instances: Open) -> None:
    source = "stream.map(e => { state.n.x = (state.n.x ?? 0) + 1; if (e === 'bad') for (;;); return state.n.x; })"
    instance = instances(source, limits=Limits(event_cpu_ms=40))
    instance._machine.shared_at = 0
    result = instance.run(batch_of(list(range(3000))))
    assert values(result.outputs[0].values) == list(range(1, 3001))
    with pytest.raises(GuestTrap) as trapped:
        instance.run(batch_of(["bad"]))
    assert trapped.value.suspects == range(1)


@pytest.mark.parametrize("source", ["const x = 1;", "export const config = {};"])
def test_a_module_that_runs_nothing_is_refused(local: Local, source: str) -> None:
    with pytest.raises(DeployError, match="nothing to run"):
        local(source)
