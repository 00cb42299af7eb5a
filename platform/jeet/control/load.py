"""How much work each task makes, and when it is worth moving one for it.

A task's weight is its rate of committed events, smoothed: a worker that has too much to do commits as fast as it can
while another idles, and that difference is what an exchange can even out. Decisions are slow on purpose: an imbalance
must be seen three times in a row, and after an exchange the rates are learnt anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jeet.control.assignment import Runnable, relieve
from jeet.ids import TaskId, WorkerId

LOOK_S = 5.0
"""time between two looks at the rates"""
PATIENCE = 3
"""looks in a row that must agree"""


class LoadMeter:
    """Remembers where each task stood, and how fast it went."""

    def __init__(self) -> None:
        self._positions: dict[TaskId, int] = {}
        self._rates: dict[TaskId, float] = {}
        self._looked_at: float | None = None
        self._agreed = 0

    def due(self, now_s: float) -> bool:
        return self._looked_at is None or now_s - self._looked_at >= LOOK_S

    def observe(self, now_s: float, positions: Mapping[TaskId, int]) -> None:
        """Take in the sum of each task's next offsets."""
        if self._looked_at is not None and now_s > self._looked_at:
            span = now_s - self._looked_at
            self._rates = {
                task: 0.5 * self._rates.get(task, 0.0) + 0.5 * max(0, position - before) / span
                for task, position in positions.items()
                if (before := self._positions.get(task)) is not None
            }
        self._positions = dict(positions)
        self._looked_at = now_s

    def weight(self, task: TaskId) -> float:
        return self._rates.get(task, 0.0)

    def relief(
        self, tasks: Sequence[Runnable], assignment: Mapping[TaskId, WorkerId], workers: Iterable[WorkerId]
    ) -> dict[TaskId, WorkerId] | None:
        """A better assignment if the imbalance has lasted, else None. Call it once a look."""
        better = relieve(tasks, assignment, workers)
        if better == dict(assignment):
            self._agreed = 0
            return None
        self._agreed += 1
        if self._agreed < PATIENCE:
            return None
        self._agreed = 0
        return better
