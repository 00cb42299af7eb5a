"""One change of functions at a time, all or nothing, true when it returns.

Promise: a change is one transaction. It bumps the epoch of each task that it touches, so a worker that has not heard of
it yet cannot commit what it began under the old rules. A worker that sits on one of the rows, stalled inside a
transaction, gets 200 ms, anybody else a second; then their sessions are ended. A change that meets a deadlock or a lock
that does not come is undone as a whole, and raises RetryLater.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from jeet.db.keys import CHANGE_LOCK, FUNCTION_CLASS
from jeet.db.sql import query
from jeet.errors import DeployError, JeetError, RetryLater, UsageError
from jeet.ids import FunctionId
from jeet.telemetry import logger

log = logger(__name__)

LOCK_TIMEOUT_S = 5.0
"""how long a change waits for another change, and for anything else that it needs"""
PATIENCE_S = 0.2
"""how long a stalled worker may sit on a task's row"""
PATIENCE_WITH_OTHERS_S = 1.0
"""the same for a session that is no worker's"""


@contextmanager
def change(db: psycopg.Connection) -> Iterator[None]:
    """A transaction in which functions may be changed. `db` is in autocommit mode."""
    try:
        with db.transaction():
            db.execute(query("control_settings"), {"lock_timeout": f"{LOCK_TIMEOUT_S * 1000:.0f}ms"})
            db.execute(query("control_lock"), {"class": CHANGE_LOCK[0], "number": CHANGE_LOCK[1]})
            yield
    except (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure) as error:
        raise RetryLater(
            f"somebody else holds what this change needs; nothing was changed ({error.diag.message_primary}); try again"
        ) from error
    except errors.IdleInTransactionSessionTimeout as error:
        raise RetryLater(
            "this process stalled in the middle of a change, and nothing was changed; try again"
        ) from error
    except psycopg.Error as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        raise refusal from error


@contextmanager
def at_rest(db: psycopg.Connection, function: FunctionId) -> Iterator[None]:
    """A block in which nobody runs the function's tasks, for a change that takes long.

    Commits and takeovers of others would have to wait for the rows that such a change holds. So first, in a change of
    its own, the tasks lose their owners, and nobody takes them until the block ends or this session does.
    """
    key = {"class": FUNCTION_CLASS, "number": function}
    try:
        with db.transaction():
            db.execute(query("control_settings"), {"lock_timeout": f"{LOCK_TIMEOUT_S * 1000:.0f}ms"})
            db.execute("select pg_advisory_lock(%(class)s, %(number)s)", key)
    except errors.LockNotAvailable as error:
        raise RetryLater("another long change of this function is under way; nothing was changed; try again") from error
    try:
        with change(db):
            fence(db, function)
        yield
    finally:
        if not db.closed and not db.broken:
            db.execute("select pg_advisory_unlock(%(class)s, %(number)s)", key)


def _refusal(error: psycopg.Error) -> JeetError | None:
    """What the database's own rules say, as a person reads it."""
    if (error.sqlstate or "").startswith("JT13"):
        return DeployError(error.diag.message_primary or str(error))
    if error.sqlstate == "42501":
        return UsageError(f"this database user may not change functions: {error.diag.message_primary}")
    return None


def fence(db: psycopg.Connection, function: FunctionId) -> None:
    """Bump the epoch of each task of a function, ending whoever sits on one of the rows. Inside `change`."""
    try:
        with db.transaction():
            db.execute(query("control_settings"), {"lock_timeout": f"{PATIENCE_S * 1000:.0f}ms"})
            db.execute("select jeet_internal.fence_tasks(%s)", (function,))
    except errors.LockNotAvailable:
        with _Eviction(db), db.transaction():
            db.execute(query("control_settings"), {"lock_timeout": "10s"})
            db.execute("select jeet_internal.fence_tasks(%s)", (function,))


class _Eviction:
    """While the block runs, ends the sessions that keep `db` waiting; from a session and a thread of its own."""

    def __init__(self, db: psycopg.Connection) -> None:
        self._pid = db.info.backend_pid
        self._address = psycopg.conninfo.make_conninfo(db.info.dsn, password=db.info.password or None)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="eviction", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        waited_s = PATIENCE_S
        with psycopg.connect(self._address, autocommit=True, application_name="jeet eviction") as db:
            while not self._over.is_set():
                values = {"pid": self._pid, "anyone": waited_s >= PATIENCE_WITH_OTHERS_S}
                for pid, application in db.execute(query("control_end_blockers"), values).fetchall():
                    log.warning("ended a session that sat on a task", backend_pid=pid, application=application)
                self._over.wait(0.1)
                waited_s += 0.1
