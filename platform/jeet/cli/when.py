"""Points in time as people type them: `10m` ago, or a date and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from jeet.cli.output import quoted
from jeet.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def since(text: str, now: datetime) -> datetime:
    """The moment that `text` names: `90s`, `10m`, `2h`, `7d` before now, or an ISO date or time (in UTC)."""
    if match := re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", text):
        try:
            return now - timedelta(seconds=int(match[1]) * _UNITS[match[2]])
        except OverflowError:
            pass
    else:
        try:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        except ValueError:
            pass
    raise UsageError(f"{quoted(text)} is not a time: use 90s, 10m, 2h or 7d (ago), or a date such as 2026-01-31T12:00")
