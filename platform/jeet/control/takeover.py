"""A version takes over from the one that runs: as it stands, after a drain, or from the beginning.

Promise: one transaction, in which the tasks are fenced, decides and does it all; so whatever dies, one version or the
other runs. What does not fit is refused unless somebody says what is to become of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import psycopg

from jeet.control import drain, stages
from jeet.control.change import change, fence
from jeet.control.drain import NotDrained
from jeet.control.registry import one
from jeet.control.savepoints import take_before
from jeet.control.signature import Comparison, compare
from jeet.control.stages import Stages
from jeet.db.sql import query
from jeet.errors import DeployError
from jeet.ids import FunctionId

T = TypeVar("T")
Graph = Literal["same", "drain", "reset"]
"""what may become of a function whose stages change: nothing, it drains first, or it begins anew"""


def draining(db: psycopg.Connection, attempt: Callable[[], T], tell: Callable[[str], None]) -> T:
    """Run a change of a function; if it has to drain for that, let it drain and run the change again."""
    try:
        with change(db):
            return attempt()
    except NotDrained as waiting:
        function, name, why = waiting.function, waiting.name, waiting.why
    while True:
        with drain.drained(db, function, name, tell, lambda: keep(db, function, name, why, tell)):
            try:
                with change(db):
                    return attempt()
            except NotDrained:
                continue  # something came in between: a dead letter that was redriven


def settle(
    db: psycopg.Connection,
    function: FunctionId,
    name: str,
    existing: Mapping[str, Any],
    chosen: Stages,
    graph: Graph,
    where: str,
    *,
    why: str | None,
    tell: Callable[[str], None],
) -> Comparison:
    """How a version's stages take over from those that run; DeployError, or NotDrained, if they cannot yet.

    Before anything is touched, a savepoint is taken for what is to happen, `why`; none without.
    """
    if existing["rebuilding"]:
        raise DeployError(
            f"{where}: {name} is being rebuilt: wait until that is over (jeet rebuild {name} --progress tells how far"
            f" it is), or end it by jeet restore {name} or jeet reset {name}"
        )
    before = stages.stored(db, function, existing["version"])
    comparison = compare(before.signatures, chosen.signatures)
    if comparison.fits and graph != "reset":
        keep(db, function, name, why, tell)
        return comparison
    if graph == "same":
        raise DeployError(
            f"{where}: this version cannot take over from version {existing['version']} of {name} as it stands:"
            f" {comparison.told}. Either --drain: the old version first uses up what is under way and closes its"
            " windows (state of what has changed is lost); or --reset: streams between stages, state and timers are"
            " discarded, and it starts again from --start; or deploy it under another --name"
        )
    if graph == "reset":
        keep(db, function, name, why, tell)
        fence(db, function)
        return comparison
    fence(db, function)
    if existing["status"] == "paused":
        raise DeployError(f"{name} is paused, so it cannot drain: jeet resume {name} first, or use --reset")
    if not existing["draining"] or drain.left(db, function):
        raise NotDrained(function, name, why)
    gone = [number for number in range(len(before.plans)) if number not in comparison.moves.values()]
    row = one(db, "registry_open_letters", {"function": function, "stages": gone})
    if row is not None and row["open"]:
        raise DeployError(
            f"{name} has open dead letters ({row['open']}) in stages that this version does not have, and they would go"
            f" with them: jeet dlq redrive or drop them first (jeet dlq list {name}), or use --reset"
        )
    return comparison


def keep(db: psycopg.Connection, function: FunctionId, name: str, why: str | None, tell: Callable[[str], None]) -> None:
    """Take a savepoint for what is to happen, if there is anything to keep, and say how to go back. Inside `change`."""
    made = None if why is None else take_before(db, function, why)
    if made is not None:
        tell(f"savepoint {made} was taken: jeet restore {name} {made} goes back to it")


def activate(
    db: psycopg.Connection, function: FunctionId, version: int, settings: Mapping[str, Any], status: str
) -> str:
    """Let a function run another of its versions from its next batch on; returns its status. Inside `change`."""
    values = {
        "function": function,
        "version": version,
        "on_error": json.dumps(settings["on_error"]),
        "hold_ttl": settings.get("hold_ttl", True),
    }
    db.execute(query("registry_set_version"), values)
    state = json.dumps(settings.get("state") or {})
    db.execute(query("registry_set_collections"), {"function": function, "state": state})
    db.execute("select jeet_internal.end_drain(%s)", (function,))
    db.execute("select jeet_internal.refresh_cycles()")
    fence(db, function)
    return "paused" if status == "paused" else "running"
