"""What the tasks of a worker did: sums that only grow, changed once a batch, read by whoever tells them on.

Promise: they cost next to nothing and cannot fail a batch. Events, outputs and dead letters are counted once they are
committed, times whatever becomes of the batch. Each number has one writer, the event loop or the lane's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from jeet.ids import FunctionId, Offset, Partition, StreamId, TaskId
from jeet.observe.hotkeys import HotKeys


@dataclass(frozen=True)
class TaskName:
    """What a task is called."""

    function: str
    stage: int
    partition: Partition


@dataclass(frozen=True)
class Slowest:
    """An event and the CPU time that it took, at least."""

    cpu_s: float
    stream: StreamId | None
    offset: Offset


@dataclass(eq=False, slots=True)
class TaskFigures:
    """Of one task, since this worker first took it."""

    task_id: TaskId
    function_id: FunctionId
    name: TaskName
    began: float
    """when this began, on the monotonic clock"""
    events: int = 0
    outputs: int = 0
    bytes_in: int = 0
    batches: int = 0
    cut: int = 0
    errors: int = 0
    dead_letters: int = 0
    cpu_s: float = 0.0
    sandbox_s: float = 0.0
    fetch_s: float = 0.0
    state_s: float = 0.0
    commit_s: float = 0.0
    state_requests: int = 0
    state_misses: int = 0
    instances: int = 0
    recycled: int = 0
    memory_bytes: int = 0
    slowest: Slowest | None = None
    """since this was last told on"""
    hot: dict[StreamId, HotKeys] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    """the sums as they were told on last"""

    def slow(self, cpu_s: float, stream: StreamId | None, offset: Offset) -> None:
        """An event took so long."""
        if self.slowest is None or cpu_s > self.slowest.cpu_s:
            self.slowest = Slowest(cpu_s, stream, offset)

    def hot_keys(self, stream: StreamId) -> HotKeys:
        """Those of one input."""
        found = self.hot.get(stream)
        if found is None:
            found = self.hot[stream] = HotKeys()
        return found


SUMS = tuple(
    spec.name
    for spec in fields(TaskFigures)
    if spec.type in ("int", "float") and spec.name not in ("began", "memory_bytes")
)
"""what only grows"""


class Figures:
    """Of all tasks that this process runs or has run lately."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, TaskFigures] = {}

    def of(self, task_id: TaskId, function_id: FunctionId, name: TaskName, now: float) -> TaskFigures:
        """Those of a task, new ones if it was not here before."""
        found = self.tasks.get(task_id)
        if found is None:
            found = self.tasks[task_id] = TaskFigures(task_id, function_id, name, now)
        return found

    def forget(self, gone: Iterable[TaskId]) -> None:
        """Let go of tasks that went elsewhere."""
        for task_id in gone:
            self.tasks.pop(task_id, None)
