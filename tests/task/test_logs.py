"""Console output is bounded by the minute, and what was cut is counted and told."""

from __future__ import annotations

from jeet.ids import Offset
from jeet.limits import DEFAULTS
from jeet.task.effects import LoggedLine
from jeet.task.logs import MINUTE_S, LogBudget

LINES = DEFAULTS["log_lines_per_minute"]
BYTES = DEFAULTS["log_bytes_per_minute"]


def line(text: str = "x") -> LoggedLine:
    return LoggedLine(Offset(7), "info", text)


def test_what_is_within_the_budget_is_kept_as_it_is() -> None:
    budget = LogBudget()
    assert budget.admit([line()] * LINES, 0.0) == [line()] * LINES


def test_more_lines_are_cut_which_is_told_at_once_and_counted_after_the_minute() -> None:
    budget = LogBudget()
    kept = budget.admit([line("é")] * (LINES + 5), 0.0)
    assert kept[:LINES] == [line("é")] * LINES
    (told,) = kept[LINES:]
    assert (told.level, told.offset) == ("warning", None)
    assert "is cut" in told.message
    assert budget.admit([line("é")] * 2, MINUTE_S - 1) == []
    (count,) = budget.admit([], MINUTE_S)
    assert "7 lines of 14 bytes were cut" in count.message
    assert budget.admit([line()], MINUTE_S + 1) == [line()]


def test_bytes_are_bounded_as_lines_are() -> None:
    budget = LogBudget()
    assert len(budget.admit([line("x" * BYTES)], 0.0)) == 1
    (told,) = budget.admit([line()], 1.0)
    assert "log_bytes_per_minute" in told.message


def test_a_minute_without_cuts_ends_without_a_word() -> None:
    budget = LogBudget()
    budget.admit([line()], 0.0)
    assert budget.admit([], 2 * MINUTE_S) == []
