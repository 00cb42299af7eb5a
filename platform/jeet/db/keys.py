"""Advisory lock keys: two 32-bit numbers, a constant of Jeet's and an id. No hashing, so pg_locks joins to tasks."""

from __future__ import annotations

TASK_CLASS = 0x4A656574
"""class of task leases ("Jeet"); the second number is jeet_internal.task.id"""
WORKER_CLASS = 0x4A656577
"""class of worker liveness locks; the second number is jeet_internal.worker.id"""
SEGMENT_CLASS = 0x4A656573
"""class of segment creation; the second number is jeet_internal.stream.id"""
FUNCTION_CLASS = 0x4A656566
"""class of functions at rest, whose tasks nobody may take; the second number is jeet_internal.function.id"""
CONTROL_CLASS = 0x4A656563
"""class of single roles; see the pairs below"""

COORDINATOR_LOCK = (CONTROL_CLASS, 1)
MIGRATION_LOCK = (CONTROL_CLASS, 2)
CHANGE_LOCK = (CONTROL_CLASS, 4)
"""one change of functions at a time: deploy, pause, resume, rollback, delete"""
