"""Before other stages take over: the version that runs uses up what lies between its stages and closes what is open.

Promise: while a function drains, its sources stand still where they are, and its event time is at its end. Nothing else
changes until the new version takes over, in one transaction that looks again whether anything is left. Whoever gives up
lets the sources go on; whoever dies leaves the old version draining, which the same deploy, or `jeet resume`, goes on
from. Windows that were open close early: what comes later for them makes a result of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from jeet.control.change import change, fence
from jeet.control.registry import rows
from jeet.errors import JeetError, UsageError
from jeet.ids import FunctionId

PATIENCE_S = 30.0
"""how long nothing may change before a drain is given up"""
_POLL_S = 0.05
_TELL_S = 2.0


@dataclass(frozen=True)
class Left:
    """What is left of a stage."""

    stage: int
    events: int
    timers: int
    letters: int
    halted: str | None

    @property
    def any(self) -> bool:
        return bool(self.events or self.timers or self.letters)

    def __str__(self) -> str:
        parts = ((self.events, "events"), (self.timers, "timers"), (self.letters, "redriven dead letters"))
        text = f"stage {self.stage}: " + ", ".join(f"{count} {what}" for count, what in parts if count)
        return text + (f", halted: {self.halted}" if self.halted else "")


class NotDrained(JeetError):
    """The function has something under way between its stages; nothing was changed."""

    def __init__(self, function: FunctionId, name: str, why: str | None) -> None:
        self.function = function
        self.name = name
        self.why = why
        """what for, if a savepoint is to be taken before"""
        super().__init__(f"{name} has not drained")


def left(db: psycopg.Connection, function: FunctionId) -> list[Left]:
    """The stages that still have something to use up."""
    return [each for row in rows(db, "drain_left", {"function": function}) if (each := Left(**row)).any]


def is_draining(db: psycopg.Connection, function: FunctionId) -> bool:
    row = db.execute("select draining from jeet_internal.function where id = %s", (function,)).fetchone()
    return row == (True,)


@contextmanager
def drained(
    db: psycopg.Connection, function: FunctionId, name: str, tell: Callable[[str], None], before: Callable[[], None]
) -> Iterator[None]:
    """Drain the function, then run the block. If that fails, its sources go on. `before` runs before it begins."""
    try:
        with change(db):
            if not is_draining(db, function):
                before()
                fence(db, function)
                db.execute("select jeet_internal.begin_drain(%s)", (function,))
        _wait(db, function, name, tell)
        yield
    except BaseException:
        if not db.closed and not db.broken:
            stop(db, function)
        raise


def stop(db: psycopg.Connection, function: FunctionId) -> None:
    """Let the sources go on, if they stand still."""
    with change(db):
        if is_draining(db, function):
            fence(db, function)
            db.execute("select jeet_internal.end_drain(%s)", (function,))


def _wait(db: psycopg.Connection, function: FunctionId, name: str, tell: Callable[[str], None]) -> None:
    last: list[Left] = []
    moved_at = told_at = time.monotonic()
    while stages := left(db, function):
        now = time.monotonic()
        text = "; ".join(map(str, stages))
        if stages != last:
            last, moved_at = stages, now
        halted = any(stage.halted for stage in stages)
        if halted or now - moved_at > PATIENCE_S:
            raise UsageError(
                f"{name} does not drain, and its old version goes on: still to use up: {text};"
                f" see jeet status, or give up what it has with --reset"
            )
        if now - told_at > _TELL_S:
            told_at = now
            tell(f"draining {name}: {text}")
        time.sleep(_POLL_S)
