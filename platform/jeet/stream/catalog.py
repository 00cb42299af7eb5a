"""Makes streams; names and settings are checked by the database, whoever asks."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psycopg

from jeet.db.sql import query
from jeet.errors import UsageError
from jeet.ids import StreamId

REFUSED = ("JT130", "JT131")
"""SQLSTATEs: a setting that no stream can have; settings other than those of the stream that exists"""


@dataclass(frozen=True)
class Created:
    """The stream; `created` is false if it was there before."""

    id: StreamId
    created: bool


def create_stream(
    db: psycopg.Connection,
    name: str,
    *,
    partitions: int,
    key: str | None = None,
    retention_s: float | None = None,
    max_lag: int | None = None,
    max_bytes: int | None = None,
) -> Created:
    """Make a stream, or find the one of that name if it has these settings; UsageError if not."""
    values = {
        "name": name,
        "partitions": partitions,
        "key": key,
        "retention_s": retention_s,
        "max_lag": max_lag,
        "max_bytes": max_bytes,
    }
    try:
        row = db.execute(query("create_stream"), values).fetchone()
    except psycopg.errors.NumericValueOutOfRange as error:
        raise UsageError(
            f"stream {json.dumps(name, ensure_ascii=False)}: a number is too large: {error.diag.message_primary}"
        ) from error
    except psycopg.Error as error:
        if error.sqlstate in REFUSED:
            raise UsageError(str(error.diag.message_primary)) from error
        raise
    assert row is not None
    return Created(StreamId(row[1]), row[0])
