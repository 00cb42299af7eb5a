"""How all is going: what an operator looks at first."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Page, counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jeet.observe.doctor import Finding


class Watch(Group):
    """Watch over it"""

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
