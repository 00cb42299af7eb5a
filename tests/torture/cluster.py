"""A database of its own and real Jeet processes on it, driven only by what users have: the command line and SQL."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

from jeet.sandbox.engine import Engine

JEET = str(Path(sys.executable).parent / "jeet")


def wait_for(read: Callable[[], Any], what: str, within_s: float = 30.0) -> Any:
    """Poll until `read` gives something true and return it; fail with `what` when it never does."""
    deadline = time.monotonic() + within_s
    while True:
        value = read()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {within_s:g} s: {what}")
        time.sleep(0.01)


@functools.cache
def _compiled_plugin() -> Path:
    """A cache with the plugin in it, so that not each cluster compiles it."""
    folder = Path(tempfile.mkdtemp(prefix="jeet-torture-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    engine = Engine(folder)
    engine.load_plugin(None)
    engine.close()
    return folder


class Cluster:
    """One database, a coordinator and workers; everything that was started ends with the block."""

    def __init__(self, database_url: str, workers: int = 2, environment: dict[str, str] | None = None) -> None:
        self.url = database_url
        self.wanted_workers = workers
        self.folder = Path(tempfile.mkdtemp(prefix="jeet-torture-"))
        self.environment = {
            **os.environ,
            "JEET_DATABASE_URL": database_url,
            "JEET_HOME": str(self.folder / "home"),
            **(environment or {}),
        }
        self.processes: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        shutil.copytree(_compiled_plugin(), self.folder / "home" / "sandbox")

    def __enter__(self) -> Cluster:
        self.db = psycopg.connect(self.url, autocommit=True)
        self.start("coordinator")
        for _ in range(self.wanted_workers):
            self.start("worker")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [process for _, process, _ in self.processes if process.poll() is None]
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in running:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if error is not None:
            for name, process, log in self.processes:
                print(f"--- {name} {process.pid}:\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
        self.db.close()

    def start(
        self, kind: str, *arguments: str, url: str | None = None, command: Sequence[str] = (JEET,)
    ) -> subprocess.Popen[bytes]:
        """Start a process; `url` is its own way to the database, `command` what starts it."""
        log = self.folder / f"{kind}-{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, kind, *arguments],
                env={**self.environment, "JEET_DATABASE_URL": url or self.url},
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        self.processes.append((kind, process, log))
        return process

    def jeet(self, *arguments: str, stdin: bytes | None = None, ok: bool = True) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [JEET, *arguments], env=self.environment, input=stdin, capture_output=True, timeout=300, cwd=self.folder
        )
        assert not ok or done.returncode == 0, f"jeet {' '.join(arguments)}: {done.stderr.decode()[-500:]}"
        return done

    def deploy(self, source: str, name: str, *flags: str) -> None:
        path = self.folder / f"{name}.js"
        path.write_text(source)
        self.jeet("deploy", str(path), f"--name={name}", *flags)

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.db.execute(text, values or None).fetchall()

    def value(self, text: str, *values: Any) -> Any:
        return self.sql(text, *values)[0][0]

    def running(self, wanted: str) -> list[subprocess.Popen[bytes]]:
        return [process for kind, process, _ in self.processes if kind == wanted and process.poll() is None]

    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.running("worker")

    def replace_one(self, chance: random.Random) -> None:
        """kill -9 of a worker, and another one in its place."""
        worker = chance.choice(self.workers())
        worker.kill()
        worker.wait()
        self.start("worker")

    def log_of(self, kind: str) -> str:
        return "".join(log.read_text(errors="replace") for name, _, log in self.processes if name == kind)

    def leases_of(self, pid: int) -> list[int]:
        """Partitions whose lease is held by the worker process `pid`."""
        return [
            row[0]
            for row in self.sql(
                "select l.partition from jeet.leases l join jeet.workers w on w.id::text = l.worker::text"
                " where w.pid = %s and w.status = 'running' order by 1",
                pid,
            )
        ]

    def wait_balanced(self, function: str, workers: int) -> None:
        """Wait until every task of `function` is leased and `workers` running workers share them."""
        wait_for(
            lambda: (
                self.value("select count(*) from jeet.lag where function = %s and worker is null", function) == 0
                and self.value("select count(distinct worker) from jeet.leases where function = %s", function)
                == workers
            ),
            f"{function} spread over {workers} workers",
        )

    def drain(self, function: str, within_s: float = 120.0) -> None:
        wait_for(
            lambda: self.value("select sum(lag) from jeet.lag where function = %s", function) == 0,
            f"lag 0 of {function}",
            within_s,
        )
