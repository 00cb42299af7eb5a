"""Joins: with a table, and of two streams within a bound of event time, against a model in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jeet.plan import StageInput
from jeet.sandbox.plugin import Plugin

from .stages import Open, open_stage, plan_of

BAD = 13
MODEL = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LEFT, RIGHT = 0, 1
TWO = (StageInput("left", (0,)), StageInput("right", (1,)))


@dataclass
class Clock:
    """A task's watermark over two external inputs, as it runs on with each event."""

    delay: int
    highest: list[float] = field(default_factory=lambda: [float("-inf")] * 2)
    holds: list[bool] = field(default_factory=lambda: [False, False])
    now: float = float("-inf")

    def see(self, side: int, at: int) -> None:
        self.highest[side] = max(self.highest[side], at)
        for each in (LEFT, RIGHT):
            reached = self.highest[each] - self.delay
            self.holds[each] = self.holds[each] or (reached > float("-inf") and reached >= self.now)
        held = [self.highest[each] - self.delay for each in (LEFT, RIGHT) if self.holds[each]]
        self.now = max(self.now, min(held, default=self.now))


@dataclass
class Model:
    within: int
    left: bool
    clock: Clock
    seen: list[list[dict[str, Any]]] = field(default_factory=lambda: [[], []])
    pairs: list[tuple[int, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def take(self, side: int, number: int, key: str, at: int, amount: int) -> None:
        if at + self.within < self.clock.now:
            self.late.append(number)
            return
        met = [
            other
            for other in self.seen[1 - side]
            if other["key"] == key
            and abs(other["at"] - at) <= self.within
            and other["at"] + self.within >= self.clock.now
        ]
        if met and BAD in (amount, *(other["n"] for other in met)):
            return  # the handler throws, and the event leaves no trace
        mine = {"key": key, "at": at, "i": number, "n": amount, "met": bool(met)}
        for other in met:
            other["met"] = True
            self.pairs.append((number, other["i"]) if side == LEFT else (other["i"], number))
        self.seen[side].append(mine)
        self.clock.see(side, at)

    def alone(self) -> list[int]:
        return [one["i"] for one in self.seen[LEFT] if self.left and not one["met"]]


runs = st.lists(
    st.tuples(
        st.sampled_from([LEFT, RIGHT]),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 80), st.sampled_from([1, 2, 3, BAD])), max_size=5),
        st.integers(1, 4),
    ),
    max_size=12,
)


@MODEL
@given(runs, st.sampled_from([0, 10, 25]), st.sampled_from([0, 15]), st.booleans(), st.booleans())
def test_pairs_within_the_bound_meet_once_and_left_ones_alone_are_given_with_null(
    plugin: Plugin, all_runs: Any, within: int, delay: int, left: bool, promises: bool
) -> None:
    source = f"""stream.join(stream.from('right'), {{ within: '{within}ms', time: 'at', kind: '{"left" if left else "inner"}', lateTo: 'late' }},
      {"async " if promises else ""}(l, r, c) => {{
        if (r !== null && (l.n === {BAD} || r.n === {BAD})) throw new Error('bad');
        if (l.met || (r !== null && r.met)) return 'what a handler does to an item must not stay';
        l.met = true;
        if (r !== null) r.met = true;
        return [l.i, r === null ? null : r.i, c.key, c.timestamp];
      }});"""  # noqa: E501
    stage = open_stage(plugin, source, plan_of(*TWO, delay_ms=float(delay)))
    model = Model(within, left, Clock(delay))
    try:
        number = 0
        times: dict[int, tuple[str, int]] = {}
        for side, run, cut in all_runs:
            rows = []
            for key, at, amount in run:
                times[number] = key, at
                rows.append((key, {"i": number, "at": at, "n": amount}, 0.0))
                model.take(side, number, key, at, amount)
                number += 1
            stage.feed(rows, side, cut)
        seen = stage.finish()
        expected = [(one, two, times[one][0], max(times[one][1], times[two][1])) for one, two in model.pairs]
        alone = [(one, None, *times[one]) for one in model.alone()]
        assert sorted(map(str, map(tuple, seen.values()))) == sorted(map(str, expected + alone))
        assert [one["i"] for one in seen.values(1)] == model.late
        assert (stage.state("join_left"), stage.state("join_right"), stage.timers()) == ({}, {}, [])
    finally:
        stage.task.close()


JOIN = "stream.join(stream.from('right'), { within: '10s', kind: 'left', time: 'at' }, (l, r) => [l.i, r && r.i]);"


def test_a_left_item_waits_until_no_partner_can_come(stages: Open) -> None:
    stage = stages(JOIN, plan_of(*TWO))
    stage.feed([("k", {"i": 1, "at": 0}, 0)], LEFT)
    stage.feed([("k", {"i": 2, "at": 10_000}, 0)], LEFT)
    assert stage.seen.values() == []
    stage.feed([("k", {"i": 3, "at": 10_001}, 0)], LEFT)
    assert stage.seen.values() == [[1, None]]


def test_the_slower_of_two_inputs_holds_the_watermark(stages: Open) -> None:
    stage = stages(JOIN, plan_of(*TWO))
    stage.feed([("k", {"i": 1, "at": 0}, 0)], LEFT)
    stage.feed([("k", {"i": 2, "at": 5}, 0)], RIGHT)
    stage.feed([("k", {"i": 3, "at": 100_000}, 0)], LEFT)
    assert stage.task.watermark_ms == 5
    stage.feed([("k", {"i": 4, "at": 99_000}, 0)], RIGHT)
    assert stage.seen.values() == [[1, 2], [3, 4]]
    assert stage.task.watermark_ms == 99_000


TABLE = "stream.join(stream.table('customers'), { kind: '%s' }, (order, customer) => { const was = customer && customer.name; if (customer) customer.name = 'changed'; return [order.n, was]; });"  # noqa: E501
TABLE_PLAN = plan_of(StageInput("orders", (0,)), StageInput("customers", (1,), table=True), timed=False)


def test_a_table_holds_the_latest_value_of_each_key(stages: Open) -> None:
    for kind, expected in (
        ("inner", [[2, "Ann"], [3, "Bea"]]),
        ("left", [[1, None], [2, "Ann"], [3, "Bea"], [4, None]]),
    ):
        stage = stages(TABLE % kind, TABLE_PLAN)
        stage.feed([("c", {"n": 1}, 0)])
        stage.feed([("c", {"name": "Ann"}, 0)], 1)
        stage.feed([("c", {"n": 2}, 0)])
        stage.feed([("c", {"name": "Bob"}, 0), ("c", {"name": "Bea"}, 0), ("d", {"name": "Dan"}, 0)], 1)
        stage.feed([("c", {"n": 3}, 0)])
        assert stage.state("table") == {"c": {"name": "Bea"}, "d": {"name": "Dan"}}
        stage.feed([("c", None, 0)], 1)
        stage.feed([("c", {"n": 4}, 0), (None, {"n": 5}, 0)])
        assert stage.seen.values() == expected
        assert [error for _, error in stage.seen.faults] == [
            "TypeError: join needs the event's key, and this one has none: add keyBy before it"
        ]


def test_a_table_s_event_without_a_key_fails(stages: Open) -> None:
    stage = stages(TABLE % "inner", TABLE_PLAN)
    stage.feed([(None, {"name": "Ann"}, 0)], 1)
    assert "table needs the event's key" in stage.seen.faults[0][1]
