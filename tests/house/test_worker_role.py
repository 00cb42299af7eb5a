"""A login role with nothing but jeet_worker runs coordinators and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

JEET = [sys.executable, "-m", "jeet.cli"]


@pytest.fixture
def worker_url(database_url: str) -> Iterator[str]:
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute("drop role if exists jeet_test_runner")
        db.execute("create role jeet_test_runner login in role jeet_worker")
        yield make_conninfo(database_url, user="jeet_test_runner")
        db.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'jeet_test_runner'")
        db.execute("drop role jeet_test_runner")


def until(condition: Callable[[], bool], logs: list[Path]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "\n".join(log.read_text()[-2000:] for log in logs)
        time.sleep(0.02)


def test_a_member_of_jeet_worker_runs_functions_and_takes_over(
    database_url: str, worker_url: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    environment = os.environ | {"JEET_HOME": str(tmp_path / "home"), "JEET_MAINTENANCE_S": "1", "JEET_TTL_SWEEP_S": "1"}
    as_owner = environment | {"JEET_DATABASE_URL": database_url}
    as_worker = environment | {"JEET_DATABASE_URL": worker_url}
    logs = [tmp_path / name for name in ("coordinator", "worker-1", "worker-2")]
    processes = []
    try:
        for log in logs:
            words = [*JEET, log.name.partition("-")[0]]
            with log.open("wb") as out:
                processes.append(subprocess.Popen(words, env=as_worker, stdout=out, stderr=subprocess.STDOUT))
        function = tmp_path / "sums.js"
        function.write_text(
            "export const config = { source: 'in', sink: 'out', key: 'k', state: { sums: { ttl: '1h' } } };\n"
            "stream.map(event => { console.log(event.k); if (event.n < 0) throw new Error('no');"
            " return { k: event.k, sum: state.sums[event.k] = (state.sums[event.k] || 0) + event.n }; });"
        )
        subprocess.run([*JEET, "deploy", str(function)], env=as_owner, check=True, capture_output=True)
        events = [{"k": f"k{n % 5}", "n": n - 1} for n in range(500)]
        lines = "".join(json.dumps(event) + "\n" for event in events).encode()
        subprocess.run([*JEET, "publish", "in"], env=as_owner, input=lines, check=True, capture_output=True)
        processes[1].kill()

        def done() -> bool:
            (waiting,) = db.execute("select sum(lag) from jeet.lag").fetchone() or (1,)
            return waiting == 0

        until(done, logs)
        assert db.execute("select count(*) from jeet.dead_letters").fetchone() == (1,)
        assert db.execute("select count(*) from jeet.stream_events where stream = 'out'").fetchone() == (499,)
        assert db.execute("select sum(value::int) from jeet.state").fetchone() == (sum(range(499)),)
        # Maintenance too: its jobs tell when they did something, and complain when they may not.
        until(lambda: "job=checkpoint_history" in logs[0].read_text(), logs)
        assert not [line for log in logs for line in log.read_text().splitlines() if "permission denied" in line]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
