"""How long to wait before asking the database again."""

from __future__ import annotations

from random import Random


def pause_s(failures: int, random: Random, *, first_s: float = 0.05, most_s: float = 2.0) -> float:
    """The wait after so many failures in a row: doubling, bounded, jittered so that many do not return at once."""
    return min(most_s, first_s * 2.0 ** min(failures - 1, 16)) * (0.5 + random.random())
