"""Finds the `.sql` files, in a checkout or in an installed package, and hands out statements by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jeet.errors import JeetError


@cache
def sql_root() -> Path:
    """The folder that holds schema.sql, migrations/, functions/, views/ and queries/."""
    package = Path(__file__).resolve().parent.parent
    for root in (package / "_sql", package.parent.parent / "sql"):
        if (root / "migrations").is_dir():
            return root
    raise JeetError("the SQL files of jeet are missing from this installation; install the package again")


@cache
def query(name: str) -> str:
    """The text of sql/queries/<name>.sql: one statement, with $1 … (asyncpg) or %(name)s (psycopg) parameters."""
    return (sql_root() / "queries" / f"{name}.sql").read_text(encoding="utf-8")
