"""`jeet up` with everything real: Postgres, coordinator, workers; killed, stopped, and asked for twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from jeet import embedded

SUMS = """
stream.map(event => {
  state.sums[event.k] = (state.sums[event.k] || 0) + event.n;
  return { k: event.k, sum: state.sums[event.k] };
});
"""


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


class Up:
    """One `jeet up`, and commands on it."""

    def __init__(self, home: Path, *flags: str) -> None:
        self.home = home
        self.log = home / f"up-{time.monotonic_ns()}.log"
        self.environment = {k: v for k, v in os.environ.items() if k != "JEET_DATABASE_URL"} | {"JEET_HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jeet.cli", "up", *flags],
            env=self.environment,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, condition: Callable[[], bool], within_s: float = 60) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, self.text()[-3000:]
            time.sleep(0.02)

    def jeet(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jeet.cli", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def workers(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if comm(pid) == "jeet-worker"]

    def is_up(self) -> bool:
        return " up database=" in self.text()


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="jeet-up-"))
    home.chmod(0o755)
    with embedded.start(home):
        pass
    yield home
    shutil.rmtree(home)


@pytest.fixture
def up(prepared: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*flags: str) -> Up:
        started.append(Up(prepared, *flags))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(60)


def sums(home: Path) -> dict[str, int]:
    with psycopg.connect(embedded.place(home).url()) as db:
        return dict(db.execute("select key, value::text::int from jeet.state where function = 'sums'").fetchall())


def test_workers_that_are_all_killed_come_back_and_nothing_is_lost(up: Callable[..., Up], prepared: Path) -> None:
    one = up("--workers=2")
    one.until(one.is_up)
    one.until(lambda: len(one.workers()) == 2)
    function = prepared / "sums.js"
    function.write_text(SUMS)
    deployed = one.jeet("deploy", str(function), "--source=in", "--sink=out", "--key=k", "--partitions=4")
    assert deployed.returncode == 0, deployed.stderr
    wanted: dict[str, int] = {}
    for turn in range(3):
        events = [{"k": f"k{n % 17}", "n": n + turn} for n in range(2000)]
        for event in events:
            wanted[str(event["k"])] = wanted.get(str(event["k"]), 0) + int(event["n"])
        published = one.jeet("publish", "in", "-", stdin="".join(json.dumps(event) + "\n" for event in events))
        assert published.returncode == 0, published.stderr
        killed = one.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        one.until(lambda killed=killed: len(set(one.workers()) - set(killed)) == 2)
    one.until(lambda: sums(prepared) == wanted)
    # One of the two may have done all the work before the other was there.
    one.until(lambda: json.loads(one.jeet("status", "--json").stdout)["workers"] == 2)
    assert one.text().count("process ended, starting it again") >= 6


def test_a_second_up_of_the_same_home_says_that_it_is_up(up: Callable[..., Up]) -> None:
    one = up("--workers=0")
    one.until(one.is_up)
    second = one.jeet("up")
    assert second.returncode == 1
    assert f"already up for {one.home} (pid {one.process.pid})" in second.stderr
    assert one.process.poll() is None


def test_a_killed_up_leaves_nothing_running_and_starts_again(up: Callable[..., Up]) -> None:
    one = up("--workers=1")
    one.until(one.is_up)
    one.until(lambda: len(one.workers()) == 1)
    left = children(one.process.pid)
    assert {comm(pid) for pid in left} >= {"postgres", "jeet-worker"}
    one.process.kill()
    one.process.wait()
    one.until(lambda: not any(comm(pid) for pid in left))
    again = up("--workers=0")
    again.until(again.is_up)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_stops_everything_in_order_and_keeps_the_data(up: Callable[..., Up], number: signal.Signals) -> None:
    one = up("--workers=1")
    one.until(one.is_up)
    one.until(lambda: "worker joined" in one.text())
    everything = children(one.process.pid)
    one.process.send_signal(number)
    assert one.process.wait(60) == 0
    text = one.text()
    assert text.index("worker stopped") < text.index("coordinator stopped") < text.index("database system is shut down")
    assert not any(comm(pid) for pid in everything)


def test_no_other_process_is_called_jeet_worker(up: Callable[..., Up]) -> None:
    one = up("--workers=1")
    one.until(one.is_up)
    one.until(lambda: len(one.workers()) == 1)
    family = [one.process.pid, *children(one.process.pid)]
    named = [pid for pid in family if b"jeet-worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert named == one.workers()


def test_logs_of_all_processes_come_out_as_json_when_asked(up: Callable[..., Up]) -> None:
    one = up("--workers=1", "--json")
    one.until(lambda: '"message": "up"' in one.text())
    one.until(lambda: "worker joined" in one.text())
    events = [json.loads(line) for line in one.text().splitlines()]
    assert {event["process"] for event in events} >= {"jeet", "postgres", "coordinator", "worker-1"}
