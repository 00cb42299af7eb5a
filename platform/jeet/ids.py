"""The small values that name things: a swapped argument fails the type checker."""

from __future__ import annotations

from typing import NewType

StreamId = NewType("StreamId", int)
"""jeet_internal.stream.id"""
FunctionId = NewType("FunctionId", int)
"""jeet_internal.function.id"""
TaskId = NewType("TaskId", int)
"""jeet_internal.task.id; also the second half of the task's advisory lock key"""
WorkerId = NewType("WorkerId", int)
"""jeet_internal.worker.id: one incarnation of a worker process; also the second half of its liveness lock key"""
Partition = NewType("Partition", int)
"""0 .. partitions-1 of a stream"""
Offset = NewType("Offset", int)
"""Position in a partition: dense, from 0, in commit order"""
Epoch = NewType("Epoch", int)
"""Rises at each takeover and each control change of a task; fences commits"""
