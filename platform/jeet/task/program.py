"""A version of a function, ready to make instances: bytecode for this worker's plugin, and its settings.

Promise: bytecode runs only in the plugin that made it. When the plugin has changed, it is compiled again from the
stored source; a version that came as .wasm has none, so it is refused, with the remedy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jeet.control.lease import Lease
from jeet.db.sql import query
from jeet.errors import JeetError, PluginError, RetryLater, StopTask
from jeet.ids import FunctionId, StreamId
from jeet.plan import WHOLE, StagePlan
from jeet.sandbox.call import GuestTrap, InstanceSpec, OutputStream, StateConfig
from jeet.sandbox.instance import Instance
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Compiled, Plugin
from jeet.task.retry import OnError
from jeet.task.state import TaskState

if TYPE_CHECKING:
    from asyncpg import Connection, Record


class CannotRun(StopTask):
    """This version cannot run on this worker, and why; the task halts with that reason."""


class OtherPlugin(CannotRun):
    """This version needs another plugin than this worker has."""

    def __init__(self, message: str, plugin_hash: str) -> None:
        super().__init__(message)
        self.plugin_hash = plugin_hash


@dataclass(frozen=True)
class Maker:
    """The stage that makes an internal stream."""

    stage: int
    hold_ms: float
    """what it makes may be older than its watermark, by so much"""


@dataclass(frozen=True)
class Program:
    plugin: Plugin
    compiled: Compiled
    function: str
    version: int
    outputs: tuple[OutputStream, ...]
    sink: bool
    state: Mapping[str, StateConfig]
    input_schema: Mapping[str, Any] | bool | None
    on_error: OnError
    limits: Limits
    slice_ms: float
    plan: StagePlan = WHOLE
    makers: Mapping[StreamId, Maker] = field(default_factory=dict)
    """by internal input: who makes it"""

    def instantiate(self, lease: Lease, state: TaskState) -> Instance:
        """A new instance for one task; in the thread that will use it.

        No event has run yet, so none is at fault: CannotRun if the version never will, else RetryLater.
        """
        spec = InstanceSpec(
            function=self.function,
            version=self.version,
            partition=lease.partition,
            outputs=self.outputs,
            sink=self.sink,
            input_schema=self.input_schema,
            limits=self.limits,
            slice_ms=self.slice_ms,
            plan=self.plan,
        )
        try:
            return self.plugin.instantiate(self.compiled, spec, state)
        except RetryLater:
            raise
        except (GuestTrap, PluginError) as error:
            # Its top level ran at deploy, so it is the memory of this host that may be short now.
            if isinstance(error, GuestTrap) and error.kind == "memory":
                raise RetryLater(f"version {self.version} of {self.function} could not start: {error}") from error
            raise CannotRun(f"version {self.version} of {self.function} cannot start: {error}") from error
        except Exception as error:
            raise RetryLater(f"no instance could be made: {type(error).__name__}: {error}") from error


class Programs:
    """The versions that this worker runs or ran lately."""

    def __init__(self, plugin: Plugin, limits: Mapping[str, int], slice_ms: float) -> None:
        self._plugin = plugin
        self._limits = limits
        self._slice_ms = slice_ms
        self._known: dict[tuple[FunctionId, int, int], Program] = {}

    async def load(self, db: Connection, lease: Lease) -> Program:
        """The program of a lease; CannotRun if there is no way to run it here, RetryLater if it fails unforeseen."""
        key = (lease.function_id, lease.version, lease.stage)
        if key not in self._known:
            row = await db.fetchrow(query("load_program"), *key)
            if row is None:
                raise CannotRun(f"version {lease.version} of {lease.function} is gone; deploy the function again")
            # Older versions of the stage are not run any more once a newer one is loaded.
            self._known = {known: program for known, program in self._known.items() if known[::2] != key[::2]}
            try:
                self._known[key] = await asyncio.to_thread(self._program, lease, row)
            except JeetError:
                raise
            except Exception as error:
                what = f"version {lease.version} of {lease.function} cannot be loaded"
                raise RetryLater(f"{what}: {type(error).__name__}: {error}") from error
        return self._known[key]

    def _program(self, lease: Lease, row: Record) -> Program:
        spec = json.loads(row["spec"])
        plan = None if row["plan"] is None else StagePlan.from_json(json.loads(row["plan"]))
        return Program(
            plugin=self._plugin,
            compiled=self._compiled(lease, row),
            function=lease.function,
            version=lease.version,
            outputs=_outputs(plan, spec),
            sink=bool(lease.outputs) and lease.outputs[0] is not None,
            state={
                name: StateConfig(ttl_ms=config.get("ttl_ms"), refresh=config.get("refresh") or "write")
                for name, config in (spec.get("state") or {}).items()
            },
            input_schema=spec.get("input"),
            on_error=OnError.parse(spec.get("on_error", lease.on_error)),
            limits=Limits(**{**self._limits, **(spec.get("limits") or {})}),
            slice_ms=self._slice_ms,
            plan=plan or WHOLE,
            makers={
                StreamId(int(stream)): Maker(stage, float(hold_ms or 0))
                for stream, (stage, hold_ms) in json.loads(row["makers"] or "{}").items()
            },
        )

    def _compiled(self, lease: Lease, row: Record) -> Compiled:
        if row["source"] is not None:
            # From the source always: it takes milliseconds, and what the source says (may it wait?) comes with it.
            return self._plugin.compile(row["source"], row["filename"])
        if row["plugin_hash"] != self._plugin.hash:
            raise OtherPlugin(
                f"version {lease.version} of {lease.function} was deployed as .wasm for the plugin"
                f" {row['plugin_hash'][:12]}, but this worker"
                f" has {self._plugin.hash[:12]}; deploy its .js, or a .wasm built against this worker's plugin",
                row["plugin_hash"],
            )
        return Compiled(row["bytecode"], row["plugin_hash"], row["filename"])


def _outputs(plan: StagePlan | None, spec: Mapping[str, Any]) -> tuple[OutputStream, ...]:
    """What a stage may write to, by place: as planned, or for the whole graph as set."""
    if plan is not None:
        return tuple(OutputStream(each.name or each.stream or "", each.key, each.internal) for each in plan.outputs)
    named: list[dict[str, Any]] = spec.get("outputs") or []
    return tuple(OutputStream(each["stream"] or "", each.get("key")) for each in named)
