"""The keys that bring most are found, with an error that holds; where all bring the same, none is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle, islice
from random import Random

import pytest

from jeet.observe import hotkeys
from jeet.observe.hotkeys import KEPT, PANE_S, HotKey, HotKeys, Sum


def column(keys: Sequence[str | None]) -> bytes:
    return b"\n".join(json.dumps(key).encode() for key in keys)


def told(keys: Sequence[str | None], batch: int, ticks: Sequence[int] = ()) -> tuple[list[HotKey], int | None] | None:
    found = HotKeys()
    for start in range(0, len(keys), batch):
        part = keys[start : start + batch]
        found.saw(column(part), len(part))
        found.ran(column(part), [index for index in ticks if index < len(part)])
    return found.hottest(0.0)


def skewed(share: float, count: int, others: int, random: Random) -> list[str]:
    return ["hot" if random.random() < share else f"k{random.randrange(others)}" for _ in range(count)]


@pytest.mark.parametrize("batch", [7, 500, 4000])
def test_a_key_with_nine_tenths_is_named_with_its_share_within_the_error(batch: int) -> None:
    keys = skewed(0.9, 40_000, 5_000, Random(1))
    answer = told(keys, batch)
    assert answer is not None
    (hot,), distinct = answer
    assert hot.key == "hot"
    assert abs(hot.share - keys.count("hot") / len(keys)) <= hot.error <= 0.05
    assert distinct is None or distinct > 20


@pytest.mark.parametrize("others", [3, 8, 100, 50_000])
@pytest.mark.parametrize("batch", [10, 4000])
def test_no_key_of_a_uniform_stream_is_named(others: int, batch: int) -> None:
    random = Random(2)
    answer = told([f"k{random.randrange(others)}" for _ in range(40_000)], batch)
    assert answer is not None
    assert answer[0] == []


def test_keys_that_take_turns_are_all_seen_alike() -> None:
    """A fixed step would meet the same key each time."""
    answer = told(list(islice(cycle(f"k{n}" for n in range(32)), 128_000)), 4096)
    assert answer == ([], 32)


def test_the_error_holds_in_all_but_a_hundredth_of_cases() -> None:
    random = Random(3)
    held = 0
    for _ in range(300):
        keys = skewed(0.2, 3000, 1000, random)
        found = HotKeys()
        for start in range(0, 3000, 1000):
            found.saw(column(keys[start : start + 1000]), 1000)
        share, error = found._events.share(b'"hot"')
        held += abs(share - keys.count("hot") / 3000) <= error
    assert held >= 290


def test_what_a_count_is_short_of_is_known_and_few_keys_are_kept() -> None:
    sums, keys = Sum(), [f"{n % 7}" if n % 3 else f"k{n}" for n in range(60_000)]
    for start in range(0, len(keys), 1000):
        sums.add([key.encode() for key in keys[start : start + 1000]], 1.0)
        assert len(sums.counts) <= 4 * KEPT
    for key in {f"{n}" for n in range(7)}:
        assert 0 <= keys.count(key) - sums.counts[key.encode()] <= sums.short
    assert sums.short <= len(keys) / KEPT


def test_a_key_of_slow_events_is_named_by_its_share_of_the_time() -> None:
    keys = [f"k{n % 50}" for n in range(1000)]
    answer = told(keys * 4, 1000, ticks=[7] * 40 + list(range(10, 20)))
    assert answer is not None
    (hot,), _ = answer
    assert hot.key == "k7"
    assert abs(hot.share - 0.02) <= hot.error
    assert hot.sandbox_share is not None
    assert hot.sandbox_error is not None
    assert abs(hot.sandbox_share - 0.8) <= hot.sandbox_error


def test_too_few_events_say_nothing_and_a_missing_key_is_no_key() -> None:
    assert told(["hot"] * 99, 10) is None
    assert told([None] * 10_000, 1000) == ([], 1)


def test_what_was_hot_a_minute_ago_is_not_hot_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotkeys, "LEAST_EVENTS", 10)
    found = HotKeys()
    found.saw(column(["old"] * 90 + [f"k{n}" for n in range(10)]), 100)
    assert [key.key for key in found.hottest(0.0)[0]] == ["old"]  # type: ignore[index]
    for pane in (1, 2):
        found.saw(column(["new"] * 90 + [f"k{n}" for n in range(10)]), 100)
        answer = found.hottest(pane * PANE_S)
        assert answer is not None
    assert [key.key for key in answer[0]] == ["new"]
