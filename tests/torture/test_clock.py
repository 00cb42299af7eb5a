"""Clocks that are wrong: a worker ahead, one behind, a coordinator that jumps. Only the database's clock counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .cluster import Cluster
from .figures import Figures
from .storm import Storm

pytestmark = pytest.mark.torture

# Debian's libfaketime; monotonic time goes on truly, as it does when a clock is set.
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed (apt-get install faketime)")
@pytest.mark.parametrize("skew", ["+10m", "-10m", "-1h"])
def test_a_wrong_clock_takes_nothing_over_and_loses_nothing(
    database_url: str, skew: str, seed: int, rounds: int, figures: Figures
) -> None:
    with Storm(database_url, seed, workers=1) as storm:
        _with_clock(storm.cluster, skew, "worker")
        _with_clock(storm.cluster, skew, "coordinator")
        storm.cluster.wait_balanced("totals", 2)
        epochs = storm.cluster.sql("select partition, epoch from jeet.checkpoints order by 1")
        for _ in range(3 * rounds):
            storm.until_all_move()
        # The coordinator with the right clock ends: the one with the wrong clock leads, and takes nobody for lost.
        leader = storm.cluster.running("coordinator")[0]
        leader.kill()
        leader.wait()
        storm.pause(3.0, 4.0)
        storm.until_all_move()
        assert storm.cluster.sql("select partition, epoch from jeet.checkpoints order by 1") == epochs
        assert "worker disconnected" not in storm.cluster.log_of("coordinator")
    storm.tell(figures, f"clock {skew}", 2)


def _with_clock(cluster: Cluster, skew: str, kind: str) -> subprocess.Popen[bytes]:
    assert LIBRARY is not None
    cluster.environment |= {"LD_PRELOAD": str(LIBRARY), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    try:
        return cluster.start(kind)
    finally:
        for name in ("LD_PRELOAD", "FAKETIME", "FAKETIME_DONT_FAKE_MONOTONIC"):
            del cluster.environment[name]
