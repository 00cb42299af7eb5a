"""A lease is the proof that one worker, and no other, may run a task: an advisory lock and an epoch.

Promise: one epoch of a task can commit at a time. Two workers may believe that they own it; only the newer can write.
The lock is the hint and the fast sign of a crash; the epoch, bumped before anything is read, is the law. A
predecessor that stalls inside a transaction holds the task's row: it gets 200 ms, then its backend is ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jeet.db.sql import query
from jeet.ids import Epoch, FunctionId, Offset, Partition, StreamId, TaskId, WorkerId
from jeet.telemetry import logger

if TYPE_CHECKING:
    from asyncpg import Connection, Record

log = logger(__name__)

PATIENCE_S = 0.2
"""how long a stalled predecessor may sit on a task's row before its backend is ended"""
_PATIENCE_WITH_OTHERS_S = 5.0
"""the same for a backend that is no worker's"""


@dataclass(frozen=True)
class Lease:
    """What a worker may run, and where it stood when it was taken over."""

    task_id: TaskId
    epoch: Epoch
    function_id: FunctionId
    function: str
    stage: int
    partition: Partition
    version: int
    crashes: int
    """owners in a row that died without a commit"""
    ttl_hold_ms: float
    on_error: Any
    inputs: tuple[tuple[StreamId, Offset], ...]
    """each input stream with the next offset, by stream id"""
    outputs: tuple[StreamId | None, ...]
    """by the index that the guest names them with; 0 is the sink"""
    clock_ms: float | None = None
    """event time that the task has reached, in milliseconds since the epoch; None: none yet, or it does not go by it"""
    watermarks_ms: tuple[float | None, ...] = ()
    """event time up to which each input was seen, as `inputs`"""
    draining: bool = False
    """sources are read no further: another graph is to take over"""
    stops: tuple[Offset | None, ...] = ()
    """where each input is read no further, as `inputs`; None: it is"""
    muted: frozenset[StreamId] = frozenset()
    """outputs to which nothing is written: what is processed has been sent before"""
    clock_limit_ms: float | None = None
    """event time beyond which the task may not come; None: no limit"""

    @property
    def fields(self) -> dict[str, Any]:
        """How log lines name the task."""
        return {"function": self.function, "stage": self.stage, "partition": self.partition}


@dataclass(frozen=True)
class Owner:
    """The incarnation that takes leases."""

    worker_id: WorkerId
    backend_pid: int


async def acquire(db: Connection, helper: Connection, owner: Owner, tasks: Sequence[TaskId]) -> list[Lease]:
    """Bump the epochs of tasks whose locks are held and read where they stand; leaves out what is not ours to run.

    `helper` is a second connection, used only when somebody sits on one of the rows.
    """
    if not tasks:
        return []
    taking = asyncio.ensure_future(
        db.fetch(
            "select * from jeet_internal.acquire_tasks($1, $2, $3)",
            owner.worker_id,
            owner.backend_pid,
            tasks,
        )
    )
    waited_s = 0.0
    try:
        while not taking.done():
            await asyncio.wait([taking], timeout=PATIENCE_S)
            waited_s += PATIENCE_S
            if not taking.done():
                for row in await helper.fetch(
                    query("end_blockers"), db.get_server_pid(), waited_s >= _PATIENCE_WITH_OTHERS_S, owner.backend_pid
                ):
                    log.warning(
                        "ended a session that sat on a task",
                        backend_pid=row["pid"],
                        application=row["application_name"],
                    )
        return [_lease(row) for row in taking.result()]
    finally:
        if not taking.done():
            taking.cancel()
            # Until it has ended, the connection would refuse whatever its user does next.
            await asyncio.gather(taking, return_exceptions=True)


async def release(db: Connection, owner: Owner, tasks: Sequence[TaskId]) -> None:
    """Record that tasks were given back on purpose; their locks are let go of afterwards."""
    await db.execute("select jeet_internal.release_tasks($1, $2)", owner.worker_id, list(tasks))


def _lease(row: Record) -> Lease:
    return Lease(
        task_id=TaskId(row["task_id"]),
        epoch=Epoch(row["epoch"]),
        function_id=FunctionId(row["function_id"]),
        function=row["function_name"],
        stage=row["stage"],
        partition=Partition(row["partition"]),
        version=row["version"],
        crashes=row["crashes"],
        ttl_hold_ms=row["ttl_hold_ms"],
        on_error=json.loads(row["on_error"]),
        inputs=tuple((StreamId(s), Offset(o)) for s, o in zip(row["inputs"], row["next_offsets"], strict=True)),
        outputs=tuple(None if s is None else StreamId(s) for s in row["outputs"]),
        clock_ms=row["clock_ms"],
        watermarks_ms=tuple(row["watermarks_ms"]),
        draining=row["draining"],
        stops=tuple(None if offset is None else Offset(offset) for offset in row["stops"]),
        muted=frozenset(map(StreamId, row["muted"])),
        clock_limit_ms=row["clock_limit_ms"],
    )
