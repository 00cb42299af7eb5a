"""A graph is cut into stages at each keyBy; what cannot run is refused in one line, with file, line and remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.graphs import MINUTE, Graph
from jeet.control.graph import StreamFacts
from jeet.control.planner import Plan
from jeet.errors import DeployError
from jeet.plan import IDLE_MS, Cut, StageInput, StageOutput


def shape(made: Plan) -> list[tuple[list[str], list[int], list[str | None]]]:
    """By stage: the streams it reads, the nodes it runs, the streams it writes."""
    return [
        (sorted(each.stream for each in stage.inputs), list(stage.nodes), [out.stream for out in stage.outputs])
        for stage in made.stages
    ]


def test_a_graph_without_keyby_is_one_stage_with_all_outputs() -> None:
    graph = Graph()
    graph.add("to", graph.add("filter", graph.add("map", 0)), stream="big")
    made = graph.plan(outputs=("big", "alerts"))
    assert shape(made) == [(["events"], [0, 1, 2, 3], ["out", "big", "alerts"])]
    assert made.streams == ()
    assert (made.stages[0].timed, made.stages[0].keyed) == (False, False)


def test_the_source_alone_is_a_stage() -> None:
    assert shape(Graph().plan()) == [(["events"], [0], ["out"])]


def test_each_keyby_ends_a_stage_and_begins_the_next() -> None:
    graph = Graph()
    first = graph.key(graph.add("filter", 0))
    second = graph.key(graph.add("map", graph.window(first)), "end", name="by-end", partitions=2)
    graph.add("reduce", second, collection="reduce")
    made = graph.plan()
    assert shape(made) == [
        (["events"], [0, 1, 2], [None, "f/rekey1"]),
        (["f/rekey1"], [3, 4, 5], [None, "f/by-end"]),
        (["f/by-end"], [6], ["out"]),
    ]
    assert made.partitions == (8, 8, 2)
    assert [(each.name, each.partitions, each.key) for each in made.streams] == [
        ("f/by-end", 2, "end"),
        ("f/rekey1", 8, "user"),
    ]
    top, middle, bottom = made.stages
    assert top.inputs == (StageInput("events", (0,)),)
    assert middle.inputs == (StageInput("f/rekey1", (2,), internal=True),)
    assert top.cuts == (Cut(2, 1, timed=True),)
    assert middle.cuts == (Cut(5, 1, timed=False),)
    assert [stage.timed for stage in made.stages] == [True, True, False]
    assert [stage.keyed for stage in made.stages] == [False, True, True]
    assert bottom.outputs == (StageOutput("out"),)


def test_all_that_follows_one_keyby_is_one_stage() -> None:
    graph = Graph()
    key = graph.key(0)
    graph.add("count", key, collection="count")
    graph.add("to", graph.add("map", key), stream="copy")
    assert shape(graph.plan(outputs=("copy",))) == [
        (["events"], [0, 1], [None, "f/rekey1"]),
        (["f/rekey1"], [2, 3, 4], ["out", "copy"]),
    ]


def test_two_keybys_that_meet_are_inputs_of_one_stage() -> None:
    graph = Graph()
    left = graph.key(0, name="left")
    right = graph.key(graph.add("source", stream="payments"), name="right")
    graph.add("join", left, right, join="stream", kind="inner", within_ms=5000, collections=["join_left", "join_right"])
    made = graph.plan({"payments": StreamFacts(3)})
    assert shape(made) == [
        (["events"], [0, 1], [None, "f/left"]),
        (["payments"], [2, 3], [None, "f/right"]),
        (["f/left", "f/right"], [4], ["out"]),
    ]
    assert made.partitions == (8, 3, 8)
    assert made.stages[2].hold_ms == 5000
    assert all(stage.timed for stage in made.stages)


def test_a_keyby_at_the_end_gives_the_sink_its_key() -> None:
    graph = Graph()
    graph.key(graph.add("map", 0))
    made = graph.plan()
    assert shape(made) == [(["events"], [0, 1, 2], [None, "f/rekey1"]), (["f/rekey1"], [], ["out"])]
    assert made.stages[1].inputs[0].nodes == (2,)


def test_internal_streams_take_the_count_of_what_they_meet() -> None:
    graph = Graph()
    key = graph.key(0)
    table = graph.add("table", stream="customers")
    graph.add("join", key, table, join="table", kind="inner", collections=[], collection=None)
    made = graph.plan({"customers": StreamFacts(4, "id")})
    assert made.partitions == (8, 4)
    assert [each.partitions for each in made.streams] == [4]
    assert StageInput("customers", (table,), table=True) in made.stages[1].inputs
    assert not any(stage.timed for stage in made.stages)


def test_a_source_with_another_count_is_copied_by_a_stage_of_its_own() -> None:
    graph = Graph()
    table = graph.add("table", stream="customers", collection="customers")
    graph.add("join", graph.add("map", 0), table, join="table", kind="left", collections=[])
    made = graph.plan({"customers": StreamFacts(4, "id")})
    assert shape(made) == [
        (["events", "f/customers-copy"], [0, 2, 3], ["out"]),
        (["customers"], [table], [None, "f/customers-copy"]),
    ]
    top, copy = made.stages
    assert copy.cuts == (Cut(table, 1, rekey=False),)
    assert copy.inputs == (StageInput("customers", (table,)),)
    assert top.inputs[1] == StageInput("f/customers-copy", (table,), table=True, internal=True)
    assert made.partitions == (8, 4)


def test_a_source_keyed_otherwise_is_keyed_anew_first() -> None:
    graph = Graph()
    graph.add("map", 0)
    made = graph.plan(key="user.id")
    assert shape(made) == [(["events"], [0], [None, "f/rekey0"]), (["f/rekey0"], [1], ["out"])]
    assert made.stages[0].outputs[1] == StageOutput("f/rekey0", "user.id", internal=True)
    assert made.stages[0].cuts == (Cut(0, 1, rekey=False),)
    assert made.stages[1].inputs == (StageInput("f/rekey0", (0,), internal=True),)
    assert graph.plan(key="id").streams == ()


def test_what_only_streams_by_name_feed_leaves_the_source_out() -> None:
    graph = Graph()
    graph.add("map", graph.add("source", stream="payments"))
    assert shape(graph.plan({"payments": StreamFacts(2)})) == [(["payments"], [1, 2], ["out"])]


def test_emits_may_come_from_every_stage_and_the_rest_from_its_own() -> None:
    graph = Graph()
    graph.add("to", 0, stream="raw")
    graph.window(graph.key(0), late_to="late")
    made = graph.plan(outputs=("raw", "late", "alerts"), emits=frozenset({"alerts"}))
    assert [[out.stream for out in stage.outputs] for stage in made.stages] == [
        [None, "raw", "alerts", "f/rekey1"],
        ["out", "late", "alerts"],
    ]


# ---- time ----


def test_events_get_their_time_where_they_are_first_keyed() -> None:
    graph = Graph()
    key = graph.key(graph.add("map", 0))
    window = graph.window(graph.add("filter", key), time="ts", delay_ms=5000, grace_ms=2000, idle_ms=1000)
    late = graph.key(window, "end")
    graph.window(late, "again", time=None)
    made = graph.plan()
    assert [stage.cuts for stage in made.stages] == [
        (Cut(key, 1, time_of=window, timed=True),),
        (Cut(late, 1, time_of=None, timed=True),),
        (),
    ]
    assert [stage.delay_ms for stage in made.stages] == [5000, 5000, 0]
    assert [stage.hold_ms for stage in made.stages] == [0, 2000, 0]
    assert [stage.idle_ms for stage in made.stages] == [1000, 1000, IDLE_MS]


def test_what_windows_of_one_stage_hold_back_adds_up() -> None:
    graph = Graph()
    first = graph.window(graph.key(0), "first", grace_ms=2000)
    second = graph.window(graph.add("map", first), "second", time=None, grace_ms=500)
    graph.key(second, "end")
    assert [stage.hold_ms for stage in graph.plan().stages] == [0, 2501, 0]


def test_time_passes_two_keybys() -> None:
    graph = Graph()
    first = graph.key(0)
    second = graph.key(graph.add("peek", first), "b")
    window = graph.window(second, time="ts", delay_ms=7)
    made = graph.plan()
    assert [[cut.time_of for cut in stage.cuts] for stage in made.stages] == [[window], [window], []]
    assert made.stages[0].delay_ms == 7


def test_timers_make_a_stage_and_those_above_it_timed() -> None:
    graph = Graph()
    graph.add("onTimer", graph.add("map", graph.key(0)), collection=None, name="onTimer")
    assert [stage.timed for stage in graph.plan().stages] == [True, True]


# ---- what is refused ----


def map_between(graph: Graph) -> None:
    graph.window(graph.add("map", graph.key(0)), time="ts")


def count_between(graph: Graph) -> None:
    graph.window(graph.add("count", graph.key(0), collection="count"), time="ts")


def own_stream(graph: Graph) -> None:
    graph.add("merge", 0, graph.key(0))


def round_trip(graph: Graph) -> None:
    there = graph.add("map", graph.key(0, name="there"))
    graph.add("merge", 0, graph.key(there, name="back"))


def forward(graph: Graph) -> None:
    graph.nodes.append({"id": 1, "op": "map", "inputs": [2], "line": 7})
    graph.nodes.append({"id": 2, "op": "map", "inputs": [1], "line": 8})


def two_counts(graph: Graph) -> None:
    graph.add("merge", graph.key(0, name="a", partitions=2), graph.key(0, name="b", partitions=3))


def same_name(graph: Graph) -> None:
    key = graph.key(0)
    graph.add("count", key, collection="n")
    graph.add("sum", key, collection="n")


def both_times(graph: Graph) -> None:
    key = graph.key(0)
    graph.window(key, "a", time="ts")
    graph.window(key, "b", time="at")


REFUSED: list[tuple[Callable[[Graph], Any], str]] = [
    (
        lambda graph: graph.add("map", graph.add("source", stream="payment")),
        "f.js:1: there is no stream payment: did you",
    ),
    (lambda graph: graph.add("map", graph.add("source", stream="zzz")), "jeet create_stream zzz"),
    (lambda graph: graph.add("source", stream="payments"), 'f.js:1: stream.from("payments") is not used'),
    (lambda graph: graph.add("table", stream="payments"), 'f.js:1: stream.table("payments") is not used'),
    (lambda graph: graph.add("map", graph.add("table", stream="payments")), "f.js:2: map cannot read a table"),
    (lambda graph: graph.add("source", stream="a/b"), "is not used"),
    (lambda graph: graph.window(graph.key(0), how=None), "f.js:2: this window is never aggregated"),
    (
        map_between,
        "f.js:2: window on line 3 takes the time from what this map makes, but events get their time where they",
    ),
    (map_between, "move the map before keyBy"),
    (count_between, "leave time out"),
    (own_stream, "f.js:1: what follows this keyBy is merged or joined with what comes before it"),
    (round_trip, "key both sides by .keyBy"),
    (forward, "f.js:7: map reads what comes after it"),
    (two_counts, "f.js:2: this keyBy asks for 3 partitions"),
    (lambda graph: graph.key(0, partitions=5000), "use 1 to 4096"),
    (lambda graph: [graph.key(0, name="a"), graph.key(0, name="a")], "f.js:2: the name a is used twice"),
    (lambda graph: graph.key(0, name="a b"), "cannot be the name of a keyBy"),
    (same_name, "f.js:3: the name n is used twice, first on line 2"),
    (lambda graph: graph.add("count", 0, collection="to/tals"), "collection_name_chars"),
    (both_times, "give each a keyBy of its own"),
    (lambda graph: graph.add("fold", 0), "there is no operator stream.fold"),
    (lambda graph: graph.add("map", 0, 0), "map has 2 inputs"),
    (lambda graph: graph.add("map", graph.add("to", 0, stream="x")), "nothing comes out of that"),
    (
        lambda graph: graph.add("join", 0, graph.add("table", stream="events"), join="table", collections=[]),
        "read as a table and as events in one stage",
    ),
]


@pytest.mark.parametrize(("make", "what"), REFUSED)
def test_what_cannot_run_is_refused_in_one_line(make: Callable[[Graph], Any], what: str) -> None:
    graph = Graph()
    make(graph)
    with pytest.raises(DeployError) as caught:
        graph.plan({"payments": StreamFacts(8)})
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_operator_by_key_over_a_new_source_without_one_is_refused() -> None:
    graph = Graph()
    graph.add("count", graph.add("filter", 0), collection="count")
    with pytest.raises(DeployError, match=r"f.js:2: count works by the key of events, and events has none"):
        graph.plan({"events": StreamFacts(8, None, exists=False)})
    graph.plan({"events": StreamFacts(8, "id", exists=False)})
    graph.plan({"events": StreamFacts(8, None)})  # its publishers may give keys


def test_a_map_before_a_window_is_refused_where_a_copy_comes_first() -> None:
    graph = Graph()
    graph.window(graph.add("map", 0), time="ts")
    graph.plan()
    with pytest.raises(DeployError, match=r"put .keyBy\(…\) after the map"):
        graph.plan(key="user")


# ---- any graph ----


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph = Graph()
    for number in range(draw(st.integers(0, 14))):
        readable = [node["id"] for node in graph.nodes if node["op"] not in ("to", "table")]
        above = draw(st.sampled_from(readable[-4:]))
        match draw(
            st.sampled_from(("map", "filter", "keyBy", "keyBy", "merge", "count", "window", "to", "from", "table"))
        ):
            case "keyBy":
                graph.key(above, partitions=draw(st.sampled_from((None, 2, 3))))
            case "merge":
                graph.add("merge", above, draw(st.sampled_from(readable)))
            case "count":
                graph.add("count", above, collection=f"count{number}")
            case "window":
                graph.window(above, f"window{number}", delay_ms=draw(st.integers(0, 9)))
            case "to":
                graph.add("to", above, stream="other")
            case "from":
                graph.add("map", graph.add("source", stream=draw(st.sampled_from(("a", "b")))))
            case "table":
                table = graph.add("table", stream="t")
                graph.add("join", above, table, join="table", kind="inner", collections=[])
            case op:
                graph.add(op, above)
    return graph


@settings(max_examples=300, deadline=None)
@given(graphs(), st.sampled_from((None, "id", "user")))
def test_any_graph_is_refused_in_one_line_or_cut_whole(graph: Graph, key: str | None) -> None:
    known = {"a": StreamFacts(8), "b": StreamFacts(3), "t": StreamFacts(2, "id")}
    try:
        made = graph.plan(known, key=key, outputs=("other",))
    except DeployError as refused:
        text = str(refused)
        assert text.startswith("f.js:") and "\n" not in text  # noqa: PT018 - one claim
        return
    counts = {"events": 8, "a": 8, "b": 3, "t": 2, **{each.name: each.partitions for each in made.streams}}
    ran = [node for stage in made.stages for node in stage.nodes]
    assert len(ran) == len(set(ran))
    lonely = {0} if not any(0 in node["inputs"] for node in graph.nodes) and len(graph.nodes) > 1 else set()
    assert set(ran) == set(range(len(graph.nodes))) - lonely
    makers: dict[str, int] = {}
    for number, stage in enumerate(made.stages):
        assert stage.number == number
        assert {counts[each.stream] for each in stage.inputs} == {made.partitions[number]}
        for cut in stage.cuts:
            output = stage.outputs[cut.output]
            assert output.internal
            assert output.stream not in makers
            makers[str(output.stream)] = number
    assert set(makers) == {each.name for each in made.streams}
    for number, stage in enumerate(made.stages):
        for each in stage.inputs:
            assert each.internal == (each.stream in makers)
            # The stage that reads the source comes first, whatever it reads besides.
            assert not each.internal or makers[each.stream] < number or number == 0
            if stage.timed and each.internal and not each.table:
                assert made.stages[makers[each.stream]].timed
    # An edge is within a stage, or it leaves a cut.
    of = {node: stage.number for stage in made.stages for node in stage.nodes}
    cut_nodes = {cut.node for stage in made.stages for cut in stage.cuts}
    entries = {node for stage in made.stages for each in stage.inputs for node in each.nodes if each.internal}
    for node in graph.nodes:
        for above in node["inputs"]:
            assert of[above] == of[node["id"]] or above in cut_nodes or above in entries


def test_a_plan_is_the_same_after_json() -> None:
    graph = Graph()
    graph.window(graph.key(0), time="ts", size_ms=MINUTE)
    for stage in graph.plan().stages:
        assert type(stage).from_json(stage.to_json()) == stage
