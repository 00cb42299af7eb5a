"""A running task's decisions, without a database."""

from __future__ import annotations

import pytest

from jeet.task.turn import next_size


@pytest.mark.parametrize(
    ("size", "count", "processed", "spent_s", "expected"),
    [
        (500, 500, 500, 0.001, 1000),  # quick: grows by steps
        (3000, 3000, 3000, 0.010, 4000),  # to the limit
        (1000, 1000, 1000, 0.040, 1000),  # four fifths of a slice: just right
        (1000, 1000, 1000, 0.080, 500),
        (1000, 1000, 600, 0.050, 480),  # the slice ended before the batch did
        (1000, 10, 10, 0.001, 1000),  # there was no more to read
        (2, 2, 1, 0.100, 1),
        (1, 1, 1, 5.0, 1),
    ],
)
def test_a_batch_is_as_large_as_fits_into_a_time_slice(
    size: int, count: int, processed: int, spent_s: float, expected: int
) -> None:
    assert next_size(size, count, processed, spent_s, slice_s=0.05, most=4000) == expected
