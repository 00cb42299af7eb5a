"""Savepoints: a function as it stood at one moment, kept, listed, and gone back to.

Promise: a savepoint holds, for all tasks of a function as of one moment between commits, what they had committed:
positions, state, timers, event time, open dead letters, and what lay between stages. Taking it stops nobody. Restoring
is one transaction, in which the tasks are fenced: whatever dies, the function is as it was or as the savepoint has it.
What the function wrote to streams stays there; what it reads again, it writes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from jeet.control import stages
from jeet.control.change import at_rest, change, fence
from jeet.control.registry import Progress, find, no_function, one, rows, wait_until_running
from jeet.control.signature import compare
from jeet.control.spec import check_name
from jeet.control.twin import Twin
from jeet.db.sql import query
from jeet.errors import DeployError, NotFound, UsageError
from jeet.ids import FunctionId


@dataclass(frozen=True)
class Savepoint:
    """What there is to say of one."""

    id: int
    function: str
    version: int
    taken_at: datetime
    why: str
    automatic: bool
    positions: Mapping[str, Sequence[int]]
    """of each source: the next offset of each partition"""
    entries: int
    timers: int
    events: int
    """under way between stages"""
    letters: int
    bytes: int


@dataclass(frozen=True)
class Restored:
    """What a restore did."""

    name: str
    version: int
    savepoint: int
    status: str
    again: int
    """events that are processed again"""
    skipped: int
    """events that had been passed by when the savepoint was taken, but not when it was restored"""
    streams: tuple[str, ...]
    """streams that it created"""
    notes: tuple[str, ...]
    progress: Progress
    before: int | None = None
    """savepoint taken before"""


def take(db: psycopg.Connection, name: str, why: str) -> Savepoint:
    """Keep a function as it stands now, until the savepoint is dropped."""
    row = one(db, "registry_id", {"name": name})
    if row is None:
        raise no_function(db, name)
    if one(db, "rebuild_progress", {"function": row["id"]}) is not None:
        raise UsageError(f"{name} is being rebuilt and has no state of one moment: wait until that is over")
    try:
        made = _take(db, FunctionId(row["id"]), why, automatic=False)
    except psycopg.Error as error:
        if error.sqlstate != "JT132":
            raise
        raise DeployError(error.diag.message_primary or str(error)) from error
    return next(each for each in savepoints(db, name) if each.id == made)


def take_before(db: psycopg.Connection, function: FunctionId, why: str) -> int | None:
    """Keep a function as it stands before a change, in the transaction of that; None if it has nothing to keep."""
    needed = db.execute(query("savepoint_needed"), {"function": function}).fetchone()
    return _take(db, function, why, automatic=True) if needed == (True,) else None


def _take(db: psycopg.Connection, function: FunctionId, why: str, *, automatic: bool) -> int:
    row = db.execute("select jeet_internal.take_savepoint(%s, %s, %s)", (function, why, automatic)).fetchone()
    assert row is not None
    return int(row[0])


def savepoints(db: psycopg.Connection, name: str) -> list[Savepoint]:
    """Those of a function, newest first."""
    if one(db, "registry_id", {"name": name}) is None:
        raise no_function(db, name)
    return [Savepoint(**row) for row in rows(db, "savepoint_list", {"name": name})]


def drop(db: psycopg.Connection, name: str, savepoint: int) -> None:
    """Give a savepoint up; what it holds is removed by maintenance."""
    row = one(db, "registry_id", {"name": name})
    if row is None:
        raise no_function(db, name)
    if db.execute(query("savepoint_drop"), {"function": row["id"], "savepoint": savepoint}).rowcount == 0:
        raise _no_savepoint(name, savepoint)


def restore(db: psycopg.Connection, name: str, savepoint: int, *, keep: bool = True, wait_s: float = 5.0) -> Restored:
    """Let a function go on from where a savepoint has it, with the version that it runs now.

    With `keep`, what there is before is kept in another, unless it is being rebuilt, and so not whole.
    """
    row = one(db, "registry_id", {"name": name})
    if row is None:
        raise no_function(db, name)
    function = FunctionId(row["id"])
    with at_rest(db, function), change(db):
        found = find(db, name)
        point = _find(db, function, name, savepoint)
        before = stages.stored(db, function, point["version"])
        comparison = compare(before.signatures, stages.stored(db, function, found["version"]).signatures)
        if not comparison.fits:
            raise DeployError(
                f"savepoint {savepoint} is of version {point['version']} of {name}, and version {found['version']},"
                f" which runs, cannot go on from it: {comparison.told}. Either jeet rollback {name} {point['version']}"
                f" --reset first, or jeet restore {name} {savepoint} --into=OTHER"
            )
        fence(db, function)
        kept = take_before(db, function, "before a restore") if keep and not found["rebuilding"] else None
        again, skipped = _places(db, function, name, savepoint)
        gone = _unrestorable(db, function, savepoint)
        moves = comparison.moves
        _set(db, savepoint, function, {old: new for new, old in moves.items()})
        _hold_sources(db, function, name, savepoint)
        status = _status(db, function)
    progress = wait_until_running(db, function, wait_s if status == "running" else 0)
    notes = [*_written_again(name, found["spec"], again)]
    if gone:
        notes.append(
            f"dead letters of events between stages ({gone}) could not be restored: those streams were made anew"
        )
    if status == "paused":
        notes.append(f"it is paused; jeet resume {name} starts it")
    return Restored(name, found["version"], savepoint, status, again, skipped, (), tuple(notes), progress, kept)


def restore_into(
    db: psycopg.Connection, name: str, savepoint: int, other: str, *, sink: str | None = None, wait_s: float = 5.0
) -> Restored:
    """Make a second function that goes on from a savepoint of the first, with the version that the savepoint is of.

    It reads the same sources. It writes nothing to a stream of the first one's: its sink is `sink`, and for each other
    stream (and for the sink, if none is given) it has one of its own, named after both.
    """
    check_name("function", other, f"--into={other}")
    with change(db):
        row = find(db, name)
        first = FunctionId(row["id"])
        if one(db, "registry_id", {"name": other}) is not None:
            raise UsageError(f"a function {other} exists already: choose another name, or jeet delete {other} first")
        point = _find(db, first, name, savepoint)
        version = point["version"]
        settings = one(db, "registry_version", {"function": first, "version": version})
        assert settings is not None
        written = {each["name"] for each in rows(db, "registry_past_outputs", {"function": first})}
        made = Twin(db, name, other, sink, stages.stored(db, first, version), settings["spec"], written)
        function = made.create(first, version, savepoint)
        again, _ = _places(db, function, name, savepoint)
        _set(db, savepoint, function, {number: number for number in range(len(made.stages.plans))})
        db.execute("select jeet_internal.refresh_cycles()")
        _hold_sources(db, function, name, savepoint)
        db.execute("select pg_notify('jeet_control', %s)", (f"function {function}",))
    notes = []
    if any(new != old for old, new in made.renamed.items()):
        told = ", ".join(f"{new} for {old}" for old, new in made.renamed.items() if new != old)
        notes.append(f"it writes to streams of its own: {told}")
    if point["letters"]:
        notes.append(f"open dead letters ({point['letters']}) stay with {name}")
    progress = wait_until_running(db, function, wait_s)
    return Restored(other, version, savepoint, "running", again, 0, tuple(made.created), tuple(notes), progress)


def _find(db: psycopg.Connection, function: FunctionId, name: str, savepoint: int) -> Mapping[str, Any]:
    point = one(db, "savepoint_find", {"function": function, "savepoint": savepoint})
    if point is None:
        raise _no_savepoint(name, savepoint)
    return point


def _no_savepoint(name: str, savepoint: int) -> NotFound:
    return NotFound(f"{name} has no savepoint {savepoint}; jeet savepoints {name} lists them")


def _places(db: psycopg.Connection, function: FunctionId, name: str, savepoint: int) -> tuple[int, int]:
    """How many events will be read again, and how many are passed by; UsageError if some are not there any more."""
    again = skipped = 0
    for row in rows(db, "savepoint_places", {"function": function, "savepoint": savepoint}):
        _check_place(row, name, savepoint)
        moved = (row["head"] if row["now"] is None else row["now"]) - row["next_offset"]
        again, skipped = again + max(moved, 0), skipped + max(-moved, 0)
    return again, skipped


def _hold_sources(db: psycopg.Connection, function: FunctionId, name: str, savepoint: int) -> None:
    """See that what is to be read is there still, and stays: the last thing, as publishers wait from here on."""
    for row in rows(db, "hold_sources", {"function": function}):
        _check_place(row, name, savepoint)


def _check_place(row: Mapping[str, Any], name: str, savepoint: int) -> None:
    where = f"savepoint {savepoint} of {name} begins at offset {row['next_offset']} of partition {row['partition']}"
    if row["head"] is None or row["next_offset"] > row["head"]:
        raise UsageError(f"{where} of {row['stream']}, which is not the stream that it was: nothing was changed")
    if row["next_offset"] < row["first_offset"]:
        raise UsageError(
            f"{where} of {row['stream']}, and retention has taken the events before {row['first_offset']}: nothing"
            f" was changed; jeet reset {name} --to=earliest starts again from what there is"
        )


def _unrestorable(db: psycopg.Connection, function: FunctionId, savepoint: int) -> int:
    row = one(db, "savepoint_lost_letters", {"function": function, "savepoint": savepoint})
    return 0 if row is None else int(row["lost"])


def _set(db: psycopg.Connection, savepoint: int, function: FunctionId, moves: Mapping[int, int]) -> None:
    """`moves`: stage in the savepoint → stage now."""
    values = (savepoint, function, list(moves), list(moves.values()))
    db.execute("select jeet_internal.restore_savepoint(%s, %s, %s::int[], %s::int[])", values)


def _status(db: psycopg.Connection, function: FunctionId) -> str:
    row = db.execute("select status from jeet_internal.function where id = %s", (function,)).fetchone()
    assert row is not None
    return str(row[0])


def _written_again(name: str, settings: Mapping[str, Any], again: int) -> list[str]:
    """What a person must know of outputs that are there already."""
    outputs = [each["stream"] for each in settings.get("outputs") or [] if each.get("stream")]
    if not again or not outputs:
        return []
    where = ", ".join(outputs)
    return [
        f"{again:,} events are processed again: what {name} made of them stays in {where}, and comes there once more"
    ]
