"""Who plays in the tests of control: real coordinator processes, and workers reduced to what control sees of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from jeet.db.keys import TASK_CLASS, WORKER_CLASS
from jeet.db.sql import query

JEET = [sys.executable, "-c", "from jeet.cli.main import main; main()"]


def wait_for(read: Callable[[], Any], what: str, within_s: float = 20.0) -> Any:
    """Poll until `read` gives something true and return it; fail with `what` when it never does."""
    deadline = time.monotonic() + within_s
    while True:
        value = read()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {within_s:g} s: {what}")
        time.sleep(0.01)


class Process:
    """One `jeet …` process and what it has logged."""

    def __init__(self, database_url: str, *words: str, **environment: str) -> None:
        self._log = tempfile.NamedTemporaryFile(prefix="jeet-control-", suffix=".log")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*JEET, *words],
            env={**os.environ, "JEET_DATABASE_URL": database_url, **environment},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def lines(self, text: str) -> list[dict[str, str]]:
        """The fields of each logged line that holds `text`."""
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in self.log.splitlines() if text in line]

    def wait_for(self, text: str, count: int = 1, within_s: float = 20.0) -> dict[str, str]:
        """The fields of the `count`-th line with `text`, once there is one."""
        try:
            return wait_for(lambda: (found := self.lines(text)) and len(found) >= count and found, text, within_s)[
                count - 1
            ]
        except AssertionError as error:
            raise AssertionError(f"{error}; the log was:\n{self.log}") from None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        return self.process.returncode


@contextmanager
def coordinator(database_url: str, **environment: str) -> Iterator[Process]:
    process = Process(database_url, "coordinator", **environment)
    try:
        yield process
    finally:
        process.end()


class HandWorker:
    """A worker without events: it joins, beats, and takes and gives back the tasks that it is told to."""

    def __init__(self, database_url: str, *, obedient: bool = True) -> None:
        self._url = database_url
        self.lease = psycopg.connect(database_url, autocommit=True)
        row = self.lease.execute(
            query("register_worker"),
            {
                "process": uuid4(),
                "host": "testhost",
                "pid": os.getpid(),
                "version": "0",
                "plugin_hash": None,
                "worker_class": WORKER_CLASS,
            },
        ).fetchone()
        assert row is not None
        self.id: int = row[0]
        self.backend_pid: int = row[1]
        self.lease.execute("select set_config('application_name', %s, false)", (f"jeet-worker/{self.id} lease",))
        self.obedient = obedient
        self.beating = True
        self.held: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as data:
                data.execute("select set_config('application_name', %s, false)", (f"jeet-worker/{self.id} data",))
                while not self._stop.wait(0.02):
                    if (
                        self.beating
                        and not data.execute(query("heartbeat"), {"worker": self.id, "draining": False}).fetchone()
                    ):
                        return
                    if self.obedient:
                        self._obey(data)
        except psycopg.Error:
            return

    def _obey(self, data: psycopg.Connection) -> None:
        wanted = {
            row[0]: row[1]
            for row in data.execute(
                "select t.id, t.worker_id = %s from jeet_internal.assignment a"
                " join jeet_internal.task t on t.id = a.task_id join jeet_internal.function f on f.id = t.function_id"
                " where a.worker_id = %s and f.status <> 'paused' and t.status = 'running'",
                (self.id, self.id),
            ).fetchall()
        }
        if too_many := sorted(self.held - wanted.keys()):
            data.execute("select jeet_internal.release_tasks(%s, %s)", (self.id, too_many))
            self.lease.execute(query("unlock_tasks"), {"tasks": too_many, "task_class": TASK_CLASS})
            self.held -= set(too_many)
        if free := sorted(wanted.keys() - self.held):
            rows = self.lease.execute(query("lock_tasks"), {"tasks": free, "task_class": TASK_CLASS}).fetchall()
            self.held |= {row[0] for row in rows}
        if mine := sorted(task for task in self.held if wanted.get(task) is not True):
            data.execute(
                "select count(*) from jeet_internal.acquire_tasks(%s, %s, %s)", (self.id, self.backend_pid, mine)
            )

    def freeze(self) -> None:
        """Stop doing anything; sessions and locks stay."""
        self._stop.set()
        self._thread.join()

    def crash(self) -> None:
        """Vanish as a killed process does."""
        self._stop.set()
        self._thread.join()
        self.lease.close()

    def leave(self) -> None:
        """Go in good order."""
        self._stop.set()
        self._thread.join()
        with psycopg.connect(self._url, autocommit=True) as data:
            data.execute(query("heartbeat"), {"worker": self.id, "draining": True})
            data.execute("select jeet_internal.release_tasks(%s, %s)", (self.id, sorted(self.held)))
            self.lease.execute(query("unlock_tasks"), {"tasks": sorted(self.held), "task_class": TASK_CLASS})
            data.execute("delete from jeet_internal.worker where id = %s", (self.id,))
        self.lease.close()


@contextmanager
def workers(database_url: str, count: int) -> Iterator[list[HandWorker]]:
    """That many; more may be added to the list. What is left of them ends with the block."""
    team = [HandWorker(database_url) for _ in range(count)]
    try:
        yield team
    finally:
        for each in team:
            each.crash()


def make_function(db: psycopg.Connection, name: str, partitions: int) -> int:
    """A running function with as many tasks, not assigned to anybody; returns its id."""
    return db.execute(
        """
        with s as (select jeet_internal.create_stream(%(name)s || '-in', %(partitions)s) as id),
        f as (insert into jeet_internal.function (name, version) values (%(name)s, 1) returning id),
        v as (insert into jeet_internal.function_version
                  (function_id, version, filename, source, bytecode, plugin_hash, graph, spec, digest)
              select f.id, 1, 'x.js', '', '', '', '{}', '{}', '' from f returning function_id),
        g as (insert into jeet_internal.stage (function_id, version, stage, inputs, outputs)
              select v.function_id, 1, 0, array[s.id], array[null]::int[] from v, s),
        t as (insert into jeet_internal.task (function_id, partition, version)
              select f.id, p, 1 from f, generate_series(0, %(partitions)s - 1) p returning id, function_id)
        insert into jeet_internal.checkpoint (task_id, stream_id)
        select t.id, s.id from t, s returning (select id from f)
        """,
        {"name": name, "partitions": partitions},
    ).fetchone()[0]  # type: ignore[index]


def owners(db: psycopg.Connection) -> dict[int, int | None]:
    """Each task and the worker that holds its lease."""
    return dict(db.execute("select id, worker_id from jeet_internal.task order by id").fetchall())


def shares(db: psycopg.Connection) -> list[int]:
    """How many leases each worker holds, fewest first; empty while a task is without an owner."""
    rows = db.execute("select worker_id, count(*) from jeet_internal.task group by 1").fetchall()
    return [] if any(worker is None for worker, _ in rows) else sorted(count for _, count in rows)
