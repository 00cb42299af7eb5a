"""Coordinators killed, frozen, doubled and away: data goes on, and no task ever has two owners."""

from __future__ import annotations

import os
import signal
import time

import pytest

from .cluster import wait_for
from .figures import Figures
from .storm import Storm

pytestmark = pytest.mark.torture


def test_work_goes_on_whatever_happens_to_coordinators(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    faults = 0
    with Storm(database_url, seed) as storm:
        cluster = storm.cluster

        for _ in range(rounds):
            # None at all: running tasks do not notice.
            for process in cluster.running("coordinator"):
                process.kill()
                process.wait()
            for _ in range(3):
                storm.until_all_move(within_s=5)
            # Two at once, started together; then the leader freezes and the other takes over its duty.
            cluster.start("coordinator")
            cluster.start("coordinator")
            candidates = {process.pid for process in cluster.running("coordinator")}
            leader = wait_for(
                lambda candidates=candidates: pid if (pid := _leader(storm)) in candidates else None, "a leader"
            )
            os.kill(leader, signal.SIGSTOP)
            storm.kill(storm.pick())
            cluster.start("worker")
            storm.until_balanced()
            assert _leader(storm) != leader
            os.kill(leader, signal.SIGCONT)
            storm.until_all_move(within_s=5)
            time.sleep(0.5)
            assert _leader(storm) != leader
            faults += 3
    storm.tell(figures, "coordinator lost, frozen or doubled", faults)


def _leader(storm: Storm) -> int | None:
    """The process that leads and has said so lately."""
    rows = storm.cluster.sql("select pid from jeet.coordinators where heartbeat_age < interval '1.5 seconds'")
    return rows[0][0] if rows else None
