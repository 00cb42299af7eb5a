"""Dead letters: look at them, run them again, give them up.

A redrive hands the event back to the task that failed; no other reader of the stream sees it. It runs out of its order,
with the function's present version and state, and its effects are committed as any batch's are: it is then `redriven`.
Failing again leaves it `open` with one attempt more. A dropped one stays listed and is not run again, also if it was
just about to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import DictRow

from jeet.control.change import change
from jeet.control.registry import no_function, one, rows
from jeet.errors import NotFound, UsageError


@dataclass(frozen=True)
class DeadLetter:
    id: int
    function: str
    stage: int
    partition: int
    offset: int
    key: str | None
    event: str
    error: str
    stack: str
    attempts: int
    version: int
    failed_at: datetime
    status: str
    stream: str | None
    state_key: str | None
    queued: bool
    """it waits to be run again"""


@dataclass(frozen=True)
class Redriven:
    """What became of a wish to run dead letters again."""

    queued: int
    waiting: int
    """were queued before and still wait"""
    paused: tuple[str, ...]
    """functions that will not run them before they are resumed"""


def letters(
    db: psycopg.Connection, function: str | None = None, *, status: str | None = "open", limit: int = 50
) -> list[DeadLetter]:
    """The newest dead letters, of one function or all; status None is any."""
    if limit < 1:
        raise UsageError(f"--limit must be a whole number above 0, not {limit}")
    found = rows(db, "dlq_list", {"function": function, "status": status, "id": None, "limit": limit})
    if not found and function is not None:
        _check_function(db, function)
    return [DeadLetter(**row) for row in found]


def letter(db: psycopg.Connection, number: int) -> DeadLetter:
    """One dead letter with everything there is."""
    row = one(db, "dlq_list", {"function": None, "status": None, "id": number, "limit": 1})
    if row is None:
        raise NotFound(f"no dead letter {number}; jeet dlq list shows those that are open")
    return DeadLetter(**row)


def redrive(db: psycopg.Connection, *, number: int | None = None, function: str | None = None) -> Redriven:
    """Run one dead letter again, or all open ones of a function."""
    with change(db):
        found = _open(db, number, function)
        lost = [row["id"] for row in found if row["lost"]]
        if lost and number is not None:
            raise UsageError(
                f"dead letter {number} cannot be run again: its event was too long to be kept whole, and the stream's"
                " retention has taken the original"
            )
        ready = [row["id"] for row in found if not row["lost"]]
        row = db.execute("select jeet_internal.redrive_dead_letters(%s)", (ready,)).fetchone()
        assert row is not None
    paused = sorted({row["function"] for row in found if row["function_status"] != "running"})
    return Redriven(row[0], sum(each["queued"] for each in found), tuple(paused))


def drop(db: psycopg.Connection, *, number: int | None = None, function: str | None = None) -> int:
    """Give up one dead letter, or all open ones of a function; returns how many."""
    with change(db):
        found = _open(db, number, function)
        row = db.execute("select jeet_internal.drop_dead_letters(%s)", ([each["id"] for each in found],)).fetchone()
        assert row is not None
    return int(row[0])


def _open(db: psycopg.Connection, number: int | None, function: str | None) -> list[DictRow]:
    found = rows(db, "dlq_open", {"id": number, "function": function})
    if number is not None:
        if not found:
            raise NotFound(f"no dead letter {number}; jeet dlq list shows those that are open")
        if found[0]["status"] != "open":
            raise UsageError(f"dead letter {number} is {found[0]['status']} already; nothing was changed")
    elif not found and function is not None:
        _check_function(db, function)
    return found


def _check_function(db: psycopg.Connection, name: str) -> None:
    if one(db, "registry_show", {"name": name}) is None:
        raise no_function(db, name)


def parse_number(text: str) -> int:
    """The number of a dead letter as it was typed."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(
            f"{json.dumps(text, ensure_ascii=False)} is not the number of a dead letter; jeet dlq list shows them, and"
            " NAME --all takes all open ones of a function"
        )
    return int(text)
