"""Let a function read its sources from another place.

Promise: one transaction, in which the tasks are fenced: positions move, and what was kept of the place before (state,
timers, event time, events between stages, dead letters) goes, or nothing changes. What it wrote stays, and is written
again if it reads the same events again.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from jeet.control import stages
from jeet.control.change import at_rest, change, fence
from jeet.control.registry import Progress, find, no_function, one, rows, wait_until_running
from jeet.control.savepoints import take_before
from jeet.control.spec import Start
from jeet.db.sql import query
from jeet.errors import UsageError
from jeet.ids import FunctionId
from jeet.plan import StagePlan


@dataclass(frozen=True)
class Reset:
    """What a reset did."""

    name: str
    version: int
    status: str
    again: int
    """events that are processed again"""
    skipped: int
    """events that are passed by"""
    entries: int
    """of state that are gone"""
    letters: int
    """open dead letters that were given up"""
    outputs: tuple[str, ...]
    """streams that it writes to"""
    late: bool
    """it goes by event time, which does not go back: what it reads again may be late"""
    savepoint: int | None
    """taken before"""
    progress: Progress


def reset(
    db: psycopg.Connection,
    name: str,
    to: Start,
    *,
    keep_state: bool = False,
    savepoint: bool = True,
    wait_s: float = 5.0,
) -> Reset:
    """Read the sources from `to` on; with `keep_state` only the positions move. Without `savepoint` none is taken."""
    known = one(db, "registry_id", {"name": name})
    if known is None:
        raise no_function(db, name)
    function = FunctionId(known["id"])
    _check(db, function, name, to)
    with at_rest(db, function), change(db):
        row = find(db, name)
        # What is being rebuilt is not whole, and one was taken before that began.
        wanted = savepoint and not row["rebuilding"]
        fence(db, function)
        made = take_before(db, function, "before a reset") if wanted else None
        db.execute("select jeet_internal.end_rebuild(%s)", (function,))
        plans = stages.stored(db, function, row["version"]).plans
        forgotten = None if keep_state else one(db, "control_forget_progress", {"function": function})
        again, skipped = _move(db, function, plans, to, keep_state=keep_state)
        status = one(db, "control_run_again", {"function": function})
        assert status is not None
    progress = wait_until_running(db, function, wait_s if status["status"] == "running" else 0)
    return Reset(
        name=name,
        version=row["version"],
        status=status["status"],
        again=again,
        skipped=skipped,
        entries=forgotten["entries"] if forgotten else 0,
        letters=forgotten["letters"] if forgotten else 0,
        outputs=tuple(each["stream"] for each in row["spec"].get("outputs") or [] if each.get("stream")),
        late=keep_state and again > 0 and any(plan.timed for plan in plans),
        savepoint=made,
        progress=progress,
    )


def _check(db: psycopg.Connection, function: FunctionId, name: str, to: Start) -> None:
    """UsageError if there is no such place: all that waits would be passed by, and state be lost, by a slip."""
    plans = stages.stored(db, function, find(db, name)["version"]).plans
    names = sorted({each.stream for plan in plans for each in plan.inputs if not each.internal and not each.table})
    end = one(db, "reset_bounds", {"names": names})
    assert end is not None
    remedy = "nothing was changed; --to=latest passes by all that is there"
    if to.offset is not None and to.offset > end["head"]:
        raise UsageError(f"offset {to.offset} is past the end of {', '.join(names)}, {end['head']}: {remedy}")
    if to.time is not None and to.time > end["now"]:
        raise UsageError(f"{to.time:%Y-%m-%d %H:%M:%S} UTC is in the future: {remedy}")


def _move(
    db: psycopg.Connection,
    function: FunctionId,
    plans: tuple[StagePlan, ...],
    to: Start,
    *,
    keep_state: bool,
) -> tuple[int, int]:
    """Sources from `to`; without their rows, tables from the beginning; what lies between stages is passed by."""
    again = skipped = 0
    db.execute(query("hold_sources"), {"function": function})
    names = sorted({each.stream for plan in plans for each in plan.inputs})
    ids = {each["name"]: each["id"] for each in rows(db, "registry_streams", {"names": names})}
    for plan in plans:
        for each in plan.inputs:
            if keep_state and (each.internal or each.table):
                continue
            start = Start("latest") if each.internal else Start("earliest") if each.table else to
            values = {
                "function": function,
                "stage": plan.number,
                "stream": ids[each.stream],
                "start": start.kind,
                "offset": start.offset,
                "time": start.time,
                "clear": not keep_state,
            }
            moved = one(db, "reset_checkpoints", values)
            if moved is not None and not each.internal and not each.table:
                again, skipped = again + moved["again"], skipped + moved["skipped"]
    return again, skipped
