"""A stage of a graph: which nodes run, what goes to other stages, and operators that keep a value per key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jeet.errors import DeployError
from jeet.plan import Cut, StageInput, StageOutput
from jeet.sandbox.call import GuestTrap, OutputStream, StateConfig
from jeet.sandbox.plugin import Plugin
from jeet.testing import LocalFunction

from .conftest import Local, batch_of, values
from .conftest import Open as OpenInstance
from .stages import Open, plan_of

INTERNAL = StageOutput("f/rekey1", internal=True)
TWO_STAGES = (
    "stream.filter(e => e.n > 0).keyBy(e => e.user, { name: 'rekey1' }).map((e, c) => [e.n, c.key, c.timestamp]);"
)


def test_what_reaches_a_cut_goes_to_the_next_stage_by_its_new_key_and_with_its_time(stages: Open) -> None:
    above = stages(TWO_STAGES, plan_of(outputs=(StageOutput(None), INTERNAL), cuts=(Cut(2, 1),), timed=False))
    above.feed(
        [("old", {"n": 1, "user": "u"}, 5), ("old", {"n": 0, "user": "u"}, 6), ("old", {"n": 2, "user": 7}, 7.9)]
    )
    assert above.seen.outputs == [(1, "u", {"n": 1, "user": "u"}, 5.0), (1, "7", {"n": 2, "user": 7}, 7.0)]
    below = stages(TWO_STAGES, plan_of(StageInput("f/rekey1", (2,), internal=True)))
    below.feed([("u", {"n": 1}, 5)])
    assert below.seen.outputs == [(0, "u", [1, "u", 5], None)]


@pytest.mark.parametrize("key", [None, [1], {}, True, 1.5, "x" * 2000])
def test_an_event_that_has_no_new_key_fails(stages: Open, key: Any) -> None:
    above = stages(TWO_STAGES, plan_of(outputs=(StageOutput(None), INTERNAL), cuts=(Cut(2, 1),), timed=False))
    above.feed([("old", {"n": 1, "user": key}, 5), ("old", {"n": 1, "user": "u"}, 5)])
    assert [output[1] for output in above.seen.outputs] == ["u"]
    assert "the key of keyBy (line 1)" in above.seen.faults[0][1]


def test_a_cut_carries_the_time_that_a_later_window_asks_for_and_raises_the_watermark(stages: Open) -> None:
    source = "stream.keyBy('k').window({ tumbling: '1m', time: e => e.at, delay: '1s' }).count();"
    plan = plan_of(outputs=(StageOutput(None), INTERNAL), cuts=(Cut(1, 1, time_of=2, timed=True),), delay_ms=1000.0)
    above = stages(source, plan)
    above.feed([(None, {"k": "a", "at": 70_000}, 0), (None, {"k": "a", "at": 10}, 0), (None, {"k": "a", "at": "?"}, 0)])
    assert [(key, ms) for _, key, _, ms in above.seen.outputs] == [("a", 70_000.0), ("a", 10.0)]
    assert above.task.watermark_ms == 69_000
    assert "window: time gave" in above.seen.faults[0][1]


def test_a_stage_that_only_copies_leaves_events_as_they_are(stages: Open) -> None:
    plan = plan_of(outputs=(StageOutput(None), StageOutput("f/in-copy", internal=True)), cuts=(Cut(0, 1, rekey=False),))
    copy = stages("stream.map(e => { throw new Error('not here'); });", plan)
    copy.feed([("k", {"a": 1}, 5), (None, [2], 6)])
    assert copy.seen.outputs == [(1, "k", {"a": 1}, 5.0), (1, None, [2], 6.0)]
    keyed = (StageOutput(None), StageOutput("f/rekey0", "user.id", internal=True))
    rekey = stages("stream.map(e => e);", plan_of(outputs=keyed, cuts=(Cut(0, 1, rekey=False),)))
    rekey.feed([("k", {"user": {"id": "u"}}, 5), ("k", {}, 6)])
    assert [output[1] for output in rekey.seen.outputs] == ["u"]
    assert "user.id" in rekey.seen.faults[0][1]


def test_outputs_and_times_of_an_event_that_fails_are_taken_back(instances: OpenInstance) -> None:
    source = """
    const keyed = stream.keyBy('k');
    stream.map(e => { if (e.bad) throw new Error('bad'); return e.i; });
    keyed.map(e => e);
    """
    plan = plan_of(outputs=(StageOutput("out"), INTERNAL), cuts=(Cut(1, 1),), timed=False)
    outputs = (OutputStream("out"), OutputStream("f/rekey1", internal=True))
    result = instances(source, plan=plan, outputs=outputs).run(
        batch_of([{"k": "a", "i": i, "bad": i % 3 == 1} for i in range(9)], keys=["x"] * 9)
    )
    assert values(result.outputs[0].values) == [0, 2, 3, 5, 6, 8]
    assert result.outputs[1].sources == [0, 2, 3, 5, 6, 8]
    assert result.outputs[1].times == "\n".join(str(1_700_000_000_000 + i) for i in (0, 2, 3, 5, 6, 8))
    assert [fault.index for fault in result.faults] == [1, 4, 7]


def test_user_code_cannot_name_a_stream_between_stages(instances: OpenInstance) -> None:
    outputs = (OutputStream("sink"), OutputStream("f/rekey1", internal=True))
    result = instances("stream.map((e, c) => { c.emit('f/rekey1', 1); return 1; })", outputs=outputs).run(batch_of([1]))
    assert "declares no output stream" in result.faults[0].error


def test_a_plan_that_leaves_a_key_uncut_does_not_run(instances: OpenInstance) -> None:
    with pytest.raises(GuestTrap, match="does not cut the graph at keyBy in line 1"):
        instances("stream.keyBy('k').map(e => e);")


def test_merged_and_branched_streams(stages: Open) -> None:
    source = """
    const [big, even] = stream.branch(e => e > 10, async e => { await 1; return e % 2 === 0; });
    big.map(e => `big ${e}`).merge(even.map(e => `even ${e}`), stream.from('more')).map(e => `<${e}>`);
    even.to('late');
    """
    stage = stages(source, plan_of(StageInput("in", (0,)), StageInput("more", (5,)), timed=False))
    stage.feed([("k", n, 0) for n in (12, 1, 4)])
    stage.feed([("k", "more", 0)], 1)
    assert stage.seen.outputs == [
        (0, "k", "<big 12>", None),
        (0, "k", "<even 4>", None),
        (1, "k", 4, None),
        (0, "k", "<more>", None),
    ]


KEYED = """
stream.reduce((acc, e) => { acc.n += e.n; if (e.bad) throw new Error('bad'); return acc; });
stream.aggregate({ init: () => [], add: async (acc, e) => { await 1; acc.push(e.n); return acc; } });
stream.count();
stream.sum('n').map(r => { r.value = `${r.value}`; return r; });
"""


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_values_per_key_are_given_at_every_event_and_survive_batches_and_failures(stages: Open, cut: int) -> None:
    stage = stages(KEYED, plan_of(timed=False))
    rows = [("a", 1, False), ("b", 5, False), ("a", 2, False), ("a", 100, True), ("a", 3, False)]
    stage.feed([(key, {"n": n, "bad": bad}, 0) for key, n, bad in rows], cut=cut)
    last = stage.seen.values()[-4:]
    assert [one["value"] for one in last] == [{"n": 6, "bad": False}, [1, 2, 3], 3, "6"]
    assert len(stage.seen.values()) == 16
    assert [error for _, error in stage.seen.faults] == ["Error: bad"]
    assert stage.state("reduce") == {"a": {"n": 6, "bad": False}, "b": {"n": 5, "bad": False}}
    assert stage.state("aggregate") == {"a": [1, 2, 3], "b": [5]}
    assert (stage.state("count"), stage.state("sum")) == ({"a": 3, "b": 1}, {"a": 6, "b": 5})


def test_what_follows_cannot_reach_into_the_state_of_an_operator(stages: Open) -> None:
    source = "stream.aggregate({ init: () => ({ n: 0 }), add: (a, e) => { a.n += e; return a; } }).map(r => { r.value.n = 99; return 1; });"  # noqa: E501
    stage = stages(source, plan_of(timed=False))
    stage.feed([("a", 1, 0), ("a", 2, 0)])
    assert stage.state("aggregate") == {"a": {"n": 3}}


def test_any_string_is_a_key_of_an_operator(stages: Open) -> None:
    keys = ["__proto__", "constructor", "", "a\nb", "🌍", "a|b"]
    stage = stages("stream.count(); stream.dedupe('id');", plan_of(timed=False))
    stage.feed([(key, {"id": 1}, 0) for key in keys * 2])
    assert stage.state("count") == dict.fromkeys(sorted(keys), 2)
    assert len(stage.state("dedupe")) == len(keys)


def test_an_operator_says_what_a_handler_got_wrong(stages: Open) -> None:
    for source, error in (
        ("stream.reduce((a, b) => {});", "reduce returned nothing"),
        ("stream.aggregate({ init: () => 0, add: () => {} });", "aggregate: add returned nothing"),
        ("stream.sum(e => 'x');", 'sum got "x" to add'),
        ("stream.sum('nothing');", "sum got undefined to add"),
        ("stream.dedupe('nothing');", "dedupe: the id is missing"),
        ("stream.aggregate({ init: () => 0, add: () => NaN });", "state.aggregate"),
    ):
        stage = stages(source, plan_of(timed=False))
        stage.feed([("k", {"n": 1}, 0), ("k", {"n": 1}, 0)])
        assert error in stage.seen.faults[-1][1]


def test_the_first_of_each_id_within_its_key_goes_on_for_as_long_as_it_is_kept(stages: Open) -> None:
    config = {"dedupe": StateConfig(ttl_ms=60_000)}
    stage = stages("stream.dedupe(e => e.id, { ttl: '1m' }).map(e => e.n);", plan_of(timed=False), states=config)
    rows = [("a", 1, 1), ("a", 1, 2), ("b", 1, 3), ("a", "1", 4), ("a", 2, 5), ("b", 1, 6)]
    stage.feed([(key, {"id": i, "n": n}, 0) for key, i, n in rows], cut=3)
    assert stage.seen.values() == [1, 3, 5]
    assert sorted(stage.state("dedupe")) == ['["a","1"]', '["a","2"]', '["b","1"]']
    assert stage.task.state.configs["dedupe"].ttl_ms == 60_000


def test_a_batch_s_state_is_read_in_few_requests(stages: Open) -> None:
    source = """
    stream.window({ tumbling: '1m', time: 'at' }).count();
    stream.dedupe('id').count();
    stream.join(stream.from('other'), { within: '1m', time: 'at' }, (a, b) => a);
    """
    stage = stages(source, plan_of(StageInput("in", (0,)), StageInput("other", (4,))))
    stage.feed([(f"k{i % 50}", {"at": 100 + i, "id": f"id{i}"}, 0) for i in range(500)])
    assert stage.seen.faults == []
    assert stage.task.state.reads < 40


@pytest.mark.parametrize(
    "operator",
    [
        "stream.window({ tumbling: '1m', name: 'kept' }).count();",
        "stream.window({ hopping: { size: '3m', every: '1m' }, name: 'kept' }).count();",
        "stream.join(stream.from('other'), { within: '1m', name: 'kept' }, (a, b) => a);",
    ],
)
@pytest.mark.parametrize("internal", [False, True])
def test_state_of_as_many_windows_as_events_is_read_in_few_requests(
    stages: Open, operator: str, internal: bool
) -> None:
    """As events come in and, by another instance that knows nothing yet, as the windows close."""
    inputs = [StageInput("in", (0,), internal=internal)] + [StageInput("other", (1,))] * ("other" in operator)
    if internal:  # the time that it gives is the one that events come with
        operator = operator.replace("name:", "time: e => e.n * 60_000, name:")
    stage = stages(operator, plan_of(*inputs, delay_ms=1e12))
    stage.feed([(f"k{i % 3}", {"n": i}, 60_000.0 * i) for i in range(300)])
    assert stage.task.state.reads < 10
    assert len(stage.timers()) >= 300
    stage.task.close()
    before = stage.task.state.reads
    stage.finish()
    assert stage.seen.faults == []
    assert stage.timers() == []
    assert stage.task.state.reads - before < 10


def test_the_schema_of_the_input_is_about_published_events_only(instances: OpenInstance) -> None:
    schema = {"type": "object", "required": ["n"]}
    plan = plan_of(StageInput("in", (0,)), StageInput("more", (1,)), timed=False)
    instance = instances("stream.merge(stream.from('more'));", plan=plan, input_schema=schema)
    assert len(instance.run(batch_of([{}], keys=["k"])).faults) == 1
    assert len(instance.run(batch_of([{}], keys=["k"], input=1)).faults) == 0


PIPELINE = """
export const config = { key: 'id', state: { latest: { ttl: '7d' } } };
stream.filter(e => e.amount > 0)
  .keyBy(e => e.user, { name: 'users', partitions: 4 })
  .window({ tumbling: '1m', time: 'at' }).sum('amount')
  .keyBy(() => 'all')
  .map((r, context) => ({ user: r.key, sum: r.value, at: context.timestamp }))
  .aggregate({ init: () => ({}), add: (best, r) => { best[r.user] = r.sum; return best; } });
"""


def test_all_stages_of_a_graph_run_in_one_process(local: Local) -> None:
    function = local(PIPELINE)
    events = [{"id": f"{n}", "user": f"u{n % 3}", "amount": n % 4, "at": n * 7_000} for n in range(40)]
    run = function.feed(events)
    rest = function.finish()
    assert (run.failures, rest.failures, run.late) == ([], [], [])
    sums: dict[tuple[int, str], int] = {}
    for event in events:
        if event["amount"] > 0:
            place = event["at"] // 60_000, event["user"]
            sums[place] = sums.get(place, 0) + event["amount"]
    assert len(run.outputs + rest.outputs) == len(sums)
    last = [max(start for start, user in sums if user == f"u{n}") for n in range(3)]
    assert rest.outputs[-1].value == {
        "key": "all",
        "value": {f"u{n}": sums[last[n], f"u{n}"] for n in range(3)},
    }
    assert function.state("window") == {}
    assert function.state("aggregate") == {"all": rest.outputs[-1].value["value"]}


def test_other_sources_are_fed_by_name(local: Local) -> None:
    source = """
    stream.keyBy('customer').join(stream.table('customers'), (order, customer) => [order.n, customer.name]);
    """
    function = local(source, keys={"customers": "id"})
    function.feed([{"id": "c1", "name": "Ann"}], stream="customers")
    assert function.feed([{"n": 1, "customer": "c1"}, {"n": 2, "customer": "c2"}]).values() == [[1, "Ann"]]


def test_a_graph_that_cannot_be_cut_is_a_mistake_with_file_and_line(plugin: Plugin) -> None:
    with pytest.raises(DeployError, match=r"f\.js:1: .*read its own output"):
        LocalFunction("stream.merge(stream.keyBy('k'));", "f.js", plugin=plugin)


def test_an_event_draws_other_numbers_on_each_input_and_the_same_again(stages: Open) -> None:
    source = "stream.merge(stream.from('more')).map(() => Math.random());"
    drawn = []
    for _ in range(2):
        stage = stages(source, plan_of(StageInput("in", (0,)), StageInput("more", (1,)), timed=False))
        stage.feed([("k", 1, 0)])
        stage.feed([("k", 1, 0)], 1)
        drawn.append(json.dumps(stage.seen.values()))
    assert drawn[0] == drawn[1]
    assert len(set(json.loads(drawn[0]))) == 2
