"""Everything at a glance, as the views tell it: what `jeet top` and `jeet status` show, and the same as facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from jeet.db.sql import query
from jeet.observe.doctor import Finding, examine

HISTORY_MINUTES = 60
_MOST_PARTITIONS = 50

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Overview:
    """One moment."""

    at: datetime
    """of the database's clock"""
    leader: Row | None
    workers: Sequence[Row]
    functions: Sequence[Row]
    partitions: Sequence[Row]
    """tasks that are behind, furthest first"""
    history: Mapping[str, Sequence[int]]
    """events of each function by minute, oldest first"""
    findings: Sequence[Finding]

    @property
    def is_led(self) -> bool:
        """Whether a coordinator leads, as far as the doctor is concerned."""
        return all(finding.rule != "no_coordinator" for finding in self.findings) and self.leader is not None

    @property
    def waiting(self) -> int:
        """Events that wait, over all functions."""
        return sum(row["lag"] for row in self.functions)


def overview(db: psycopg.Connection, database_url: str, findings: Sequence[Finding] | None = None) -> Overview:
    """How all is going; `findings`: what the doctor said a moment ago, if it need not be asked again."""

    def rows(name: str, **values: object) -> list[dict[str, Any]]:
        with db.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query(name).encode(), values).fetchall()

    leaders = rows("cli_coordinators")
    return Overview(
        at=rows("clock")[0]["clock_timestamp"],
        leader=leaders[0] if leaders else None,
        workers=rows("overview_workers"),
        functions=rows("overview_functions"),
        partitions=rows("overview_partitions", limit=_MOST_PARTITIONS),
        history={row["function"]: row["events"] for row in rows("overview_history", minutes=HISTORY_MINUTES)},
        findings=examine(db, database_url) if findings is None else findings,
    )
