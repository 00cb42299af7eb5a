"""The database's disk full for a while: publishers and workers wait, and go on by themselves when there is room."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from .cluster import wait_for
from .figures import Figures
from .server import own_server, small_disk
from .storm import Storm

pytestmark = pytest.mark.torture

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@needs_root
def test_a_full_disk_stops_work_and_loses_nothing(seed: int, rounds: int, figures: Figures) -> None:
    recoveries_s: list[float] = []
    settings = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
    with small_disk(400) as disk, own_server(disk, **settings) as server, Storm(server.url, seed, rate=200) as storm:
        for _ in range(rounds):
            storm.until_all_move()
            ballast = _fill(disk, server.data)
            wait_for(lambda: _is_stuck(storm), "nothing can be committed any more", 60)
            storm.pause(2.0, 4.0)
            assert _is_stuck(storm), "it is still full"
            ballast.unlink()
            # A server that could not write its log has ended: starting it again is the one thing that is not Jeet's.
            server.start()
            storm.reconnect()
            recoveries_s.append(storm.until_all_move(within_s=60))
    storm.tell(figures, "disk full", rounds, outages_s=recoveries_s)


def _fill(disk: Path, _data: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            pass  # full
    return ballast


def _is_stuck(storm: Storm) -> bool:
    """Whether a write of any size fails."""
    try:
        with psycopg.connect(storm.url, autocommit=True, connect_timeout=2) as db:
            db.execute("set statement_timeout = '2s'")
            db.execute("create table if not exists stuck as select repeat('x', 100) from generate_series(1, 100000)")
            db.execute("drop table stuck")
    except psycopg.OperationalError:
        return True
    return False
