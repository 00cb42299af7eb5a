"""Pause, resume, roll back and delete functions; each is true when it returns.

Paused means that nothing of the function commits any more, from this moment, wherever it runs. State stays, and its
clock stands still after the first minute. Deleting takes tasks, state, checkpoints and dead letters along; streams
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import psycopg

from jeet.control import stages
from jeet.control.change import change, fence
from jeet.control.registry import Progress, find, one, rows, wait_until_running
from jeet.control.spec import parse_start
from jeet.control.takeover import Graph, activate, draining, settle
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
    notes: tuple[str, ...] = ()


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
    """Let a paused function go on, or one that has halted try again at the event where it stopped; end a drain."""
    with change(db):
        row = find(db, name)
        function = FunctionId(row["id"])
        changed = row["status"] != "running" or row["draining"]
        halted = {
            (each["stage"], each["partition"]): each["halt_reason"]
            for each in rows(db, "registry_show_tasks", {"function": function})
            if each["status"] == "halted"
        }
        if changed:
            fence(db, function)
            db.execute(query("registry_set_status"), {"function": function, "status": "running"})
            db.execute("select jeet_internal.end_drain(%s)", (function,))
    progress = wait_until_running(db, function, wait_s)
    return Changed(name, "running", row["version"], changed=changed, progress=progress, notes=_again(name, halted))


def _again(name: str, halted: Mapping[tuple[int, int], str | None]) -> tuple[str, ...]:
    """What is to be expected of tasks that halted and now try the same once more."""
    if not halted:
        return ()
    reasons: dict[str, list[str]] = {}
    for (stage, partition), reason in halted.items():
        where = f"stage {stage} partition {partition}" if stage else f"partition {partition}"
        reasons.setdefault(reason or "a reason that was not recorded", []).append(where)
    notes = [f"{name} had halted in {', '.join(places)}: {reason}" for reason, places in list(reasons.items())[:3]]
    if len(reasons) > len(notes):
        notes.append(f"and for {len(reasons) - len(notes)} more reasons")
    notes.append(
        "it begins again with the same event and halts again unless the cause is gone: deploy a version that deals with"
        " such an event, or one with another onError (--on_error=dead-letter sets it aside)"
    )
    return tuple(notes)


def rollback(
    db: psycopg.Connection,
    name: str,
    version: int | None = None,
    *,
    wait_s: float = 5.0,
    graph: Graph = "same",
    savepoint: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> Changed:
    """Run an earlier version again, by default the one before the present one. State and checkpoints stay as far as
    its stages fit; if they do not, `graph` says what becomes of that, as for a deploy; so does `savepoint`."""
    function, changed = draining(db, lambda: _roll_back(db, name, version, graph, savepoint=savepoint), tell)
    progress = wait_until_running(db, function, wait_s if changed.status == "running" else 0)
    return replace(changed, progress=progress)


def _roll_back(
    db: psycopg.Connection, name: str, version: int | None, graph: Graph, *, savepoint: bool
) -> tuple[FunctionId, Changed]:
    row = find(db, name)
    function = FunctionId(row["id"])
    if version is None:
        if row["version"] <= 1:
            raise UsageError(f"{name} runs version 1; there is none before it")
        version = int(row["version"]) - 1
    found = one(db, "registry_version", {"function": function, "version": version})
    if found is None:
        raise NotFound(f"{name} has no version {version}; jeet versions {name} lists them")
    plugins = found["worker_plugins"]
    if not found["has_source"] and plugins and found["plugin_hash"] not in plugins:
        raise UsageError(
            f"version {version} of {name} came as .wasm for a plugin that no worker has now; deploy it again from"
            " its .js, or as .wasm built against the workers' plugin"
        )
    if version == row["version"] and graph != "reset":
        return function, Changed(name, row["status"], version, changed=False)
    chosen = stages.stored(db, function, version)
    notes: list[str] = []
    why = f"before going back to version {version}" if savepoint else None
    comparison = settle(db, function, name, row, chosen, graph, f"version {version}", why=why, tell=notes.append)
    reset = graph == "reset"
    read = {each.stream for plan in chosen.plans for each in plan.inputs}
    written = {each.stream for plan in chosen.plans for each in plan.outputs if each.stream is not None}
    ids = {each["name"]: each["id"] for each in rows(db, "registry_streams", {"names": sorted(read | written)})}
    # Internal streams may have been made anew since that version ran.
    ids |= stages.make_streams(db, name, chosen.internal, anew=reset)
    if any(each for each in chosen.plans if each.outputs):  # else of a version of Jeet that knew one stage only
        chosen = replace(chosen, plans=tuple(stages.write_stages(db, function, version, chosen.plans, ids)))
    start = parse_start(found["spec"].get("start"), name)
    stages.take_over(db, function, version, chosen, ids, comparison, start, reset=reset)
    status = activate(db, function, version, found["spec"], row["status"])
    return function, Changed(name, status, version, changed=True, notes=tuple(notes))


def delete(db: psycopg.Connection, name: str) -> Deleted:
    """Take a function away with its state and the streams between its stages; all others stay."""
    with change(db):
        row = find(db, name)
        function = FunctionId(row["id"])
        counts = one(db, "registry_counts", {"function": function})
        assert counts is not None
        fence(db, function)
        db.execute(query("registry_delete"), {"function": function})
        stages.make_streams(db, name, {}, anew=True)
        db.execute("select jeet_internal.refresh_cycles()")
    return Deleted(name, row["tasks"], counts["state"], counts["dead_letters"])
