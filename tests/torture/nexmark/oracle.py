"""What each Nexmark query must have put out, by the SQL beside this file, over the events as they are in the log.

The SQL shares nothing with Jeet but the log: qN.sql says what it computes and what makes it exact.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import psycopg
from bench.nexmark import Workload, lines
from tests.torture import rows

FOLDER = Path(__file__).parent
FUNCTIONS = FOLDER.parents[2] / "functions" / "nexmark"
QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q11", "q12", "q14")
STREAM = "nexmark"
DISORDER_MS = 4_000
"""less than the windows' delay"""
QUIET_MS = 86_400_000
"""from the last event to those that close the windows"""


def closing(last_ms: int) -> list[dict[str, Any]]:
    """A person, three auctions and a bid, all of one time long after the last event: they close the windows before."""
    made = lines(Workload(5, seed=0, first=50 * 1_000_000))
    return [{**json.loads(line), "dateTime": last_ms + QUIET_MS} for line in made]


def publish_closing(db: psycopg.Connection[Any], last_ms: int, partitions: int) -> None:
    """The closing events into each partition. Their time of publishing is some hours ahead, for what goes by that."""
    made = closing(last_ms)
    ahead = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=3)
    for partition in range(partitions):
        key = next(str(n) for n in itertools.count() if crc32(str(n).encode()) % partitions == partition)
        for event in made:
            db.execute("select jeet.publish(%s, %s::text, %s, null, %s)", (STREAM, json.dumps(event), key, ahead))


def load(db: psycopg.Connection[Any]) -> None:
    """Make the tables that the oracles read, of all that was published, for this connection."""
    db.execute((FOLDER / "events.sql").read_bytes())


def expected(db: psycopg.Connection[Any], query: str) -> list[Any]:
    """The oracle's rows, in no order."""
    return rows.expected(db, _sql(query))


def differences(db: psycopg.Connection[Any], query: str) -> list[tuple[str, Any, int]]:
    """Of the query's outputs from the oracle's rows; of q4 only what it said last of each category counts."""
    return rows.differences(db, _sql(query), f"nexmark_{query}", latest_of="category" if query == "q4" else None)


def _sql(query: str) -> str:
    return (FOLDER / f"{query}.sql").read_text()
