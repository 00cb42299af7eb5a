"""How much of what a function writes with console.* is kept: so much a minute, and a line that says what was cut.

Promise: a function that logs without end fills neither the database nor a commit. That something is cut is
told at once, how much with the first batch after the minute. Each task has a budget; a new owner begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from jeet.limits import DEFAULTS
from jeet.task.effects import LoggedLine

MINUTE_S = 60.0


class LogBudget:
    """Of one task. `now` is in seconds on the monotonic clock."""

    def __init__(self) -> None:
        self._ends_at = float("-inf")
        self._lines = 0
        self._bytes = 0
        self._cut_lines = 0
        self._cut_bytes = 0

    def admit(self, lines: Sequence[LoggedLine], now: float) -> Sequence[LoggedLine]:
        """What to keep of a batch's lines, and what to say about those that were cut."""
        kept: list[LoggedLine] = []
        if now >= self._ends_at:
            if self._cut_lines:
                kept.append(_notice(f"{self._cut_lines:,} lines of {self._cut_bytes:,} bytes were cut in a minute"))
            self._lines = self._bytes = self._cut_lines = self._cut_bytes = 0
            self._ends_at = now + MINUTE_S
        for line in lines:
            size = len(line.message.encode("utf-8", "surrogatepass"))
            if (
                not self._cut_lines
                and self._lines < DEFAULTS["log_lines_per_minute"]
                and self._bytes + size <= DEFAULTS["log_bytes_per_minute"]
            ):
                self._lines += 1
                self._bytes += size
                kept.append(line)
                continue
            if not self._cut_lines:
                kept.append(_notice("what follows in this minute is cut; how much is told after it"))
            self._cut_lines += 1
            self._cut_bytes += size
        return kept


def _notice(what: str) -> LoggedLine:
    limits = ", ".join(f"{name} is {DEFAULTS[name]:,}" for name in ("log_lines_per_minute", "log_bytes_per_minute"))
    return LoggedLine(None, "warning", f"console output: {what} ({limits})")
