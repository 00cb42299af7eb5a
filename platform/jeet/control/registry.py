"""Deployed functions, by version: find them, look at them, wait for them."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from jeet.db.sql import query
from jeet.errors import NotFound
from jeet.ids import FunctionId

_POLL_S = 0.02


@dataclass(frozen=True)
class Progress:
    """Whether tasks run what they should."""

    tasks: int
    missing: tuple[int, ...]
    """partitions of those that do not, yet"""
    workers: int
    """workers that run"""
    coordinator: bool
    """one leads"""
    stages: tuple[int, ...] = ()
    """of those that are missing, one each"""

    @property
    def complete(self) -> bool:
        return not self.missing


@dataclass(frozen=True)
class Listed:
    """A function as it fares."""

    name: str
    version: int
    status: str
    source: str
    sink: str | None
    partitions: int
    """of its source"""
    tasks: int
    running: int
    """tasks that a running worker holds"""
    lag: int
    dead_letters: int
    """open ones"""
    deployed_at: datetime


@dataclass(frozen=True)
class Version:
    version: int
    current: bool
    deployed_at: datetime
    filename: str
    source: str
    sink: str | None
    digest: str
    plugin_hash: str
    has_source: bool


@dataclass(frozen=True)
class TaskShown:
    """A task and one of the streams that it reads."""

    stage: int
    stream: str
    partition: int
    status: str
    halt_reason: str | None
    worker: int | None
    host: str | None
    version: int
    epoch: int
    next_offset: int
    lag: int
    dead_letters: int


@dataclass(frozen=True)
class CollectionShown:
    name: str
    ttl: timedelta | None
    refresh: str


@dataclass(frozen=True)
class Shown:
    """All there is to say about a function."""

    name: str
    version: int
    status: str
    created_at: datetime
    deployed_at: datetime
    hold_ttl: bool
    filename: str
    source: str | None
    """its code; None if it came as .wasm"""
    spec: Mapping[str, Any]
    """its settings"""
    plugin_hash: str
    digest: str
    draining: bool
    """its sources stand still until another version takes over"""
    rebuilding: str | None
    """the phase in which its state is built again; None: it is not"""
    rebuild_failed: str | None
    """why its last rebuild ended before its time, with nothing changed"""
    outputs: tuple[str, ...]
    collections: tuple[CollectionShown, ...]
    tasks: tuple[TaskShown, ...]


def functions(db: psycopg.Connection) -> list[Listed]:
    """Every function, by name."""
    return [Listed(**row) for row in rows(db, "registry_functions", {})]


def versions(db: psycopg.Connection, name: str) -> list[Version]:
    """Every version of a function, newest first."""
    found = [Version(**row) for row in rows(db, "registry_versions", {"name": name})]
    if not found:
        raise no_function(db, name)
    return found


def show(db: psycopg.Connection, name: str) -> Shown:
    """A function with its settings, collections and tasks."""
    row = one(db, "registry_show", {"name": name})
    if row is None:
        raise no_function(db, name)
    values = {"function": row.pop("id")}
    collections = tuple(CollectionShown(**each) for each in rows(db, "registry_show_collections", values))
    tasks = tuple(TaskShown(**each) for each in rows(db, "registry_show_tasks", values))
    return Shown(**{**row, "outputs": tuple(row["outputs"])}, collections=collections, tasks=tasks)


def find(db: psycopg.Connection, name: str) -> DictRow:
    """The function's row, locked against other changes; NotFound with what there is."""
    row = one(db, "registry_function", {"name": name})
    if row is None:
        raise no_function(db, name)
    return row


def no_function(db: psycopg.Connection, name: str) -> NotFound:
    """The error for a name that no function has."""
    known = [row[0] for row in db.execute(query("registry_names")).fetchall()]
    near = difflib.get_close_matches(name, known, n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"there are {', '.join(known[:10])}"
        if known
        else "none is deployed yet"
    )
    return NotFound(f"no function {json.dumps(name, ensure_ascii=False)}; {hint}")


def wait_until_running(db: psycopg.Connection, function: FunctionId, wait_s: float) -> Progress:
    """Wait until each task of the function is run as it should be, but not without a worker, and not for longer."""
    deadline = time.monotonic() + wait_s
    while True:
        progress = _progress(db, function)
        if progress.complete or time.monotonic() >= deadline or progress.workers == 0:
            return progress
        time.sleep(_POLL_S)


def _progress(db: psycopg.Connection, function: FunctionId) -> Progress:
    row = one(db, "registry_running", {"function": function})
    assert row is not None
    return Progress(row["tasks"], tuple(row["missing"]), row["workers"], row["coordinator"], tuple(row["stages"]))


def one(db: psycopg.Connection, name: str, values: Mapping[str, object]) -> DictRow | None:
    """The first row of a statement of sql/queries."""
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(name), values).fetchone()


def rows(db: psycopg.Connection, name: str, values: Mapping[str, object]) -> list[DictRow]:
    """All rows of a statement of sql/queries."""
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(name), values).fetchall()
