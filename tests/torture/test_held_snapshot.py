"""A reader that keeps its snapshot, and a listener that has frozen, under load: work goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

from .figures import Figures
from .storm import Storm

pytestmark = pytest.mark.torture

LISTENER = """
import psycopg, time
db = psycopg.connect({url!r}, autocommit=True)
db.execute('listen jeet_data')
print('listening', flush=True)
time.sleep(600)
"""


def test_work_goes_on_beside_a_held_snapshot_and_a_frozen_listener(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    seconds = 5 * rounds
    listener = subprocess.Popen([sys.executable, "-c", LISTENER.format(url=database_url)], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    listener.stdout.readline()
    os.kill(listener.pid, signal.SIGSTOP)
    try:
        with Storm(database_url, seed) as storm, psycopg.connect(database_url) as reader:
            calm = _progress_in(storm, seconds)
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from jeet.stream_events")
            held = _progress_in(storm, seconds)
            dead = storm.cluster.value(
                "select max(n_dead_tup) from pg_stat_user_tables where schemaname = 'jeet_internal'"
            )
            usage = storm.cluster.value("select pg_notification_queue_usage()")
            assert held > 0.5 * calm
            assert usage < 0.01
            reader.rollback()
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()
    storm.tell(
        figures, "snapshot held", 1, note=f"{held / calm:.2f} of the calm rate, {dead:,} dead rows at most in a table"
    )


def _progress_in(storm: Storm, seconds: float) -> int:
    before, began = sum(storm.positions().values()), time.monotonic()
    storm.pause(seconds, seconds)
    return int((sum(storm.positions().values()) - before) / (time.monotonic() - began))
