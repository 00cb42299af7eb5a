"""State built again from the source, while what a function has sent stays as it is.

Promise: from the command on, sources stand still; what had been read goes through and is sent; then state and event
time begin anew and the sources are read again up to where they stood, without sending anything; then the function goes
on from there, and each event has been sent for once. All of it is in the database (advance_rebuilds tells the phases),
so whoever dies, it goes on. A savepoint of before is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg

from jeet.control import stages
from jeet.control.change import change, fence
from jeet.control.registry import find, one, rows
from jeet.control.savepoints import take_before
from jeet.db.sql import query
from jeet.errors import DeployError, UsageError
from jeet.ids import FunctionId
from jeet.plan import StagePlan

_POLL_S = 0.1
_TELL_S = 2.0


@dataclass(frozen=True)
class Rebuilding:
    """A rebuild that has begun, or is under way."""

    name: str
    phase: str
    """settle, replay or close"""
    begun: bool
    """by this command"""
    events: int
    """to be processed again, still"""
    begun_at: datetime
    savepoint: int | None
    """taken before"""


def rebuild(db: psycopg.Connection, name: str, *, outputs: bool = False, partial: bool = False) -> Rebuilding:
    """Begin to build a function's state again from its sources; of one that is at it, say how far it is.

    With `outputs`, what is made of events that are processed again is sent again. With `partial`, it may begin with the
    first events that there are, though retention has taken others.
    """
    with change(db):
        row = find(db, name)
        function = FunctionId(row["id"])
        if row["rebuilding"]:
            return _progress(db, function, name)
        _check(db, function, name, row["status"], draining=row["draining"], outputs=outputs)
        savepoint = take_before(db, function, "before a rebuild")
        fence(db, function)
        events = _events(db, function, name, partial=partial)
        order = _order(stages.stored(db, function, row["version"]).plans)
        values = {"function": function, "stages": order, "outputs": outputs, "partial": partial}
        db.execute(query("rebuild_begin"), values)
        begun = _progress(db, function, name)
    return Rebuilding(name, begun.phase, True, events, begun.begun_at, savepoint)


def progress(db: psycopg.Connection, name: str) -> Rebuilding | None:
    """How far a rebuild is; None: there is none."""
    row = find(db, name)
    return _progress(db, FunctionId(row["id"]), name) if row["rebuilding"] else None


def wait(db: psycopg.Connection, name: str, tell: Callable[[str], None]) -> None:
    """Until it is over; `tell` hears how it fares. DeployError if it ended before it had begun anew."""
    row = one(db, "registry_id", {"name": name})
    told_at = time.monotonic()
    while row is not None and one(db, "rebuild_progress", {"function": row["id"]}) is not None:
        db.execute("select jeet_internal.advance_rebuilds()")
        if time.monotonic() - told_at > _TELL_S:
            told_at = time.monotonic()
            now = _progress(db, FunctionId(row["id"]), name)
            tell(f"rebuilding {name}: {now.phase}, {now.events:,} events to go")
        time.sleep(_POLL_S)
    if row is not None:
        failed = db.execute("select rebuild_failed from jeet_internal.function where id = %s", (row["id"],)).fetchone()
        if failed is not None and failed[0] is not None:
            raise DeployError(f"the rebuild of {name} has ended, and changed nothing: {failed[0]}")


def _progress(db: psycopg.Connection, function: FunctionId, name: str) -> Rebuilding:
    row = one(db, "rebuild_progress", {"function": function})
    if row is None:  # over just now
        return Rebuilding(name, "close", False, 0, datetime.now().astimezone(), None)
    return Rebuilding(name, row["phase"], False, row["events"], row["begun_at"], None)


def _check(
    db: psycopg.Connection, function: FunctionId, name: str, status: str, *, draining: bool, outputs: bool
) -> None:
    if status != "running":
        raise UsageError(f"{name} is {status}, and a rebuild needs it to run: jeet resume {name} first")
    if draining:
        raise UsageError(f"{name} drains for another version: deploy that, or jeet resume {name}, first")
    held = rows(db, "rebuild_letters", {"function": function})
    if held and held[0]["open"] and not outputs:
        raise UsageError(
            f"{name} has open dead letters ({held[0]['open']}): should their events go well this time, what they make"
            f" would not be sent; jeet dlq redrive or drop them first (jeet dlq list {name})"
        )


def _events(db: psycopg.Connection, function: FunctionId, name: str, *, partial: bool) -> int:
    """How many it will process again; UsageError if the first ones are gone."""
    events = 0
    for row in rows(db, "rebuild_sources", {"function": function}):
        if row["first_offset"] > 0 and not partial:
            raise UsageError(
                f"retention has taken the first {row['first_offset']} events of partition {row['partition']} of"
                f" {row['stream']}: what {name} kept of them cannot be built again; --partial goes without them"
            )
        events += row["events"]
    return events


def _order(plans: Sequence[StagePlan]) -> list[int]:
    """Stages, each after those that write what it reads."""
    makers = {out.stream: plan.number for plan in plans for out in plan.outputs if out.internal}
    order: list[int] = []
    while len(order) < len(plans):
        order += [
            plan.number
            for plan in plans
            if plan.number not in order and all(makers[each.stream] in order for each in plan.inputs if each.internal)
        ]
    return order
