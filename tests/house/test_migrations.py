"""Migrations arrive at sql/schema.sql, are repeatable, and may run in any number at once."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from jeet.db import migrate as migrating
from jeet.db.migrate import SchemaMismatch, check_schema, migrate
from jeet.db.sql import sql_root
from jeet.embedded_install import installed


def tables(url: str) -> str:
    """Everything that schema jeet_internal holds but functions and views, as pg_dump tells it."""
    dump = subprocess.run(
        [
            str(installed() / "bin" / "pg_dump"),
            "--schema-only",
            "--no-owner",
            "--no-privileges",
            "-n",
            "jeet_internal",
            url,
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PGTZ": "UTC"},
    ).stdout
    _, *blocks = re.split(r"^--\n-- Name: ", dump, flags=re.MULTILINE)
    noise = re.compile(r"^(--|SET .*|.(un)?restrict .*)$", flags=re.MULTILINE)
    kept = [re.sub(r"\n\n+", "\n", noise.sub("", block)).strip() for block in blocks]
    return "\n\n".join(sorted(block for block in kept if not re.search("; Type: (FUNCTION|VIEW);", block)))


def test_the_schema_page_is_what_migrations_arrive_at(database_url: str, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as db:
        db.execute((sql_root() / "schema.sql").read_bytes())
    assert tables(empty_database_url) == tables(database_url)


def test_migrating_again_changes_nothing(database_url: str) -> None:
    before = tables(database_url)
    result = migrate(database_url)
    assert (result.applied, result.refreshed) == ((), False)
    assert tables(database_url) == before


def test_any_number_may_migrate_at_once_and_one_does_the_work(empty_database_url: str) -> None:
    results: list[migrating.Migrated] = []
    threads = [threading.Thread(target=lambda: results.append(migrate(empty_database_url))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert sum(bool(result.applied) for result in results) == 1


def test_a_database_without_the_schema_is_refused_with_the_remedy(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as db, pytest.raises(SchemaMismatch, match="jeet migrate"):
        check_schema(db)


def test_a_database_newer_than_this_version_is_left_alone(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute("insert into jeet_internal.migration (name, digest) values ('9999_later', '')")
    with pytest.raises(SchemaMismatch, match="9999_later"):
        migrate(database_url)


def set_contract(url: str, change: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("update jeet_internal.migration set digest = digest::int + %s where name = 'contract'", (change,))


def test_processes_of_another_contract_than_the_databases_are_told_which_side_to_upgrade(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as db:
        check_schema(db)
        set_contract(database_url, +1)
        with pytest.raises(SchemaMismatch, match="upgrade Jeet"):
            check_schema(db)
        with pytest.raises(SchemaMismatch, match="upgrade Jeet"):
            migrate(database_url)
        set_contract(database_url, -2)
        with pytest.raises(SchemaMismatch, match="run: jeet migrate"):
            check_schema(db)
        migrate(database_url)
        check_schema(db)


def functions(db: psycopg.Connection) -> set[str]:
    rows = db.execute(
        "select p.oid::regprocedure::text from pg_proc p"
        " where p.pronamespace in ('jeet'::regnamespace, 'jeet_internal'::regnamespace)"
    ).fetchall()
    return {row[0] for row in rows}


def test_functions_of_an_earlier_version_go_with_the_rights_they_had_and_peoples_own_stay(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as db:
        before = functions(db)
        db.execute(
            """
            create function jeet.publish(stream text, event text, old int) returns int language sql as 'select 1';
            grant execute on function jeet.publish(text, text, int) to jeet_producer;
            create function jeet_internal.commit_tasks(old int) returns int language sql as 'select 1';
            create procedure jeet_internal.gone() language sql as 'select 1';
            create function jeet.mine() returns int language sql as 'select 1';
            update jeet_internal.migration set digest = 'of an earlier version' where name = 'functions'
            """
        )
        assert migrate(database_url).refreshed
        assert functions(db) == {*before, "jeet.mine()"}


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "9000_broken.sql"
    broken.write_text("create table jeet_internal.half (x int); select 1/0;")
    files = migrating._files
    monkeypatch.setattr(
        migrating, "_files", lambda folder: [*files(folder), broken] if folder == "migrations" else files(folder)
    )
    with pytest.raises(migrating.JeetError, match="nothing was changed"):
        migrate(empty_database_url)
    with psycopg.connect(empty_database_url) as db:
        assert db.execute("select to_regnamespace('jeet_internal')").fetchone() == (None,)


def test_the_hot_tables_keep_room_for_updates_in_place(db: psycopg.Connection) -> None:
    for table in ("head", "task", "checkpoint", "worker"):
        (options,) = db.execute(
            sql.SQL("select reloptions from pg_class where oid = {}::regclass").format(
                sql.Literal(f"jeet_internal.{table}")
            )
        ).fetchone() or ((),)
        fill = next(int(option.partition("=")[2]) for option in options if option.startswith("fillfactor"))
        assert fill <= 50
