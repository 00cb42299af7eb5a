"""Windows over event time, against a model in plain Python: where batches end shows in no result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jeet.plan import StageInput, StageOutput
from jeet.sandbox.plugin import Plugin

from .stages import Open, open_stage, plan_of

BAD = 13
"""an amount at which the handler throws"""
MODEL = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

Event = tuple[str, int, int]
"""key, time, amount"""


@dataclass
class Watermark:
    """As it runs on within one external input."""

    delay: int
    highest: float = float("-inf")

    @property
    def now(self) -> float:
        return self.highest - self.delay

    def see(self, at: int) -> None:
        self.highest = max(self.highest, at)


@dataclass
class Model:
    """What a window operator with sums must do."""

    size: int
    every: int
    grace: int
    watermark: Watermark
    open: dict[tuple[int, str], int] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def take(self, number: int, event: Event) -> None:
        key, at, amount = event
        starts = list(range(at - at % self.every, at - self.size, -self.every))
        takers = sorted(start for start in starts if start + self.size + self.grace > self.watermark.now)
        if not takers:
            self.late.append(number)
            self.watermark.see(at)
            return
        if amount == BAD:
            return
        for start in takers:
            self.open[start, key] = self.open.get((start, key), 0) + amount
            self.changes.append(result(key, start, start + self.size, self.open[start, key]))
        self.watermark.see(at)

    def closed(self) -> list[dict[str, Any]]:
        return [result(key, start, start + self.size, total) for (start, key), total in self.open.items()]


@dataclass
class SessionModel:
    gap: int
    grace: int
    watermark: Watermark
    all: dict[str, list[list[int]]] = field(default_factory=dict)
    """by key: [start, end, total]; those that the watermark has closed stay"""
    changes: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def take(self, number: int, event: Event) -> None:
        key, at, amount = event
        sessions = self.all.setdefault(key, [])
        met = [
            one
            for one in sessions
            if one[0] < at + self.gap and at < one[1] and one[1] + self.grace > self.watermark.now
        ]
        if not met and at + self.gap + self.grace <= self.watermark.now:
            self.late.append(number)
            return
        if amount == BAD:
            return
        for one in met:
            sessions.remove(one)
        start, end = min([at, *(one[0] for one in met)]), max([at + self.gap, *(one[1] for one in met)])
        sessions.append([start, end, amount + sum(one[2] for one in met)])
        self.changes.append(result(key, *sessions[-1]))
        self.watermark.see(at)

    def closed(self) -> list[dict[str, Any]]:
        return [result(key, *one) for key, sessions in self.all.items() for one in sessions]


def result(key: str, start: int, end: int, value: int) -> dict[str, Any]:
    return {"key": key, "start": start, "end": end, "value": value}


def in_order(results: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((one["key"], one["start"], one["end"], one["value"]) for one in results)


events = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.sampled_from([1, 2, 5, BAD])), min_size=1, max_size=40
)
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=6)
ADD = f"(acc, e) => {{ if (e.n === {BAD}) throw new Error('bad'); return acc + e.n; }}"
ADD_LATER = f"async (acc, e) => {{ await 1; if (e.n === {BAD}) throw new Error('bad'); return acc + e.n; }}"


def feed_in_cuts(stage: Any, rows: Sequence[tuple[str, Any, float]], sizes: Sequence[int]) -> None:
    at = turn = 0
    while at < len(rows):
        size = sizes[turn % len(sizes)]
        stage.feed(rows[at : at + size])
        at, turn = at + size, turn + 1


def compare(plugin: Plugin, source: str, model: Any, all_events: Sequence[Event], sizes: Sequence[int]) -> None:
    stage = open_stage(plugin, source, plan_of(delay_ms=float(model.watermark.delay)))
    try:
        rows = [(key, {"n": amount, "at": at, "i": i}, 0.0) for i, (key, at, amount) in enumerate(all_events)]
        feed_in_cuts(stage, rows, sizes)
        seen = stage.finish()
        for number, event in enumerate(all_events):
            model.take(number, event)
        marked = seen.values()
        finals = [{k: v for k, v in one.items() if k != "final"} for one in marked if one["final"]]
        changes = [{k: v for k, v in one.items() if k != "final"} for one in marked if not one["final"]]
        assert [one["i"] for one in seen.values(1)] == model.late
        assert in_order(finals) == in_order(model.closed())
        assert changes == model.changes
        assert stage.state("window") == {}
        assert stage.timers() == []
        assert seen.late_count == len(model.late)
    finally:
        stage.task.close()


@MODEL
@given(events, cuts, st.sampled_from([0, 7, 60]), st.sampled_from([0, 15]), st.booleans(), st.booleans())
def test_tumbling_windows_are_those_of_the_model(
    plugin: Plugin, all_events: list[Event], sizes: list[int], delay: int, grace: int, promises: bool, by_path: bool
) -> None:
    source = f"""stream.window({{ tumbling: '50ms', time: {"'at'" if by_path else "e => e.at"}, delay: '{delay}ms', grace: '{grace}ms', emit: 'both', lateTo: 'late' }})
      .aggregate({{ init: () => 0, add: {ADD_LATER if promises else ADD} }});"""  # noqa: E501
    compare(plugin, source, Model(50, 50, grace, Watermark(delay)), all_events, sizes)


@MODEL
@given(events, cuts, st.sampled_from([0, 30]), st.sampled_from([0, 15]))
def test_hopping_windows_are_those_of_the_model(
    plugin: Plugin, all_events: list[Event], sizes: list[int], delay: int, grace: int
) -> None:
    source = f"""stream.window({{ hopping: {{ size: '50ms', every: '20ms' }}, time: 'at', delay: '{delay}ms', grace: '{grace}ms', emit: 'both', lateTo: 'late' }})
      .aggregate({{ init: () => 0, add: {ADD} }});"""  # noqa: E501
    compare(plugin, source, Model(50, 20, grace, Watermark(delay)), all_events, sizes)


@MODEL
@given(events, cuts, st.sampled_from([0, 30]), st.sampled_from([0, 15]), st.booleans())
def test_session_windows_are_those_of_the_model(
    plugin: Plugin, all_events: list[Event], sizes: list[int], delay: int, grace: int, promises: bool
) -> None:
    source = f"""stream.window({{ session: '20ms', time: 'at', delay: '{delay}ms', grace: '{grace}ms', emit: 'both', lateTo: 'late' }})
      .aggregate({{ init: () => 0, add: {ADD_LATER if promises else ADD}, merge: {"async " if promises else ""}(a, b) => a + b }});"""  # noqa: E501
    compare(plugin, source, SessionModel(20, grace, Watermark(delay)), all_events, sizes)


MINUTE = "stream.window({ tumbling: '1m', time: e => e.at })"


def test_a_window_closes_when_the_watermark_reaches_its_end_and_its_state_goes(stages: Open) -> None:
    stage = stages(f"{MINUTE}.count();")
    stage.feed([("k", {"at": 0}, 0), ("k", {"at": 59_999}, 0)])
    assert stage.seen.values() == []
    assert stage.state("window") == {"1970-01-01T00:00:00.000Z|k": 2}
    assert stage.timers() == [("window", "k", "0", 60_000, False)]
    stage.feed([("k", {"at": 60_000}, 0)])
    assert stage.seen.outputs == [(0, "k", {"key": "k", "start": 0, "end": 60_000, "value": 2}, None)]
    assert stage.state("window") == {"1970-01-01T00:01:00.000Z|k": 1}


def test_grace_keeps_a_window_open_and_delay_holds_the_watermark_back(stages: Open) -> None:
    for option in ("grace", "delay"):
        source = f"stream.window({{ tumbling: '1m', time: 'at', {option}: '5s' }}).count();"
        stage = stages(source, plan_of(delay_ms=5000.0 if option == "delay" else 0.0))
        stage.feed([("k", {"at": 0}, 0), ("k", {"at": 64_999}, 0), ("k", {"at": 1}, 0)])
        assert stage.seen.values() == []
        stage.feed([("other", {"at": 65_000}, 0)])
        assert [one["value"] for one in stage.seen.values()] == [2]


def test_late_events_go_to_the_dead_letters_unless_a_stream_is_named_for_them(stages: Open) -> None:
    events = [("k", {"at": 60_000, "n": 1}, 0), ("k", {"at": 10, "n": 2}, 0)]
    stage = stages(f"{MINUTE}.count();")
    stage.feed(events)
    assert (stage.seen.late, stage.seen.late_count, stage.seen.faults) == ([{"at": 10, "n": 2}], 1, [])
    kept = stages("stream.window({ tumbling: '1m', time: 'at', lateTo: 'late' }).count();")
    kept.feed(events)
    assert (kept.seen.late, kept.seen.late_count) == ([], 1)
    assert kept.seen.outputs == [(1, "k", {"at": 10, "n": 2}, None)]


def test_each_session_closes_at_its_own_end_however_they_came(stages: Open) -> None:
    stage = stages("stream.window({ session: '10s', time: 'at', delay: '1m' }).count();", plan_of(delay_ms=60_000.0))
    stage.feed([("k", {"at": at}, 0) for at in (50_000, 5_000, 12_000)])
    assert stage.timers() == [("window", "k", "", 22_000, False)]
    assert stage.state("window") == {
        "k": [{"start": 5_000, "end": 22_000, "value": 2}, {"start": 50_000, "end": 60_000, "value": 1}]
    }
    stage.feed([("j", {"at": 82_000}, 0)])
    assert [(one["start"], one["end"], one["value"]) for one in stage.seen.values()] == [(5_000, 22_000, 2)]
    assert stage.timers()[0] == ("window", "k", "", 60_000, False)


def test_what_follows_a_window_has_its_key_and_the_time_of_its_last_moment(stages: Open) -> None:
    stage = stages(f"{MINUTE}.sum('n').map((r, context) => [r.value, context.key, context.timestamp]);")
    stage.feed([("k", {"at": 5, "n": 2.5}, 0), ("k", {"at": 6, "n": 4}, 0), ("j", {"at": 60_000, "n": 1}, 0)])
    assert stage.finish().values() == [[6.5, "k", 59_999], [1, "j", 119_999]]


def test_without_time_an_event_has_the_time_that_it_was_published_with(stages: Open) -> None:
    stage = stages("stream.filter(e => e.n > 0).window({ tumbling: '1m' }).count();")
    stage.feed([("k", {"n": 1}, 10), ("k", {"n": 1}, 20.75), ("k", {"n": 0}, 60_000)])
    assert [(one["start"], one["value"]) for one in stage.seen.values()] == [(0, 2)]


@pytest.mark.parametrize("time", ["NaN", "'tomorrow'", "null", "new Date(NaN)", "1e300", "undefined", "-1e15", "'5'"])
def test_a_time_that_is_none_is_the_fault_of_its_event(stages: Open, time: str) -> None:
    stage = stages(f"stream.window({{ tumbling: '1m', time: e => e.bad ? {time} : e.at }}).count();")
    stage.feed([("k", {"at": 1}, 0), ("k", {"bad": True}, 0), ("k", {"at": "1970-01-01T00:00:02Z"}, 0)])
    assert [event for event, _ in stage.seen.faults] == [{"bad": True}]
    assert "window: time gave" in stage.seen.faults[0][1]
    assert [one["value"] for one in stage.finish().values()] == [2]


def test_an_event_without_a_key_fails_and_is_told_of_keyby(stages: Open) -> None:
    stage = stages(f"{MINUTE}.count();")
    stage.feed([(None, {"at": 1}, 0), ("k", {"at": 1}, 0)])
    assert [error for _, error in stage.seen.faults] == [
        "TypeError: window needs the event's key, and this one has none: add keyBy before it"
    ]


def test_the_windows_of_two_items_of_one_event_do_not_share_an_accumulator(stages: Open) -> None:
    stage = stages(
        "stream.flatMap(e => e.all).window({ hopping: { size: '2m', every: '1m' }, time: 'at' })"
        ".reduce((a, b) => { a.n += b.n; return a; });"
    )
    stage.feed([("k", {"all": [{"at": 60_000, "n": 1}, {"at": 60_001, "n": 2}]}, 0)])
    assert [(one["start"], one["value"]["n"]) for one in stage.finish().values()] == [(0, 3), (60_000, 3)]


def test_a_window_over_the_results_of_another_loses_none_of_them(stages: Open) -> None:
    source = """
    stream.window({ tumbling: '1m', time: 'at', grace: '10s', name: 'zz' }).count()
      .window({ tumbling: '2m', name: 'aa' }).sum(r => r.value);
    """
    for cut in (1, 1000):
        stage = stages(source)
        stage.feed([("k", {"at": at}, 0) for at in range(0, 600_001, 15_000)], cut=cut)
        seen = stage.finish()
        assert [(one["start"], one["value"]) for one in seen.values()] == [
            *((start, 8) for start in range(0, 600_000, 120_000)),
            (600_000, 1),
        ]
        assert seen.late_count == 0


def test_in_a_later_stage_the_watermark_is_that_of_the_stage_before(stages: Open) -> None:
    source = "stream.keyBy('k').window({ tumbling: '1m' }).count();"
    stage = stages(source, plan_of(StageInput("f/rekey1", (1,), internal=True)))
    stage.feed([("a", {}, 5), ("a", {}, 90_000), ("a", {}, 6)])
    assert stage.seen.late_count == 0
    stage.hear(60_000)
    assert [(one["start"], one["value"]) for one in stage.seen.values()] == [(0, 2)]
    stage.feed([("a", {}, 7)])
    assert stage.seen.late_count == 1


def test_a_closing_that_fails_keeps_its_window(stages: Open) -> None:
    stage = stages(f"{MINUTE}.count().map(r => {{ if (r.value > 1) throw new Error('no'); return r.value; }});")
    stage.feed([("k", {"at": 1}, 0), ("k", {"at": 2}, 0), ("j", {"at": 3}, 0)])
    seen = stage.finish()
    assert (seen.values(), [error for _, error in seen.faults]) == ([1], ["Error: no"])
    assert [event for event, _ in seen.faults] == [{"operator": "window", "name": "0", "wall": False}]
    assert stage.state("window") == {"1970-01-01T00:00:00.000Z|k": 2}


def test_a_timer_of_an_operator_that_is_gone_is_an_event_that_fails(stages: Open) -> None:
    stage = stages(f"{MINUTE}.count();")
    stage.feed([("k", {"at": 1}, 0)])
    (timer,) = stage.task.timers.values()
    gone = stages("stream.window({ tumbling: '1m', time: 'at', name: 'other' }).count();")
    gone.task.timers[timer.place] = timer
    assert "no operator" in gone.finish().faults[0][1]


def test_late_events_can_have_a_stream_with_a_key_of_its_own(stages: Open) -> None:
    outputs = (StageOutput("out"), StageOutput("late", "user.id"))
    stage = stages("stream.window({ tumbling: '1m', time: 'at', lateTo: 'late' }).count();", plan_of(outputs=outputs))
    stage.feed([("k", {"at": 60_000}, 0), ("k", {"at": 1, "user": {"id": "u"}}, 0)])
    assert [key for _, key, _, _ in stage.seen.outputs] == ["u"]
