"""Workers killed by kill -9 again and again, three of them, each time another at another moment."""

from __future__ import annotations

import signal

import pytest

from .figures import Figures
from .storm import Storm

pytestmark = pytest.mark.drill


def test_workers_killed_at_random_moments_lose_and_repeat_nothing(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    takeovers_s: list[float] = []
    with Storm(database_url, seed, workers=3) as storm:
        for _ in range(2 * rounds):
            storm.pause(0.2, 1.5)
            worker = storm.pick()
            takeovers_s.append(storm.kill(worker))
            assert worker.returncode == -signal.SIGKILL
            storm.cluster.start("worker")
            if storm.chance.random() < 0.5:
                storm.until_balanced()
    storm.tell(figures, "kill -9 of a worker", len(takeovers_s), takeovers_s=takeovers_s)
