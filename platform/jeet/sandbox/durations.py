"""Durations as people write them: '250ms', '10s', '5m', '1h', '7d'."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def duration_ms(text: object) -> int:
    """Milliseconds; ValueError says which forms there are."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no duration; write it like '250ms', '10s', '5m', '1h' or '7d'")
    value = round(float(found.group(1)) * _UNITS_MS[found.group(2)])
    if not 0 < value <= 100 * 366 * 86_400_000:
        raise ValueError(f"{text!r} is out of range: a duration is above 0 and at most a hundred years")
    return value
