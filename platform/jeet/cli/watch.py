"""How all is going: what an operator looks at first."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Page, counted, duration
from jeet.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jeet.observe.doctor import Finding
    from jeet.observe.overview import Overview

_PIPED = 118
"""columns of a frame where there is no terminal"""


class Watch(Group):
    """Watch over it"""

    @command
    def status(self) -> Page:
        """Show everything at a glance: functions, workers, who is behind, and what is wrong.

        What is wrong comes with evidence and remedy from: jeet doctor
        """
        return self._at_a_glance()

    @command
    def top(
        self,
        *,
        once: Annotated[bool, "print one frame and end, as without a terminal"] = False,
        every: Annotated[float, "seconds between two frames"] = 2.0,
    ) -> Page | None:
        """Watch functions, workers and who is behind, with rates and their history, until q or Ctrl-C.

        IN/S and DONE/S are events that come and are processed in a second, on average over the last minute or two;
        WAITING is how many wait, OLDEST for how long; CAUGHT UP IN when none will, at these rates; IN JS and IN DB how
        much of the time goes to the function and to the database; BUSY how much of it a worker has something to do.
        """
        if not 0.1 <= every <= 3600:
            raise UsageError(f"--every must be 0.1 to 3600 seconds, not {every:g}")
        if once or self.out.json or not self.out.is_terminal:
            return self._at_a_glance()
        from jeet.cli.top import watch
        from jeet.observe.overview import overview

        watch(lambda findings: overview(self.db, self.url, findings), every)
        return None

    @command
    def doctor(self) -> Page:
        """Say what is wrong, why that usually is, on what evidence, and what to type next.

        Exit code 0: healthy; 1: there are findings. The rules are those of the view jeet.diagnosis, which says the
        same in SQL, and two that take a client: whether the address leads through a pooler, whether clocks agree.
        From where on a rule speaks is in jeet.thresholds and can be set: alter database shop set jeet.retry_s = 20
        """
        from jeet.observe.doctor import examine

        findings = examine(self.db, self.url)
        facts = {"healthy": not findings, "findings": [asdict(finding) for finding in findings]}
        return Page(_told(findings, datetime.now(UTC), self.out.width), facts, code=1 if findings else 0)

    def _at_a_glance(self) -> Page:
        from jeet.cli.frame import frame
        from jeet.observe.overview import overview

        seen = overview(self.db, self.url)
        return Page([line.text for line in frame(seen, self.out.width or _PIPED)], _facts(seen, self.url))


def _facts(seen: Overview, url: str) -> dict[str, object]:
    from jeet.telemetry import without_secrets

    return {
        "at": seen.at,
        "database": without_secrets(url),
        "coordinator": f"{seen.leader['host']} pid {seen.leader['pid']}" if seen.leader else None,
        "workers": sum(row["status"] == "running" for row in seen.workers),
        "functions": [{**row, "events_by_minute": seen.history.get(row["function"], [])} for row in seen.functions],
        "worker_processes": seen.workers,
        "furthest_behind": seen.partitions,
        "problems": [asdict(finding) for finding in seen.findings],
    }


def _told(findings: Sequence[Finding], now: datetime, width: int | None) -> list[str]:
    if not findings:
        return ["healthy: no rule found anything"]
    lines = [f"{counted(len(findings), 'finding')}, the worst first"]
    for number, finding in enumerate(findings, 1):
        told = {
            "likely cause": finding.likely_cause,
            "evidence": finding.evidence,
            "action": finding.action,
        }
        if (since := finding.since) is not None:
            told["since"] = f"{since:%Y-%m-%d %H:%M:%S} UTC, {duration(now - since)} ago"
        lines += ["", *_hung(f"{number}. ", finding.observation, width)]
        for name, text in told.items():
            lines += _hung(f"   {name:<12}  ", text, width)
    return lines


def _hung(lead: str, text: str, width: int | None) -> list[str]:
    """The text after its lead, in as many lines as a terminal of that width needs; None: in one."""
    if width is None:
        return [lead + text]
    wrapped = textwrap.wrap(
        text, max(width - len(lead), 20), break_long_words=False, break_on_hyphens=False
    )  # a command is copied whole
    return [(lead if not number else " " * len(lead)) + part for number, part in enumerate(wrapped or [""])]
