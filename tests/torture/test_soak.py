"""Mixed faults for a long time: what processes hold and what tables take does not grow with it. Run by `make soak`.

JEET_SOAK_MIN says how many minutes. One worker and the coordinator are left alone, so that their growth can be seen.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import defaultdict

import psutil
import pytest

from .figures import Figures
from .oracle import MIXED_JS
from .storm import FUNCTION, Storm

pytestmark = pytest.mark.soak

MINUTES = float(os.environ.get("JEET_SOAK_MIN", "30"))
SAMPLE_S = 10.0
WORKERS = 3
# The log itself grows with what is published; everything else must not.
TABLES = """
select relname, pg_total_relation_size(c.oid) from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'jeet_internal' and relkind = 'r'
   and relname in ('task', 'checkpoint', 'head', 'worker', 'leader', 'state', 'inbox', 'suspect')
"""
# Per hour; half an hour of noise stays far below.
MOST = {"MB": 40.0, "descriptors": 10.0, "connections": 5.0, "table MB": 10.0}


def test_nothing_grows_with_time(database_url: str, seed: int, figures: Figures) -> None:
    samples: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    faults = 0
    with Storm(database_url, seed, workers=WORKERS, rate=300) as storm:
        cluster = storm.cluster
        kept = {"worker": cluster.workers()[0], "coordinator": cluster.running("coordinator")[0]}
        began = sampled = time.monotonic()
        while (now := time.monotonic()) - began < MINUTES * 60:
            if now - sampled >= SAMPLE_S:
                # A worker that is just starting has fewer connections: all must be there to be compared.
                cluster.wait_balanced(FUNCTION, WORKERS)
                sampled = time.monotonic()
                hours = (sampled - began) / 3600
                for name, process in kept.items():
                    about = psutil.Process(process.pid)
                    samples[name, "MB"].append((hours, about.memory_info().rss / 2**20))
                    samples[name, "descriptors"].append((hours, about.num_fds()))
                samples["database", "connections"].append(
                    (hours, cluster.value("select count(*) from pg_stat_activity where datname = current_database()"))
                )
                for table, size in cluster.sql(TABLES):
                    samples[table, "table MB"].append((hours, size / 2**20))
            _strike(storm, kept["worker"].pid)
            faults += 1
            storm.until_all_move()
            storm.pause(1.0, 4.0)
        assert all(process.poll() is None for process in kept.values())
    # Caches fill and tables find their size in the first part.
    slopes = {what: _slope(values[len(values) // 3 :]) for what, values in samples.items()}
    grown = {what: slope for what, slope in slopes.items() if slope > MOST[what[1]]}
    told = ", ".join(f"{name} {slope:+.1f} {unit}/h" for (name, unit), slope in sorted(slopes.items()))
    storm.tell(figures, f"soak of {MINUTES:g} min", faults, note=told)
    assert not grown, told


def _strike(storm: Storm, spared: int) -> None:
    cluster = storm.cluster
    others = [worker for worker in cluster.workers() if worker.pid != spared]
    fault = storm.chance.choice(["kill", "freeze", "session", "term", "deploy"])
    if fault == "kill":
        victim = storm.chance.choice(others)
        victim.kill()
        victim.wait()
        cluster.start("worker")
    elif fault == "term":
        victim = storm.chance.choice(others)
        victim.terminate()
        victim.wait(30)
        cluster.start("worker")
    elif fault == "freeze":
        victim = storm.chance.choice(others)
        victim.send_signal(signal.SIGSTOP)
        storm.pause(1.0, 5.0)
        victim.send_signal(signal.SIGCONT)
    elif fault == "session":
        cluster.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'jeet-%' order by random() limit 1"
        )
    else:
        cluster.deploy(f"// {storm.chance.random()}\n{MIXED_JS}", "totals")


def _slope(values: list[tuple[float, float]]) -> float:
    """Growth per hour, by least squares."""
    hours, sizes = zip(*values, strict=True)
    return statistics.linear_regression(hours, sizes).slope
