"""Each role can do its work and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from house.deployed import deploy, put_state
from jeet.db.migrate import migrate

VIEWS = [
    *("checkpoints", "coordinators", "dead_letters", "diagnosis", "functions", "lag", "leases", "logs", "state"),
    *("stream_events", "streams", "workers"),
]
REFUSED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState)
"""no right, or a view that cannot be written through at all"""
As = Callable[[str], psycopg.Connection]


@pytest.fixture
def acting(database_url: str, db: psycopg.Connection) -> As:
    """Connects as a role, to a database with one function deployed."""
    deploy(db)
    put_state(db, "u1", "5")

    def as_role(role: str) -> psycopg.Connection:
        connection = psycopg.connect(database_url, autocommit=True)
        connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(role)))
        return connection

    return as_role


def test_a_reader_reads_every_view(acting: As) -> None:
    with acting("jeet_reader") as reader:
        for view in VIEWS:
            reader.execute(sql.SQL("table jeet.{}").format(sql.Identifier(view)))
        assert reader.execute("select value from jeet.state where key = 'u1'").fetchone() == (5,)
        assert len(reader.execute("table jeet.lag").fetchall()) == 4


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("statement", ["delete from jeet.{}", "insert into jeet.{} default values"])
def test_a_reader_cannot_write_through_a_view(acting: As, view: str, statement: str) -> None:
    with acting("jeet_reader") as reader, pytest.raises(REFUSED):
        reader.execute(sql.SQL(statement).format(sql.Identifier(view)))


DENIED_TO_READERS = [
    "select jeet.publish('events', '{\"userId\": 1}'::json)",
    "select * from jeet.publish_many('events', array['{\"userId\": 1}'::json])",
    "table jeet_internal.state",
    "select jeet_internal.published_at(1, 0, 0)",
    "update jeet_internal.task set epoch = 9",
    "create table jeet.mine (x int)",
    "create view jeet.mine as select 1",
    "select jeet_internal.create_stream('x', 1)",
]


@pytest.mark.parametrize("statement", DENIED_TO_READERS)
def test_a_reader_can_do_nothing_else(acting: As, statement: str) -> None:
    with acting("jeet_reader") as reader, pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute(statement.encode())


def test_a_producer_publishes(acting: As, db: psycopg.Connection) -> None:
    with acting("jeet_producer") as producer:
        producer.execute("select jeet.publish('events', '{\"userId\": \"a\"}')")
        producer.execute("select * from jeet.publish_many('events', array['{\"userId\": \"a\"}'::json])")
    assert db.execute("select count(*) from jeet.stream_events where stream = 'events'").fetchone() == (2,)


@pytest.mark.parametrize(
    "statement",
    ["table jeet.state", "table jeet.stream_events", "table jeet_internal.event", "delete from jeet_internal.event"],
)
def test_a_producer_can_do_nothing_else(acting: As, statement: str) -> None:
    with acting("jeet_producer") as producer, pytest.raises(psycopg.errors.InsufficientPrivilege):
        producer.execute(statement.encode())


def test_every_function_of_ours_is_closed_to_the_public(db: psycopg.Connection) -> None:
    open_to_all = db.execute(
        """
        select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace in ('jeet'::regnamespace, 'jeet_internal'::regnamespace)
           and has_function_privilege('public', p.oid, 'execute')
        """
    ).fetchall()
    assert open_to_all == []


def test_functions_that_act_for_their_owner_look_into_the_callers_temporary_schema_last(
    db: psycopg.Connection,
) -> None:
    loose = db.execute(
        """
        select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace in ('jeet'::regnamespace, 'jeet_internal'::regnamespace) and p.prosecdef
           and not exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog(, .*)?, pg_temp$')
        """
    ).fetchall()
    assert loose == []


DISGUISES = {
    "a view": "create temp view pg_stat_activity as"
    " select a.* from pg_catalog.pg_stat_activity a where pg_temp.taken(null)",
    "a domain": "create domain pg_temp.timestamptz as pg_catalog.timestamptz check (pg_temp.taken(value))",
}


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES)
def test_nothing_that_a_reader_disguises_as_the_systems_own_runs_with_the_owners_rights(
    acting: As, db: psycopg.Connection, disguise: str
) -> None:
    db.execute("select jeet.publish('events', '{\"userId\": \"a\"}')")
    with acting("jeet_reader") as reader:
        reader.execute(
            "create function pg_temp.taken(pg_catalog.timestamptz) returns boolean language plpgsql as"
            " $$ begin perform set_config('test.ran_as', current_user, false); return true; end $$"
        )
        reader.execute(disguise.encode())
        for view in VIEWS:
            reader.execute(sql.SQL("table jeet.{}").format(sql.Identifier(view)))
        assert reader.execute("select current_setting('test.ran_as', true)").fetchone() in [(None,), ("jeet_reader",)]


def test_migrating_without_the_right_to_create_roles_works_when_they_exist(
    empty_database_url: str, db: psycopg.Connection
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute("drop role if exists jeet_test_owner")
        admin.execute("create role jeet_test_owner login")
        admin.execute(sql.SQL("alter database {} owner to jeet_test_owner").format(sql.Identifier(name)))
        result = migrate(empty_database_url.replace("postgres:@", "jeet_test_owner:@"))
        assert result.applied
        assert result.warnings == ()
        admin.execute("set role jeet_reader")
        assert admin.execute("table jeet.functions").fetchall() == []
        admin.execute("reset role")
        admin.execute(sql.SQL("alter database {} owner to postgres").format(sql.Identifier(name)))
        admin.execute("reassign owned by jeet_test_owner to postgres")
        admin.execute("drop owned by jeet_test_owner")
        admin.execute("drop role jeet_test_owner")


def test_databases_of_one_cluster_may_be_migrated_at_once(empty_database_url: str, database_url: str) -> None:
    errors: list[BaseException] = []

    def run(url: str) -> None:
        try:
            migrate(url)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(url,)) for url in [empty_database_url, database_url] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
