"""Outputs compared with an oracle in SQL, row by row, once a function has nothing more to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

_SETTLED = (Path(__file__).parent / "settled.sql").read_bytes()


def settled(db: psycopg.Connection[Any], function: str, before_s: float) -> bool:
    """Whether every stage is through with all that happened before a time: seconds since the epoch, of event time."""
    row = db.execute(_SETTLED, {"function": function, "before_s": before_s}).fetchone()
    return row is not None and bool(row[0])


def expected(db: psycopg.Connection[Any], oracle: str) -> list[Any]:
    """The oracle's rows, in no order."""
    return [row[0] for row in db.execute(f"select to_jsonb(o) from ({oracle}) o".encode()).fetchall()]


def differences(
    db: psycopg.Connection[Any], oracle: str, sink: str, *, latest_of: str | None = None
) -> list[tuple[str, Any, int]]:
    """(missing or too many, the row, how often) of a stream's events, as a multiset; empty: they are the oracle's rows.

    `latest_of`: only the last event for each value of this field counts.
    """
    latest = "" if latest_of is None else f"distinct on (value ->> '{latest_of}')"
    order = "" if latest_of is None else f"order by value ->> '{latest_of}', \"offset\" desc"
    rows = db.execute(
        f"""
        with expected as materialized (select to_jsonb(o) as value from ({oracle}) o),
             got as materialized (
                select {latest} value::jsonb as value from jeet.stream_events where stream = '{sink}' {order})
        select what, value, count(*)
          from (select 'missing' as what, value from (table expected except all table got) m
                union all
                select 'too many', value from (table got except all table expected) t) d
         group by what, value order by what, value limit 20
        """.encode()
    ).fetchall()
    return [(what, value, count) for what, value, count in rows]
