"""Follows the tasks of a worker that went until others hold all their leases.

Promise: it is over only when every one of these tasks is leased by a running worker, or is no longer to be run (paused,
halted, deleted). Assigning is not enough: a takeover can fail, and is then tried again.
`elapsed_ms` counts from the moment the coordinator saw the loss to the moment it saw the last lease;
`since_heartbeat_ms` counts from the lost worker's last heartbeat, so it also holds the time in which nobody knew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jeet.control.watch import Reason
from jeet.ids import TaskId, WorkerId


@dataclass
class Redistribution:
    worker: WorkerId
    reason: Reason
    tasks: frozenset[TaskId]
    """what it held or was to hold"""
    seen_at_s: float
    silent_s: float
    """age of its last heartbeat when the loss was seen"""
    urged_at_s: float
    """when the takeover was last set off"""

    def open_tasks(self, owners: Mapping[TaskId, WorkerId | None]) -> frozenset[TaskId]:
        """Those still without a running owner. `owners` has every task that is to be run."""
        return frozenset(task for task in self.tasks if task in owners and owners[task] in (None, self.worker))

    def moved(self, owners: Mapping[TaskId, WorkerId | None]) -> int:
        """How many of its tasks have a new owner."""
        return sum(1 for task in self.tasks if owners.get(task) not in (None, self.worker))

    def elapsed_ms(self, now_s: float) -> float:
        return round((now_s - self.seen_at_s) * 1000, 1)

    def since_heartbeat_ms(self, now_s: float) -> float:
        return round((now_s - self.seen_at_s + self.silent_s) * 1000, 1)


def tasks_of(pending: Iterable[Redistribution]) -> list[TaskId]:
    """All tasks that somebody waits for."""
    return sorted({task for each in pending for task in each.tasks})
