"""Decisions about failed events, as tables of cases."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from jeet.errors import UsageError
from jeet.ids import Offset
from jeet.task.retry import (
    CRASH_PIECE,
    LONGEST_RETRY_S,
    Careful,
    OnError,
    Verdict,
    after_crashes,
    backoff_s,
    judge,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, OnError()),
        ("dead-letter", OnError()),
        ("halt", OnError("halt")),
        ({"retry": 3}, OnError("retry", 3, 1.0)),
        ({"retry": 3, "backoff": "250ms"}, OnError("retry", 3, 0.25)),
        ({"retry": 1, "backoff": "2m"}, OnError("retry", 1, 120.0)),
    ],
)
def test_on_error_is_read_as_it_is_written(value: Any, expected: OnError) -> None:
    assert OnError.parse(value) == expected


@pytest.mark.parametrize("value", ["skip", 3, {"retry": "3"}, {"retry": 1, "backoff": "soon"}, {"backoff": "1s"}])
def test_anything_else_is_refused_with_what_may_be_written(value: Any) -> None:
    with pytest.raises(UsageError):
        OnError.parse(value)


def test_without_a_policy_a_lone_failure_is_a_dead_letter() -> None:
    assert judge(OnError(), 1, 0.0).verdict is Verdict.SET_ASIDE


def test_halt_skips_nothing() -> None:
    assert judge(OnError("halt"), 1, 0.0).verdict is Verdict.HALT


def test_retries_are_counted_and_their_pauses_double() -> None:
    policy, waited, pauses = OnError("retry", 3, 1.0), 0.0, []
    for attempt in (1, 2, 3):
        judgement = judge(policy, attempt, waited)
        assert judgement.verdict is Verdict.RETRY
        pauses.append(judgement.wait_s)
        waited += judgement.wait_s
    assert pauses == [1.0, 2.0, 4.0]
    assert judge(policy, 4, waited).verdict is Verdict.SET_ASIDE


def test_an_event_never_holds_up_its_partition_for_more_than_a_minute() -> None:
    policy, waited, attempt = OnError("retry", 1000, 7.0), 0.0, 1
    while (judgement := judge(policy, attempt, waited)).verdict is Verdict.RETRY:
        waited += judgement.wait_s
        attempt += 1
    assert waited == pytest.approx(LONGEST_RETRY_S)


@pytest.mark.parametrize("guilty", range(100, 137))
def test_halving_finds_the_event_at_fault_in_few_steps_and_lets_all_others_through(guilty: int) -> None:
    careful: Careful | None = Careful(Offset(100), Offset(137))
    position, done, steps = Offset(100), [], 0
    while careful is not None:
        steps += 1
        size, alone = careful.size(position), careful.alone(position)
        piece = range(position, position + size)
        if guilty in piece:
            if alone:
                assert list(piece) == [guilty]
                break
            careful = Careful(Offset(piece.start), Offset(piece.stop))
            continue
        done.extend(piece)
        position = Offset(piece.stop)
        careful = careful.past(position)
    assert done == list(range(100, guilty))
    assert steps <= 12


def test_what_lies_before_the_suspects_runs_as_one_batch() -> None:
    careful = Careful(Offset(50), Offset(51))
    assert careful.size(Offset(10)) == 40
    assert not careful.alone(Offset(10))
    assert careful.alone(Offset(50))
    assert careful.past(Offset(50)) == careful
    assert careful.past(Offset(51)) is None


def test_attempts_belong_to_the_event_that_failed_and_not_to_the_next() -> None:
    careful = Careful(Offset(5), Offset(9), piece=1).again(1.5)
    assert (careful.attempt, careful.waited_s) == (2, 1.5)
    after = careful.past(Offset(6))
    assert after is not None
    assert (after.attempt, after.waited_s) == (1, 0.0)


@pytest.mark.parametrize(
    ("crashes", "recorded", "expected"),
    [
        (0, {}, None),
        (1, {}, None),
        (2, {}, Careful(Offset(7), Offset(107), piece=CRASH_PIECE, crashed={})),
        (0, {Offset(8): 1}, Careful(Offset(7), Offset(9), piece=CRASH_PIECE, crashed={Offset(8): 1})),
    ],
)
def test_two_dead_owners_or_an_event_on_record_call_for_care(
    crashes: int, recorded: dict[Offset, int], expected: Careful | None
) -> None:
    assert after_crashes(Offset(7), crashes, recorded, window=100) == expected


def test_events_on_record_run_alone_and_the_rest_in_pieces() -> None:
    careful = Careful(Offset(0), Offset(500), piece=CRASH_PIECE, crashed={Offset(3): 1, Offset(4): 1})
    assert careful.size(Offset(3)) == 1
    assert careful.size(Offset(5)) == CRASH_PIECE


def test_backoff_grows_within_bounds_and_varies() -> None:
    random = Random(1)
    waits = [backoff_s(5, random) for _ in range(100)]
    assert len(set(waits)) > 90
    assert all(0.02 * 32 * 0.5 <= wait <= 0.02 * 32 * 1.5 for wait in waits)
    assert backoff_s(10_000, random) <= 3.0
