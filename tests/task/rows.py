"""A deployed function made by hand, row by row, and its lease: what tests of the commit need and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from jeet.control.lease import Lease
from jeet.ids import Epoch, FunctionId, Offset, Partition, StreamId, TaskId


@dataclass(frozen=True)
class Deployed:
    function: FunctionId
    source: StreamId
    sink: StreamId
    tasks: tuple[TaskId, ...]

    def lease(self, index: int = 0, epoch: int = 0, start: int = 0) -> Lease:
        return Lease(
            task_id=self.tasks[index],
            epoch=Epoch(epoch),
            function_id=self.function,
            function="totals",
            stage=0,
            partition=Partition(index),
            version=1,
            crashes=0,
            ttl_hold_ms=0.0,
            on_error="dead-letter",
            inputs=((self.source, Offset(start)),),
            outputs=(self.sink,),
        )


def deploy_by_hand(db: psycopg.Connection, name: str = "totals", partitions: int = 2) -> Deployed:
    def one(text: str, *values: object) -> int:
        row = db.execute(text, values).fetchone()
        assert row is not None
        return int(row[0])

    source = one("select jeet_internal.create_stream(%s, %s, 'userId')", f"{name}_in", partitions)
    sink = one("select jeet_internal.create_stream(%s, %s)", f"{name}_out", partitions)
    function = one("insert into jeet_internal.function (name, version) values (%s, 1) returning id", name)
    db.execute(
        "insert into jeet_internal.function_version (function_id, version, filename, source, bytecode, plugin_hash,"
        " graph, spec, digest) values (%s, 1, 'f.js', 'stream.map(e => e);', '', '', '[]', '{}', '')",
        (function,),
    )
    db.execute(
        "insert into jeet_internal.stage (function_id, version, stage, inputs, outputs) values (%s, 1, 0, %s, %s)",
        (function, [source], [sink]),
    )
    tasks = []
    for partition in range(partitions):
        task = one(
            "insert into jeet_internal.task (function_id, partition, version) values (%s, %s, 1) returning id",
            function,
            partition,
        )
        db.execute("insert into jeet_internal.checkpoint (task_id, stream_id) values (%s, %s)", (task, source))
        tasks.append(TaskId(task))
    return Deployed(FunctionId(function), StreamId(source), StreamId(sink), tuple(tasks))


def checkpoints(db: psycopg.Connection, tasks: Sequence[TaskId]) -> list[int]:
    rows = db.execute(
        "select next_offset from jeet_internal.checkpoint where task_id = any(%s) order by task_id", (list(tasks),)
    ).fetchall()
    return [row[0] for row in rows]
