"""Who is lost, as a table of cases: a heartbeat that does not come, on two clocks of which one may be set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jeet.control.watch import Seen, Stillness, judge
from jeet.ids import WorkerId

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("gone", "silent_s", "still_s", "reason"),
    [
        (True, 0.0, 0.0, "crashed"),
        (True, 9.0, 9.0, "crashed"),
        (False, 0.3, 0.3, None),
        (False, 2.1, 2.0, "frozen"),  # both clocks agree
        (False, 2.1, 1.0, "frozen"),  # this coordinator came later
        (False, 3600.0, 0.2, None),  # the clock was set forward a moment ago
        (False, -3600.0, 2.1, "frozen"),  # the clock was set back
        (False, -3600.0, 1.9, None),
    ],
)
def test_a_worker_is_lost_when_its_session_is_gone_or_its_heart_stands_still(
    gone: bool, silent_s: float, still_s: float, reason: str | None
) -> None:
    seen = Seen(WorkerId(1), "here", 1, "running", NOON, silent_s, gone)
    lost = judge([seen], {1: still_s}, heartbeat_timeout_s=2.0, needed_s=1.0)
    assert [each.reason for each in lost] == ([] if reason is None else [reason])


def test_stillness_is_counted_from_the_look_that_saw_the_last_beat() -> None:
    stillness = Stillness(gap_s=1.0)
    later = NOON + timedelta(seconds=0.5)
    assert stillness.seen(10.0, {1: NOON}) == {1: 0.0}
    assert stillness.seen(10.5, {1: NOON, 2: NOON}) == {1: 0.5, 2: 0.0}
    assert stillness.seen(11.0, {1: later, 2: NOON}) == {1: 0.0, 2: 0.5}
    assert stillness.seen(11.25, {1: NOON, 2: NOON}) == {1: 0.0, 2: 0.75}, "a heartbeat of another time is another one"


def test_who_did_not_look_for_a_while_begins_anew() -> None:
    stillness = Stillness(gap_s=1.0)
    stillness.seen(10.0, {1: NOON})
    assert stillness.seen(11.5, {1: NOON}) == {1: 0.0}
    assert stillness.seen(12.0, {1: NOON}) == {1: 0.5}
