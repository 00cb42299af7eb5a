"""Who should run what: a pure function from tasks, workers and the present assignment to a better one.

Promise: every task has a worker as soon as there is one; counts differ by at most one between workers; a task moves
only if its worker is gone or holds more than its share; the same input gives the same answer, and an answer fed back
changes nothing. Functions are spread over workers, and heavy tasks go to workers with little to do, as far as that
allows. While workers differ in their plugin, this holds among the tasks that the same workers can run.

An assignment is a hint. The lease says who may run a task, so two coordinators at once do no harm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jeet.ids import FunctionId, TaskId, WorkerId


@dataclass(frozen=True)
class Runnable:
    """A task that should run somewhere."""

    task: TaskId
    function: FunctionId
    weight: float = 0.0
    """work that it makes, in events a second"""
    plugin: str | None = None
    """hash of the only plugin that can run it; None: any can"""


@dataclass(frozen=True)
class Move:
    task: TaskId
    worker: WorkerId
    previous: WorkerId | None


class _Share:
    """What one worker holds while a plan is made."""

    def __init__(self, worker: WorkerId) -> None:
        self.worker = worker
        self.tasks: list[Runnable] = []
        self.functions: Counter[FunctionId] = Counter()
        self.weight = 0.0
        self.quota = 0

    def take(self, task: Runnable) -> None:
        self.tasks.append(task)
        self.functions[task.function] += 1
        self.weight += task.weight

    def drop(self, task: Runnable) -> None:
        self.tasks.remove(task)
        self.functions[task.function] -= 1
        self.weight -= task.weight


def able(task: Runnable, plugins: Mapping[WorkerId, str | None]) -> frozenset[WorkerId]:
    """The workers that can run a task; all of them if none can: one of them will say why."""
    return frozenset(w for w, plugin in plugins.items() if task.plugin in (None, plugin)) or frozenset(plugins)


def assign_by_plugin(
    tasks: Sequence[Runnable], plugins: Mapping[WorkerId, str | None], current: Mapping[TaskId, WorkerId]
) -> dict[TaskId, WorkerId]:
    """`assign`, for each group of tasks that the same workers can run; `plugins` has the hash of each worker's."""
    groups: dict[frozenset[WorkerId], list[Runnable]] = defaultdict(list)
    for task in tasks:
        groups[able(task, plugins)].append(task)
    return {task: worker for who, group in groups.items() for task, worker in assign(group, who, current).items()}


def assign(
    tasks: Sequence[Runnable], workers: Iterable[WorkerId], current: Mapping[TaskId, WorkerId]
) -> dict[TaskId, WorkerId]:
    """A worker for every task, or nothing at all without workers."""
    shares = {worker: _Share(worker) for worker in sorted(set(workers))}
    if not shares:
        return {}
    orphans: list[Runnable] = []
    for task in sorted(tasks, key=lambda task: task.task):
        held_by = current.get(task.task)
        if held_by in shares:
            shares[held_by].take(task)
        else:
            orphans.append(task)
    _set_quotas(list(shares.values()), len(tasks))
    fair_weight = sum(task.weight for task in tasks) / len(shares)
    for share in shares.values():
        while len(share.tasks) > share.quota:
            surplus = _surplus(share, fair_weight)
            share.drop(surplus)
            orphans.append(surplus)
    for task in sorted(orphans, key=lambda task: (-task.weight, task.function, task.task)):
        _home_for(task, shares.values()).take(task)
    return {task.task: share.worker for share in shares.values() for task in share.tasks}


def _set_quotas(shares: list[_Share], count: int) -> None:
    """Whoever holds most keeps one more than the others: that moves the fewest."""
    low, extra = divmod(count, len(shares))
    for place, share in enumerate(sorted(shares, key=lambda share: (-len(share.tasks), share.worker))):
        share.quota = low + (1 if place < extra else 0)


def _surplus(share: _Share, fair_weight: float) -> Runnable:
    """The task to give up: of the function that has most tasks here; a heavy one if this worker has too much to do."""
    sign = 1 if share.weight > fair_weight else -1
    return max(share.tasks, key=lambda task: (share.functions[task.function], sign * task.weight, task.task))


def _home_for(task: Runnable, shares: Iterable[_Share]) -> _Share:
    room = [share for share in shares if len(share.tasks) < share.quota]
    return min(room, key=lambda share: (share.functions[task.function], share.weight, len(share.tasks), share.worker))


def relieve(
    tasks: Sequence[Runnable],
    assignment: Mapping[TaskId, WorkerId],
    workers: Iterable[WorkerId],
    tolerance: float = 0.3,
) -> dict[TaskId, WorkerId]:
    """Take work off the busiest worker by one exchange with the idlest; unchanged where that gains too little.

    Counts stay within one of each other. An exchange is made only if the busiest worker is more than `tolerance` above
    the average and would lose at least a tenth of the average by it: moving a task stops it for a moment.
    """
    shares = {worker: _Share(worker) for worker in sorted(set(workers))}
    for task in sorted(tasks, key=lambda task: task.task):
        if (worker := assignment.get(task.task)) in shares:
            shares[worker].take(task)
    result = dict(assignment)
    if len(shares) < 2:
        return result
    average = sum(share.weight for share in shares.values()) / len(shares)
    busy = max(shares.values(), key=lambda share: (share.weight, -share.worker))
    idle = min(shares.values(), key=lambda share: (share.weight, share.worker))
    if busy.weight <= average * (1 + tolerance) or busy is idle:
        return result
    best_gain, exchange = average / 10, None
    # None stands for "nothing in return", where counts allow it.
    returns: list[Runnable | None] = list(idle.tasks)
    if len(busy.tasks) > len(idle.tasks):
        returns.append(None)
    for given in busy.tasks:
        for returned in returns:
            shift = given.weight - (returned.weight if returned else 0.0)
            gain = busy.weight - max(busy.weight - shift, idle.weight + shift)
            if gain > best_gain:
                best_gain, exchange = gain, (given, returned)
    if exchange is not None:
        given, back = exchange
        result[given.task] = idle.worker
        if back is not None:
            result[back.task] = busy.worker
    return result


def moves(before: Mapping[TaskId, WorkerId], after: Mapping[TaskId, WorkerId]) -> list[Move]:
    """What changes between two assignments, tasks without a new worker left out."""
    return [Move(task, worker, before.get(task)) for task, worker in after.items() if before.get(task) != worker]
