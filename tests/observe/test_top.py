"""`jeet top` and `jeet status`: the same facts on a terminal, through a pipe and as JSON; readable at 80 columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.torture.cluster import JEET

from jeet.cli.frame import frame, spark
from jeet.observe.doctor import Finding
from jeet.observe.overview import Overview
from observe.conftest import Clinic


def load(clinic: Clinic) -> None:
    clinic.publish("steady_in", *(json.dumps({"userId": f"u{n}", "n": 1}) for n in range(500)))
    clinic.cluster.drain("steady")


class Terminal:
    """A program in a terminal of 80 by 24."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True, close_fds=True
        )
        os.close(other)
        self.written = b""

    def until(self, seen: Callable[[str], bool]) -> str:
        """Read until what was written so far satisfies `seen`, or the program ends."""
        deadline = time.monotonic() + 30
        while not seen(self.text):
            assert time.monotonic() < deadline, self.text
            if select.select([self._end], [], [], 0.1)[0]:
                try:
                    self.written += os.read(self._end, 65536)
                except OSError:  # the other side is closed
                    break
        return self.text

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")

    def press(self, key: str) -> None:
        os.write(self._end, key.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._end)


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")


def in_terminal(clinic: Clinic, *words: str, **more: str) -> Terminal:
    return Terminal([JEET, *words], {**clinic.cluster.environment, "TERM": "xterm-256color", **more})


def test_top_draws_on_a_terminal_of_80_columns_and_q_ends_it(clinic: Clinic) -> None:
    load(clinic)
    terminal = in_terminal(clinic, "top", "--every=0.2")
    try:
        text = terminal.until(lambda text: text.count("q quits") >= 2)
        terminal.press("q")
        terminal.until(lambda _: terminal.process.poll() is not None)
        assert terminal.process.wait(10) == 0
    finally:
        terminal.close()
    lines = plain(text.split("q quits")[0].split("\x1b[H")[-1])
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert re.match(r"jeet at \d\d:\d\d:\d\d UTC: 1 function in 2 tasks, 0 events wait", lines[0].strip())
    assert [line.strip() for line in lines[1:3]] == ["2 workers, led by a coordinator", "jeet doctor: healthy"]
    assert any(line.split()[:2] == ["steady", "running"] for line in lines)
    assert "\x1b[?1049l" in terminal.text, "the screen is given back"


def test_top_ends_with_130_on_ctrl_c(clinic: Clinic) -> None:
    terminal = in_terminal(clinic, "top")
    try:
        terminal.until(lambda text: "q quits" in text)
        terminal.process.send_signal(signal.SIGINT)
        terminal.until(lambda _: terminal.process.poll() is not None)  # a terminal goes on taking what is written
        assert terminal.process.wait(10) == 130
    finally:
        terminal.close()


def test_there_are_no_colours_where_they_are_not_wanted(clinic: Clinic) -> None:
    terminal = in_terminal(clinic, "top", NO_COLOR="1")
    try:
        text = terminal.until(lambda text: "q quits" in text)
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)
    finally:
        terminal.close()
    done = clinic.cluster.jeet("top")
    assert b"\x1b" not in done.stdout
    assert done.stdout.decode().splitlines()[0].startswith("jeet at ")


def test_status_has_the_same_facts_as_the_views(clinic: Clinic) -> None:
    load(clinic)
    facts = json.loads(clinic.cluster.jeet("status", "--json").stdout)
    assert (facts["workers"], facts["problems"]) == (2, [])
    assert [(row["function"], row["tasks"], row["owned"], row["lag"]) for row in facts["functions"]] == [
        ("steady", 2, 2, 0)
    ]
    assert len(facts["functions"][0]["events_by_minute"]) == 60
    assert sorted(row["pid"] for row in facts["worker_processes"]) == sorted(w.pid for w in clinic.cluster.workers())
    assert json.loads(clinic.cluster.jeet("top", "--once", "--json").stdout).keys() == facts.keys()


# What a frame looks like, of any facts.

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def function(name: str, **more: Any) -> dict[str, Any]:
    return {
        "function": name, "version": 1, "status": "running", "under_way": None, "source": "in", "sink": None,
        "tasks": 8, "owned": 8,
        "arrival_per_s": 12.5, "processed_per_s": 1234.5, "lag": 0, "oldest_age": None, "drain_s": 0,
        "share_sandbox": 0.25, "share_database": None, "dead_letters": 0, **more,
    }  # fmt: skip


def seen(**more: Any) -> Overview:
    worker = {
        "id": 1, "host": "h", "pid": 7, "version": "1", "status": "running", "tasks": 8, "busy": 0.5,
        "memory_bytes": 2**27, "heartbeat_age": timedelta(seconds=0.2),
    }  # fmt: skip
    facts = {
        "at": NOW, "leader": {"host": "h", "pid": 1}, "workers": [worker], "functions": [function("f")],
        "partitions": [], "history": {"f": [0] * 30 + [5] * 30}, "findings": [],
    }  # fmt: skip
    return Overview(**(facts | more))


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("height", [8, 24, None])
def test_a_frame_fits_whatever_there_is(width: int, height: int | None) -> None:
    many = [function(f"function-with-a-long-name-{n}", lag=10**n, oldest_age=timedelta(days=n)) for n in range(12)]
    behind = [
        {
            "function": "f\x1b[2J",
            "stage": 0,
            "partition": n,
            "stream": "s" * 99,
            "lag": 1,
            "oldest_age": None,
            "worker": None,
        }
        for n in range(40)
    ]
    findings = [Finding("r", "o" * 300, "c", "e", "a")] * 9
    lines = frame(seen(functions=many, partitions=behind, findings=findings), width, height)
    assert max(len(line.text) for line in lines) <= width
    assert not any("\x1b" in line.text for line in lines)
    if height == 24:
        assert len(lines) <= 24
        assert sum("more" in line.text for line in lines) == 3
    if height is None:
        assert sum("more" in line.text for line in lines) == 0


def test_a_frame_tells_the_worst_in_red_and_counts_findings() -> None:
    lines = frame(seen(findings=[Finding("r", "no coordinator leads", "c", "e", "a")] * 5), 80, 24)
    assert [line.text for line in lines if line.style == "red"] == [
        "jeet doctor: 5 findings",
        *["  no coordinator leads"] * 3,
    ]
    assert "  … and 2 more: jeet doctor" in [line.text for line in lines]
    assert [line.style for line in frame(seen(), 80) if "doctor" in line.text] == ["green"]


@pytest.mark.parametrize(
    ("facts", "status", "caught_up"),
    [
        ({}, "running", "0.0s"),
        ({"lag": 9, "drain_s": 90, "oldest_age": timedelta(minutes=1)}, "running", "1m 30s"),
        ({"lag": 9, "drain_s": None, "oldest_age": timedelta(minutes=1)}, "running", "never"),
        ({"lag": 9, "drain_s": None, "oldest_age": timedelta(seconds=0.1)}, "running", "-"),  # it keeps up
        ({"lag": 9, "drain_s": None, "under_way": "rebuilding", "oldest_age": timedelta(days=1)}, "rebuilding", "-"),
        ({"status": "failed", "under_way": "draining"}, "failed", "0.0s"),
    ],
)
def test_a_function_s_row_says_what_it_does_and_when_it_has_caught_up(
    facts: dict[str, Any], status: str, caught_up: str
) -> None:
    (row,) = (line.text for line in frame(seen(functions=[function("f") | facts]), 200) if line.text.startswith("f "))
    oldest = row.split(status)[1]
    assert f" {caught_up} " in oldest.replace(" 25%", " ")


def test_a_frame_without_a_function_says_so() -> None:
    assert ": no function, 0 events wait" in frame(seen(functions=[]), 80)[0].text


def test_history_is_drawn_in_relation_to_its_highest() -> None:
    assert spark([0, 1, 4, 8]) == " ▁▄█"
    assert spark([]) == ""
    assert spark([0, 0]) == "  "
    assert spark([7]) == "█"
