"""The doctor: what is wrong now, on what evidence, and what to type next.

Promise: a finding is a fact that was looked up, never a guess about the future, and each names what was found, why that
usually happens, the figures it rests on and a remedy. One source of rules: those about the cluster are views in
sql/rules, which jeet.diagnosis unites, the same for everybody; here are only those that take a client to see.
Thresholds are those of the view jeet.thresholds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from jeet.db.pooler import is_direct
from jeet.db.sql import query

_LOOKS = 5
"""at the database's clock; that which took least time tells most"""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    rule: str
    observation: str
    likely_cause: str
    evidence: str
    action: str
    since: datetime | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


def examine(db: psycopg.Connection, database_url: str) -> list[Finding]:
    """All findings, the worst first. `db` must autocommit, and be connected to `database_url`."""
    return [*_through_pooler(db, database_url), *_of_cluster(db), *_clock_apart(db)]


def _of_cluster(db: psycopg.Connection) -> list[Finding]:
    rows = db.execute(query("doctor_findings").encode()).fetchall()
    return [Finding(*row) for row in rows]


def _through_pooler(db: psycopg.Connection, database_url: str) -> list[Finding]:
    """Whether this address could hold a worker's locks: workers given the same one refuse to start."""
    with psycopg.connect(database_url, autocommit=True, application_name="jeet-doctor") as other:
        if is_direct(db, other):
            return []
    return [
        Finding(
            "pooler",
            "the database is reached through a pooler in transaction mode",
            "JEET_DATABASE_URL names a pooler that lends a session for one transaction; leases are locks of a session",
            "two statements of one connection ran in different sessions",
            "give workers and coordinators the address of Postgres itself, or of a pooler in session mode;"
            " publishers may keep this one",
        )
    ]


def _clock_apart(db: psycopg.Connection) -> list[Finding]:
    """How far this machine's clock is from the database's: logs of the two cannot be compared beyond that."""
    row = db.execute("select value from jeet.thresholds where name = 'clock_s'").fetchone()
    assert row is not None
    offset_s, error_s = clock_offset(db)
    if abs(offset_s) - error_s <= row[0]:
        return []
    return [
        Finding(
            "clocks",
            f"this machine's clock is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} the database's",
            "one of the two machines does not follow a time server",
            f"measured to within {error_s:.3f} s; leases and expiry go by the database's clock alone,"
            " but times in logs cannot be compared",
            "on both machines, see: timedatectl status",
            figures={"offset_s": round(offset_s, 3), "error_s": round(error_s, 3)},
        )
    ]


def clock_offset(db: psycopg.Connection) -> tuple[float, float]:
    """This machine's clock less the database's, and by how much that may be off; in seconds."""
    best: tuple[float, float] | None = None
    for _ in range(_LOOKS):
        asked = time.monotonic()
        row = db.execute("select clock_timestamp()").fetchone()
        took_s = time.monotonic() - asked
        assert row is not None
        offset = datetime.now(UTC) - timedelta(seconds=took_s / 2) - row[0]
        if best is None or took_s / 2 < best[1]:
            best = offset.total_seconds(), took_s / 2
    assert best is not None
    return best
