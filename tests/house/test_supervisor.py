"""`jeet up` keeps its children alive, stops them in order, and leaves none behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jeet.supervisor import restart_delay_s

SUPERVISE = """
import asyncio, signal, subprocess, sys
from jeet.embedded_install import die_with_parent
from jeet.supervisor import ChildSpec, LinePrinter, Supervisor
from jeet.telemetry import configure

CHILD = '''
import os, signal, sys, time
print("started", os.getpid(), flush=True)
if sys.argv[1] == "fails":
    sys.exit(3)
def stop(*_):
    print("stopping", flush=True)
    time.sleep(0.2)
    print("stopped", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "stubborn" else stop)
while True:
    signal.pause()
'''

def child(word):
    return lambda output: subprocess.Popen(
        [sys.executable, "-c", CHILD, word], stdout=output, stderr=output, preexec_fn=die_with_parent(signal.SIGKILL))

async def main():
    printer = LinePrinter(sys.stdout, as_json=False, names=["first", "second"])
    configure(stream=sys.stdout)
    async with Supervisor(printer) as supervisor:
        supervisor.add(ChildSpec("second", child(sys.argv[2]), stop_wait_s=1.0, rank=1))
        supervisor.add(ChildSpec("first", child(sys.argv[1]), stop_wait_s=1.0, rank=0))
        await supervisor.until_told()
    printer.close()

asyncio.run(main())
"""


class Supervised:
    """A supervisor of two children in a process of its own, and the lines it printed."""

    def __init__(self, log: Path, first: str, second: str) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, first, second], stdout=log.open("wb"), stderr=subprocess.STDOUT
        )

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def pids(self, name: str) -> list[int]:
        return [int(line.split()[-1]) for line in self.lines() if line.startswith(name) and "started" in line]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "\n".join(self.lines())
            time.sleep(0.01)


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    made: list[Supervised] = []

    def start(first: str = "good", second: str = "good") -> Supervised:
        made.append(Supervised(tmp_path / f"log{len(made)}", first, second))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_child_that_is_killed_is_started_again_at_once_however_often(supervise: Callable[..., Supervised]) -> None:
    one = supervise()
    for times in range(1, 8):
        one.wait_for(lambda times=times: len(one.pids("first")) == times)
        os.kill(one.pids("first")[-1], signal.SIGKILL)
    one.wait_for(lambda: len(one.pids("first")) == 8)
    assert len(one.pids("second")) == 1
    assert any("signal=SIGKILL" in line for line in one.lines())
    assert not any("keeps ending" in line for line in one.lines())


def test_a_child_that_keeps_ending_is_told_of_and_started_more_slowly(supervise: Callable[..., Supervised]) -> None:
    one = supervise(first="fails")
    one.wait_for(lambda: any("process keeps ending" in line and "exit_code=3" in line for line in one.lines()))


@pytest.mark.parametrize(
    ("short_lives", "delay_s"), [(0, 0), (1, 0), (3, 0), (4, 0.5), (5, 1), (6, 2), (9, 10), (999, 10)]
)
def test_restarts_slow_down_only_after_several_short_lives(short_lives: int, delay_s: float) -> None:
    assert restart_delay_s(short_lives) == delay_s


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_children_are_stopped_in_order(supervise: Callable[..., Supervised], number: signal.Signals) -> None:
    one = supervise()
    one.wait_for(lambda: bool(one.pids("first") and one.pids("second")))
    one.process.send_signal(number)
    assert one.process.wait(20) == 0
    said = [line for line in one.lines() if "stopp" in line and "|" in line]
    assert [line.split()[0] for line in said] == ["first", "first", "second", "second"]


def test_a_child_that_will_not_stop_is_killed(supervise: Callable[..., Supervised]) -> None:
    one = supervise(first="stubborn")
    one.wait_for(lambda: bool(one.pids("first") and one.pids("second")))
    one.process.terminate()
    assert one.process.wait(20) == 0
    assert gone(one.pids("first")[0])


def test_no_child_outlives_a_supervisor_that_is_killed(supervise: Callable[..., Supervised]) -> None:
    one = supervise(first="stubborn")
    one.wait_for(lambda: bool(one.pids("first") and one.pids("second")))
    one.process.kill()
    one.process.wait()
    one.wait_for(lambda: all(gone(pid) for pid in one.pids("first") + one.pids("second")))
