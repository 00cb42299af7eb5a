"""Tells a direct connection from one through a pooler in transaction mode, which keeps neither locks nor LISTEN."""

from __future__ import annotations

import psycopg

from jeet.db.keys import CONTROL_CLASS

_PROBE = (CONTROL_CLASS, 3)


def is_direct(db: psycopg.Connection, other: psycopg.Connection) -> bool:
    """Whether `db` keeps its backend and its locks while `other` has a transaction open. Both must autocommit."""

    def backend(connection: psycopg.Connection) -> int:
        row = connection.execute("select pg_backend_pid()").fetchone()
        assert row is not None
        return int(row[0])

    def holds_probe() -> bool:
        row = db.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and granted"
            " and classid = %s::bigint::oid and objid = %s::bigint::oid",
            _PROBE,
        ).fetchone()
        return row is not None and row[0] > 0

    first = backend(db)
    db.execute("select pg_advisory_lock_shared(%s, %s)", _PROBE)
    with other.transaction():
        direct = backend(other) != first and backend(db) == first and holds_probe()
    if direct:
        db.execute("select pg_advisory_unlock_shared(%s, %s)", _PROBE)
    return direct
