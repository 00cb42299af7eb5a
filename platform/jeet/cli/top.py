"""`jeet top`: the overview, drawn anew every few seconds, until q or Ctrl-C."""

from __future__ import annotations

import contextlib
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jeet.cli.frame import Line, frame
from jeet.observe.doctor import Finding
from jeet.observe.overview import Overview

DOCTOR_S = 10.0
"""how often the doctor is asked again; the rest is looked up for each frame"""


def watch(look: Callable[[list[Finding] | None], Overview], every_s: float) -> None:
    """Draw until q is pressed. `look` takes what the doctor said last, or None to ask it."""
    console = Console(highlight=False, emoji=False, markup=False)
    findings: list[Finding] | None = None
    asked_at = float("-inf")
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if time.monotonic() - asked_at >= DOCTOR_S:
                findings, asked_at = None, time.monotonic()
            seen = look(findings)
            findings = list(seen.findings)
            foot = Line("q quits; rates are averages of the last minute or two", "dim")
            lines = [*frame(seen, console.width, console.height - 2), Line(""), foot]
            live.update(_drawn(lines), refresh=True)
            if pressed(every_s) in ("q", "Q", "\x03"):
                return


def _drawn(lines: list[Line]) -> Text:
    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        text.append(("\n" if number else "") + line.text, style=line.style)
    return text


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Gives a function that waits so many seconds for a key, without Return, and gives it, or ''."""
    if not sys.stdin.isatty():

        def no_key(timeout_s: float) -> str:
            select.select([], [], [], timeout_s)
            return ""

        yield no_key
        return
    before = termios.tcgetattr(sys.stdin)

    def key(timeout_s: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
        return sys.stdin.read(1) if ready else ""

    try:
        tty.setcbreak(sys.stdin)  # Ctrl-C still interrupts
        yield key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
