"""Each error of the database has one meaning, looked up in one table."""

from __future__ import annotations

import asyncpg
import pytest

from jeet.db.sqlstates import Verdict, verdict

CASES = {
    Verdict.RETRY: "40001 40P01 55P03 57014 53000 53100 53200 53300 58030 55006",
    Verdict.DOUBT: "57P01 57P02 57P03 08000 08003 08006 25006 25P03 25P04 40003",
    Verdict.DATA: "22P02 22P05 22021 22003 22023 54000 54001 21000 23502 23505 23503",
    Verdict.LEASE: "JT001",
    Verdict.MOVED: "JT002",
    Verdict.SEGMENT: "23514",
    Verdict.BUG: "42P01 42883 42501",
}


@pytest.mark.parametrize(
    ("state", "expected"), [(state, meaning) for meaning, states in CASES.items() for state in states.split()]
)
def test_a_sqlstate_has_its_meaning(state: str, expected: Verdict) -> None:
    assert verdict(asyncpg.PostgresError.new({"C": state, "M": "by a test"})) is expected


def test_a_constraint_that_data_breaks_is_not_a_missing_segment() -> None:
    error = asyncpg.PostgresError.new({"C": "23514", "M": "by a test", "n": "amount_is_positive"})
    assert verdict(error) is Verdict.DATA


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(), asyncpg.InterfaceError("closed"), OSError("no route")]
)
def test_a_broken_connection_leaves_doubt(error: Exception) -> None:
    assert verdict(error) is Verdict.DOUBT


def test_a_text_that_cannot_be_sent_is_data() -> None:
    from asyncpg.exceptions._base import DataError

    assert verdict(DataError("invalid input for query argument")) is Verdict.DATA
