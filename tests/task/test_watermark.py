"""The rules of event time, one a test: what a task's clock goes by."""

from __future__ import annotations

import pytest

from jeet.ids import Offset
from jeet.task.clocks import standing
from jeet.task.program import Maker
from jeet.task.watermark import (
    EARLIEST_MS,
    END_MS,
    RARELY_S,
    SELDOM_S,
    InputTime,
    Standing,
    TaskTime,
    advanced,
    held_to,
)


def awake(watermark_ms: float | None) -> Standing:
    return Standing(watermark_ms, None if watermark_ms is None else watermark_ms + 5)


def resting(highest_ms: float | None) -> Standing:
    return Standing(None if highest_ms is None else highest_ms - 5, highest_ms, rests=True)


@pytest.mark.parametrize(
    ("rule", "clock_ms", "standings", "expected"),
    [
        ("it goes by the slowest", 10, [awake(30), awake(20)], 20),
        ("it never falls", 25, [awake(20)], 25),
        ("who was never heard of holds it where nothing is known", None, [awake(30), awake(None)], None),
        ("who rests holds nothing", 10, [awake(30), resting(20)], 30),
        ("an input that is empty from birth holds nothing", 10, [awake(30), resting(None)], 30),
        ("when all rest it comes to the highest that was seen", 10, [resting(30), resting(20)], 30),
        ("when all rest and nothing was seen it stays", 10, [resting(None)], 10),
        ("nothing to read from: it stays", None, [], None),
        ("who woke up far behind does not hold it back", 50, [awake(80), awake(20)], 80),
        ("who woke up does not rewind it", 50, [awake(20)], 50),
        ("who woke up holds it again once it has caught up", 50, [awake(80), awake(50)], 50),
        ("the first events of an input that was empty hold it where it is", 50, [awake(80), awake(None)], 50),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_clock_moves(rule: str, clock_ms: float | None, standings: list[Standing], expected: float | None) -> None:
    assert advanced(clock_ms, standings) == expected


@pytest.mark.parametrize(
    ("clock_ms", "standings", "expected"),
    [
        (10, [], None),
        (10, [resting(5)], None),
        (10, [awake(15), awake(12)], 12),
        (10, [awake(5)], None),  # it woke up, and has not caught up
        (10, [awake(15), awake(None)], 10),
        (None, [awake(None), awake(5)], EARLIEST_MS),
    ],
)
def test_what_the_other_inputs_hold_a_batch_to(
    clock_ms: float | None, standings: list[Standing], expected: float | None
) -> None:
    assert held_to(clock_ms, standings) == expected


def test_an_input_that_is_empty_holds_from_the_moment_in_which_something_waits_in_it() -> None:
    time = InputTime(delay_ms=5)
    assert all(each.rests for each in time.standings(has_more=False))
    assert not any(each.rests for each in time.standings(has_more=True))


def test_an_idle_input_is_awake_once_something_was_read_from_it() -> None:
    time = InputTime(delay_ms=5, highest_ms=100, idle=True)
    assert advanced(50, time.standings(has_more=False)) == 100
    assert advanced(50, time.standings(has_more=True)) == 95
    time.saw(70)
    assert time.standings(has_more=False) == (Standing(95, 100),)


def test_a_watermark_read_with_a_head_counts_once_everything_before_that_head_is_committed() -> None:
    time = InputTime(internal=True)
    assert advanced(None, time.standings(has_more=False)) is None  # nobody has said anything yet
    time.heard(Offset(10), [awake(100)])
    time.read_to(Offset(9))
    assert advanced(None, time.standings(has_more=False)) is None
    time.read_to(Offset(10))
    assert advanced(None, time.standings(has_more=False)) == 100


def test_what_waits_to_count_is_not_put_off_by_what_is_heard_later() -> None:
    time = InputTime(internal=True)
    for head in (10, 20, 30):
        time.heard(Offset(head), [awake(head * 10)])
    time.read_to(Offset(15))
    assert time.watermark_ms == 100
    time.read_to(Offset(29))
    assert time.watermark_ms == 100
    time.read_to(Offset(30))
    assert time.watermark_ms == 300


def test_who_rested_holds_the_clock_where_it_is_until_what_it_wrote_since_is_read() -> None:
    """Else a task that is slow to read one of its inputs is led past it by the others, and finds it late."""
    time = InputTime(internal=True)
    time.heard(Offset(0), [resting(None), resting(40)])
    time.read_to(Offset(0))
    assert advanced(30, [awake(100), *time.standings(has_more=False)]) == 100
    time.heard(Offset(10), [awake(90), resting(40)])
    assert advanced(30, [awake(100), *time.standings(has_more=True)]) == 30
    time.read_to(Offset(10))
    assert advanced(30, [awake(100), *time.standings(has_more=True)]) == 90


def test_who_went_on_and_rests_again_is_known_when_what_it_wrote_is_read() -> None:
    time = InputTime(internal=True)
    time.heard(Offset(0), [resting(40)])
    time.read_to(Offset(0))
    for head in (5, 10):
        time.heard(Offset(head), [resting(40 + head)])
    time.read_to(Offset(5))
    assert advanced(30, [awake(100), *time.standings(has_more=True)]) == 30
    time.read_to(Offset(10))
    assert advanced(30, [awake(100), *time.standings(has_more=True)]) == 100


def test_who_rests_all_the_while_holds_nothing_though_others_write() -> None:
    time = InputTime(internal=True)
    for head in (0, 10, 20, 30):
        time.heard(Offset(head), [awake(90 + head), resting(40)])
    time.read_to(Offset(10))
    assert advanced(30, [awake(200), *time.standings(has_more=True)]) == 90


MAKER = Maker(stage=0, hold_ms=20)


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        ("what it writes may be older by the hold", (100, 5, False, 130), Standing(80, 100)),
        ("it rests after long at its end", (100, 1000, True, None), Standing(80, 100, rests=True)),
        ("not while something waits or is due", (100, 1000, False, None), Standing(80, 100)),
        ("not before long", (100, 999, True, None), Standing(80, 100)),
        ("resting, it comes no further than what it will still write", (100, 1000, True, 110), Standing(80, 89, True)),
        ("there never was an event: it rests at once", (None, None, True, None), Standing(None, None, True)),
        ("something waits for it", (None, None, False, None), Standing(None, None)),
        ("the end of time is the end for all", (END_MS, 5, True, None), Standing(END_MS, END_MS)),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_task_of_an_earlier_stage_stands(
    rule: str, given: tuple[float | None, float | None, bool, float | None], expected: Standing
) -> None:
    assert standing(MAKER, 1000, *given) == expected


def test_timers_are_due_by_the_clock_that_they_go_by() -> None:
    time = TaskTime(clock_ms=100, next_event_ms=101, next_wall_ms=None)
    assert not time.has_due(now=0)
    time.clock_ms = 101
    assert time.has_due(now=0)
    time = TaskTime(clock_ms=None, next_event_ms=EARLIEST_MS, next_wall_ms=5000.0)
    assert not time.has_due(now=10)  # what the database's clock says is not known yet
    time.ahead_ms = -5000.5
    assert not time.has_due(now=10)
    time.ahead_ms = -5000.0
    assert time.has_due(now=10)


@pytest.mark.parametrize(("passes_on", "wait_s"), [(True, RARELY_S), (False, SELDOM_S)])
def test_a_clock_that_moves_alone_is_committed_so_seldom(passes_on: bool, wait_s: float) -> None:
    time = TaskTime(clock_ms=100, committed_ms=100, passes_on=passes_on)
    time.wait_to_commit(now=10)
    assert not time.is_to_commit(now=10 + wait_s)  # it has not moved
    time.clock_ms = 101
    assert not time.is_to_commit(now=10 + 0.99 * wait_s)
    assert time.is_to_commit(now=10 + wait_s)


@pytest.mark.parametrize(
    ("clock_ms", "limit_ms", "expected"),
    [
        (None, 50.0, 50.0),
        (None, 100.0, 80.0),
        (20.0, 50.0, 50.0),
        (60.0, 50.0, 60.0),
        (None, float("-inf"), None),
        (20.0, float("-inf"), 20.0),
    ],
)
def test_a_clock_comes_no_further_than_its_limit_and_does_not_fall_to_it(
    clock_ms: float | None, limit_ms: float, expected: float | None
) -> None:
    time = TaskTime(clock_ms, limit_ms=limit_ms)
    time.advance([Standing(80.0, 80.0)])
    assert time.clock_ms == expected
