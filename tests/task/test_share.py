"""Lanes: little work gathers in one, much work spreads over all."""

from __future__ import annotations

import pytest

from jeet.task.share import LONG_S, MUCH_EVENTS, PATIENCE_S, Waiting, Work, how_many_to_run, how_many_to_take, is_much

LITTLE, MUCH, LONG = Work(3, 0.001), Work(MUCH_EVENTS, 0.001), Work(1, LONG_S)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ([], False),
        ([LITTLE] * 8, False),
        ([MUCH], True),
        ([Work(MUCH_EVENTS // 2, 0.0)] * 2, True),
        ([LONG], True),
        ([Work(1, 0.0, starts=True)], True),
    ],
)
def test_many_events_or_long_turns_are_much(work: list[Work], expected: bool) -> None:
    assert is_much(work) is expected


@pytest.mark.parametrize(
    ("work", "began_at", "idle", "much", "expected"),
    [
        ([], None, True, False, 0),
        ([LITTLE] * 3, None, False, False, 3),  # both would begin a cycle: one is enough
        ([LITTLE] * 3, None, True, False, 3),
        ([LITTLE] * 3, None, False, True, 0),  # but not one that will last
        ([MUCH] * 3, None, True, False, 0),  # it begins with that itself, and leaves some
        ([LITTLE] * 3, 100.0, True, False, 0),  # its cycle will soon be over
        ([LITTLE] * 3, 100.0 - PATIENCE_S, True, False, 2),  # or will it not
        ([LITTLE] * 3, 100.0 - PATIENCE_S, False, False, 0),
        ([MUCH] * 4, 100.0, True, False, 2),
        ([MUCH], 100.0, True, False, 1),
        ([MUCH] * 4, 100.0, False, False, 0),
    ],
)
def test_what_an_idle_lane_takes(
    work: list[Work], began_at: float | None, idle: bool, much: bool, expected: int
) -> None:
    assert how_many_to_take(Waiting(work, began_at, small=True), idle=idle, much=much, now=100.0) == expected


def test_nobody_waits_for_a_cycle_with_much_in_it() -> None:
    peer = Waiting([LITTLE] * 3, 100.0, small=False)
    assert how_many_to_take(peer, idle=True, much=False, now=100.0) == 2
    assert how_many_to_take(peer, idle=False, much=False, now=100.0) == 0


@pytest.mark.parametrize(
    ("work", "peer_idle", "expected"),
    [([LITTLE] * 8, True, 8), ([MUCH] * 8, False, 8), ([MUCH] * 8, True, 4), ([MUCH] * 3, True, 2), ([MUCH], True, 1)],
)
def test_much_work_is_shared_with_an_idle_lane(work: list[Work], peer_idle: bool, expected: int) -> None:
    assert how_many_to_run(work, peer_idle=peer_idle) == expected
