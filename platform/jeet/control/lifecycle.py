"""Pause, resume, roll back and delete functions; each is true when it returns.

Paused means that nothing of the function commits any more, from this moment, wherever it runs. State stays, and its
clock stands still after the first minute. Deleting takes tasks, state, checkpoints and dead letters along; streams
stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from jeet.control.change import change, fence
from jeet.control.deploy import activate
from jeet.control.registry import Progress, find, one, wait_until_running
from jeet.db.sql import query
from jeet.errors import NotFound, UsageError
from jeet.ids import FunctionId


@dataclass(frozen=True)
class Changed:
    """What a change did; `changed` is false if it was so already."""

    name: str
    status: str
    version: int
    changed: bool
    progress: Progress | None = None


@dataclass(frozen=True)
class Deleted:
    """What went with a function."""

    name: str
    tasks: int
    state_entries: int
    open_dead_letters: int


def pause(db: psycopg.Connection, name: str) -> Changed:
    """Stop a function where it stands, until it is resumed."""
    with change(db):
        row = find(db, name)
        if row["status"] == "paused":
            return Changed(name, "paused", row["version"], changed=False)
        function = FunctionId(row["id"])
        fence(db, function)
        db.execute(query("registry_set_status"), {"function": function, "status": "paused"})
    return Changed(name, "paused", row["version"], changed=True)


def resume(db: psycopg.Connection, name: str, *, wait_s: float = 5.0) -> Changed:
    """Let a paused function go on, or one that has halted try again at the event where it stopped."""
    with change(db):
        row = find(db, name)
        function = FunctionId(row["id"])
        if row["status"] != "running":
            fence(db, function)
            db.execute(query("registry_set_status"), {"function": function, "status": "running"})
    progress = wait_until_running(db, function, wait_s)
    return Changed(name, "running", row["version"], changed=row["status"] != "running", progress=progress)


def rollback(db: psycopg.Connection, name: str, version: int | None = None, *, wait_s: float = 5.0) -> Changed:
    """Run an earlier version again, by default the one before the present one. State and checkpoints stay."""
    with change(db):
        row = find(db, name)
        function = FunctionId(row["id"])
        if version is None:
            if row["version"] <= 1:
                raise UsageError(f"{name} runs version 1; there is none before it")
            version = row["version"] - 1
        found = one(db, "registry_version", {"function": function, "version": version})
        if found is None:
            raise NotFound(f"{name} has no version {version}; jeet versions {name} lists them")
        plugins = found["worker_plugins"]
        if not found["has_source"] and plugins and found["plugin_hash"] not in plugins:
            raise UsageError(
                f"version {version} of {name} came as .wasm for a plugin that no worker has now; deploy it again from"
                " its .js, or as .wasm built against the workers' plugin"
            )
        changed = version != row["version"]
        status = activate(db, function, version, found["spec"], row["status"]) if changed else row["status"]
    progress = wait_until_running(db, function, wait_s if status == "running" else 0)
    return Changed(name, status, version, changed, progress)


def delete(db: psycopg.Connection, name: str) -> Deleted:
    """Take a function away with its state; its streams stay."""
    with change(db):
        row = find(db, name)
        function = FunctionId(row["id"])
        counts = one(db, "registry_counts", {"function": function})
        assert counts is not None
        fence(db, function)
        db.execute(query("registry_delete"), {"function": function})
        db.execute("select jeet_internal.refresh_cycles()")
    return Deleted(name, row["tasks"], counts["state"], counts["dead_letters"])
