"""A whole Jeet for one command: `jeet up` in a home of its own that is gone afterwards, driven by the command line.

Promise: what runs here is what users run; however the block ends, nothing of it stays behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from jeet import embedded
from jeet.db.sql import query
from jeet.embedded_install import die_with_parent
from jeet.errors import JeetError
from jeet.settings import Settings
from jeet.telemetry import REDISTRIBUTED, WORKER_DISCONNECTED

PATIENCE_S = 60.0
"""how long nothing may happen before a trial is given up"""


class TrialFailed(JeetError):
    """Something did not come out as it must; the message says what."""


@dataclass(frozen=True)
class Holder:
    """A worker and the partitions that it holds."""

    id: int
    pid: int
    partitions: list[int]


@dataclass(frozen=True)
class Redistribution:
    """The coordinator's two lines about a worker that was lost, and the milliseconds that they tell."""

    lines: tuple[str, ...]
    elapsed_ms: float


class Trial:
    """`jeet up` with so many workers, and the commands run on it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.url = ""
        """the database"""
        self.folder = Path()
        """the home; scratch files may go there too"""
        self._environment = {name: value for name, value in os.environ.items() if name != "JEET_DATABASE_URL"}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Trial:
        with self._stack:
            self.folder = Path(tempfile.mkdtemp(prefix="jeet-trial-"))
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            # The embedded server's user has to reach it.
            self.folder.chmod(0o755)
            with contextlib.suppress(OSError):  # saves compiling the plugin again
                shutil.copytree(Settings.from_environment().sandbox_cache, self.folder / "sandbox")
            self._environment |= {"JEET_HOME": str(self.folder), "JEET_LOG_FORMAT": "text", "JEET_LOG_LEVEL": "info"}
            self._log = self.folder / "up.log"
            log = self._stack.enter_context(self._log.open("wb"))
            self._up = subprocess.Popen(
                [sys.executable, "-m", "jeet.cli", "up", f"--workers={self.workers}"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches this process, which stops `jeet up`; killed, it takes `jeet up` along.
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
            self._stack.callback(self._stop)
            self.until("Postgres answers and the schema is there", self._is_up)
            url = embedded.find(self.folder)
            assert url is not None
            self.url = url
            self._environment["JEET_DATABASE_URL"] = url
            self.db = self._stack.enter_context(psycopg.connect(url, autocommit=True))
            self.until("all workers have joined", lambda: len(self.rows("trial_workers")) == self.workers)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _stop(self) -> None:
        self._up.terminate()
        try:
            self._up.wait(30)
        except subprocess.TimeoutExpired:
            self._up.kill()
            self._up.wait()

    def _is_up(self) -> bool:
        return any(" up database=" in line for line in self.log_lines("jeet"))

    def log_lines(self, process: str) -> list[str]:
        """What one of the processes has logged so far."""
        prefixed = (line.partition("|") for line in self._log.read_text(errors="replace").splitlines())
        return [text.strip() for name, _, text in prefixed if name.strip() == process]

    def start(self, *arguments: str, quiet: bool = False) -> subprocess.Popen[bytes]:
        """Start a jeet command whose output the person sees, unless it is to be quiet."""
        words = [sys.executable, "-m", "jeet.cli", *arguments]
        return subprocess.Popen(words, env=self._environment, stdout=subprocess.DEVNULL if quiet else None)

    def jeet(self, *arguments: str) -> list[str]:
        """Run a jeet command; the lines that it printed."""
        words = [sys.executable, "-m", "jeet.cli", *arguments]
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TrialFailed(f"jeet {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout.strip().splitlines()

    def until(self, what: str, condition: Callable[[], bool], progress: Callable[[], int] = lambda: 0) -> None:
        """Wait until the condition holds; fail with the last log lines when it does not come and nothing moves."""
        moved_at, last = time.monotonic(), progress()
        while not condition():
            if (now := progress()) != last:
                moved_at, last = time.monotonic(), now
            if self._up.poll() is not None or time.monotonic() > moved_at + PATIENCE_S:
                said = " / ".join(self._log.read_text(errors="replace").splitlines()[-5:])
                raise TrialFailed(f"waited in vain until {what}; the last lines of jeet up: {said}")
            time.sleep(0.02)

    def rows(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        """The rows of sql/queries/<name>.sql."""
        return self.db.execute(query(name).encode(), values).fetchall()

    def processed(self, function: str) -> int:
        """Events of its source that a function is done with."""
        return int(self.rows("trial_progress", function=function)[0][0])

    def holders(self) -> list[Holder]:
        """The workers that hold partitions."""
        return [Holder(*row) for row in self.rows("trial_workers") if row[2]]

    def redistribution(self, lost: Holder) -> Redistribution:
        """Wait for the coordinator's word that others hold the partitions of a worker that was killed."""

        def lines() -> list[str]:
            about = re.compile(rf"\bworker={lost.id}\b")
            found = [line for line in self.log_lines("coordinator") if about.search(line)]
            return [line for text in (WORKER_DISCONNECTED, REDISTRIBUTED) for line in found if text in line]

        self.until("the partitions have new owners", lambda: len(lines()) >= 2)
        elapsed = re.search(r"\belapsed_ms=([0-9.]+)", lines()[1])
        if elapsed is None:
            raise TrialFailed(f"the coordinator did not say how long it took: {lines()[1]}")
        return Redistribution(tuple(lines()[:2]), float(elapsed[1]))
