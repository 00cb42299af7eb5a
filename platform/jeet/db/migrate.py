"""Brings a database to this version's schema.

Promise: any number of processes may migrate at once; one does the work, under one advisory lock, in one transaction.
A failure leaves the database as it was. Migrations are never edited after release; functions and views are applied anew
whenever their text changed, and functions of earlier versions are dropped. Processes and database must agree on
CONTRACT.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import psycopg

from jeet.db.keys import MIGRATION_LOCK
from jeet.db.sql import sql_root
from jeet.errors import JeetError, UsageError

OLDEST_POSTGRES = 160000
CONTRACT = 3
"""what processes and database rely on in one another; raised by each change of tables or functions (a signature, what a
row means) with which processes of the version before cannot work on"""


class SchemaMismatch(UsageError):
    """The database is not at this version's schema."""


@dataclass(frozen=True)
class Migrated:
    applied: tuple[str, ...]
    """names of the migrations that this call applied"""
    refreshed: bool
    """functions and views were applied anew"""
    warnings: tuple[str, ...] = ()
    """what could not be done with the rights of this user, with the remedy"""


def _files(folder: str) -> list[Path]:
    return sorted((sql_root() / folder).glob("*.sql"))


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _refreshable() -> list[Path]:
    # In this order: bodies of functions are not looked at before they run, but a view wants what it reads to be there.
    # So a rule may read all views, and rules whose names come before its own.
    return [*_files("functions"), *_files("views"), *_files("rules")]


def migrate(database_url: str) -> Migrated:
    """Apply what is missing; raise SchemaMismatch if the database is newer than this version of Jeet."""
    warnings: list[str] = []
    with psycopg.connect(database_url, autocommit=True) as db:
        db.add_notice_handler(lambda notice: _keep_warning(notice, warnings))
        if db.info.server_version < OLDEST_POSTGRES:
            raise UsageError(f"Postgres {db.info.server_version // 10000} is too old for Jeet; use 16, 17 or 18")
        with db.transaction():
            db.execute("select pg_advisory_xact_lock(%s, %s)", MIGRATION_LOCK)
            db.execute((sql_root() / "bootstrap.sql").read_bytes())
            known = _known(db)
            if _contract(known) > CONTRACT:
                raise SchemaMismatch(_too_new(known))
            applied = _apply_migrations(db, known)
            refreshed = _refresh_functions(db, known)
            _set(db, "contract", str(CONTRACT))
            # Always: a role that was missing last time may exist now.
            for path in _files("grants"):
                _run(db, path)
    return Migrated(tuple(applied), refreshed, tuple(warnings))


def _keep_warning(notice: psycopg.errors.Diagnostic, warnings: list[str]) -> None:
    if notice.severity_nonlocalized == "WARNING" and notice.message_primary:
        warnings.append(notice.message_primary)


def _apply_migrations(db: psycopg.Connection, known: dict[str, str]) -> list[str]:
    files = _files("migrations")
    newer = sorted(name for name in known if name[0].isdigit() and name not in {path.stem for path in files})
    if newer:
        raise SchemaMismatch(
            f"the database has migration {newer[-1]}, which this version of Jeet does not know; upgrade Jeet"
        )
    applied = []
    for path in files:
        digest = _digest([path])
        if path.stem not in known:
            _run(db, path)
            db.execute("insert into jeet_internal.migration (name, digest) values (%s, %s)", (path.stem, digest))
            applied.append(path.stem)
        elif known[path.stem] != digest:
            raise SchemaMismatch(
                f"migration {path.stem} differs from the one this database was made with; reinstall Jeet"
            )
    return applied


def _refresh_functions(db: psycopg.Connection, known: dict[str, str]) -> bool:
    digest = _digest(_refreshable())
    if known.get("functions") == digest:
        return False
    # Functions may call one another in any order.
    db.execute("set local check_function_bodies = off")
    for path in _refreshable():
        _run(db, path)
    _run(db, sql_root() / "retire.sql")
    _set(db, "functions", digest)
    return True


def _set(db: psycopg.Connection, name: str, digest: str) -> None:
    db.execute(
        "insert into jeet_internal.migration (name, digest) values (%s, %s)"
        " on conflict (name) do update set digest = excluded.digest, applied_at = now()"
        " where migration.digest <> excluded.digest",
        (name, digest),
    )


def _known(db: psycopg.Connection) -> dict[str, str]:
    return {row[0]: row[1] for row in db.execute("select name, digest from jeet_internal.migration").fetchall()}


def _contract(known: dict[str, str]) -> int:
    return int(known.get("contract", "0"))


def _too_new(known: dict[str, str]) -> str:
    return (
        f"the database was migrated by a newer version of Jeet (contract {_contract(known)}, here {CONTRACT});"
        " upgrade Jeet here"
    )


def _run(db: psycopg.Connection, path: Path) -> None:
    try:
        db.execute(path.read_bytes())
    except psycopg.Error as error:
        raise JeetError(f"{path.parent.name}/{path.name} failed and nothing was changed: {error}") from error


def check_schema(db: psycopg.Connection) -> None:
    """Raise SchemaMismatch, with the remedy, unless the database is at this version's schema."""
    if db.execute("select to_regclass('jeet_internal.migration')").fetchone() == (None,):
        raise SchemaMismatch("this database has no Jeet schema yet; run: jeet migrate")
    known = _known(db)
    missing = [path.stem for path in _files("migrations") if path.stem not in known]
    if missing:
        raise SchemaMismatch(f"the database lacks migration {missing[0]}; run: jeet migrate")
    if _contract(known) > CONTRACT:
        raise SchemaMismatch(_too_new(known))
    if _contract(known) < CONTRACT:
        raise SchemaMismatch(
            "the database's functions are those of an older version of Jeet"
            f" (contract {_contract(known)}, here {CONTRACT}); run: jeet migrate"
        )
