"""Keyed state as a guest reads it: on demand, from inside the guest call, in the lane's own thread.

Promise: what is read is committed state of this task; entries that an uncommitted batch changed are the guest's to
remember. Expiry is handed over with the time added in which the task had no owner; the guest judges it against the
database's clock.
On failure (connection lost, server gone) RetryLater is raised: the batch is undone and runs again, no event is at
fault.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import psycopg

from jeet.db.connect import SESSION, hang_up
from jeet.db.sql import query
from jeet.errors import RetryLater
from jeet.ids import FunctionId, TaskId
from jeet.limits import DEFAULTS
from jeet.observe.figures import TaskFigures
from jeet.sandbox.call import CollectionInfo, StateConfig, StateReader
from jeet.task.effects import storable

_MOST_COLLECTIONS = DEFAULTS["collections"]
_LONGEST_NAME = DEFAULTS["collection_name_chars"]

_T = TypeVar("_T")


class CollectionRefused(ValueError):
    """The guest asked for a collection that cannot be: a fault of the event that asked."""


class StateConnection:
    """One lane's connection for state; opened when first needed, used and closed in the lane's thread only."""

    def __init__(self, database_url: str, timeout_s: float) -> None:
        self._url = database_url
        self._timeout_s = timeout_s
        self._db: psycopg.Connection | None = None

    def run(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        try:
            if self._db is None or self._db.closed:
                self._db = self._open()
            return work(self._db)
        except psycopg.DataError:
            raise
        except psycopg.Error as error:
            self.close()
            raise RetryLater(f"state could not be read; the batch was undone and runs again: {error}") from error

    def _open(self) -> psycopg.Connection:
        db = psycopg.connect(
            self._url,
            autocommit=True,
            application_name="jeet-worker state",
            connect_timeout=5,
            prepare_threshold=0,
            tcp_user_timeout=int(self._timeout_s * 1000),
        )
        for name, value in {**SESSION, "statement_timeout": str(int(self._timeout_s * 1000))}.items():
            db.execute("select set_config(%s, %s, false)", (name, value))
        return db

    def hang_up(self) -> None:
        """Called from another thread when a read has not been answered for too long: it fails then."""
        if self._db is not None:
            hang_up(self._db)

    def close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(psycopg.Error):
                self._db.close()
            self._db = None


class TaskState(StateReader):
    """The state of one task."""

    def __init__(
        self,
        connection: StateConnection,
        task: TaskId,
        function: FunctionId,
        hold_ms: float,
        declared: Mapping[str, StateConfig],
    ) -> None:
        self._connection = connection
        self._task = task
        self._function = function
        self._hold_ms = hold_ms
        self._declared = declared
        self.ttl_ms: dict[int, float | None] = {}
        """of the collections that were asked for"""
        self.waited_s = 0.0
        """for the database, in all"""
        self.figures: TaskFigures | None = None

    def use(self, connection: StateConnection) -> None:
        """Read through this connection from now on: that of the thread which runs the guest."""
        self._connection = connection

    def collection(self, name: str) -> CollectionInfo:
        if not name or len(name.encode(errors="replace")) > _LONGEST_NAME or not storable(name):
            raise CollectionRefused(
                f"a state collection cannot be named {name[:80]!r}: use 1 to {_LONGEST_NAME} characters"
                " (collection_name_chars)"
            )
        config = self._declared.get(name, StateConfig())
        values = {
            "function": self._function,
            "name": name,
            "ttl_ms": config.ttl_ms,
            "refresh": config.refresh,
            "most": _MOST_COLLECTIONS,
        }
        row = self._ask(lambda db: db.execute(query("register_collection"), values).fetchone())
        if row is None or row[0] is None:
            raise CollectionRefused(
                f"state collection {name!r} would be one too many: a function has at most {_MOST_COLLECTIONS}"
                " (collections)"
            )
        self.ttl_ms[row[0]] = config.ttl_ms
        return CollectionInfo(row[0], config.ttl_ms, config.refresh)

    def read(self, collection_id: int, keys: Sequence[str]) -> Sequence[tuple[str, float | None] | None]:
        # A key that cannot be stored is not there.
        asked = [key for key in keys if storable(key)]
        rows = self._rows(
            "read_state", {"task": self._task, "collection": collection_id, "keys": asked, "hold_ms": self._hold_ms}
        )
        if self.figures is not None:
            self.figures.state_misses += len(keys)
        found = {row[0]: (row[1], row[2]) for row in rows}
        return [found.get(key) for key in keys]

    def scan(self, collection_id: int, after: str | None, limit: int) -> Sequence[tuple[str, str, float | None]]:
        return self._rows("scan_state", self._page(collection_id, after, limit))

    def _page(self, collection_id: int, after: str | None, limit: int) -> dict[str, Any]:
        return {
            "task": self._task,
            "collection": collection_id,
            "after": "" if after is None else after,
            "from_start": after is None,
            "limit": limit,
            "hold_ms": self._hold_ms,
        }

    def read_versions(
        self, collection_id: int, keys: Sequence[str], version: int
    ) -> Sequence[tuple[str, float | None, int | None] | None]:
        values = {"task": self._task, "collection": collection_id, "hold_ms": self._hold_ms, "version": version}
        rows = self._rows("read_state_versions", {**values, "keys": [key for key in keys if storable(key)]})
        found = {row[0]: (row[1], row[2], row[3]) for row in rows}
        return [found.get(key) for key in keys]

    def scan_versions(
        self, collection_id: int, after: str | None, limit: int, version: int
    ) -> Sequence[tuple[str, str, float | None, int | None]]:
        return self._rows("scan_state_versions", {**self._page(collection_id, after, limit), "version": version})

    def _rows(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        return self._ask(lambda db: db.execute(query(name), values).fetchall())

    def _ask(self, work: Callable[[psycopg.Connection], _T]) -> _T:
        began = time.monotonic()
        try:
            return self._connection.run(work)
        finally:
            self.waited_s += time.monotonic() - began
            if self.figures is not None:
                self.figures.state_requests += 1
