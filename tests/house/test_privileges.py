"""Each role may do what privileges.txt says and nothing else; an object that is not in it belongs to nobody yet.

Letters: schema U use, C create; table and view r read, a insert, w change, d delete, D truncate, x refer to, t trigger;
sequence U use; function X execute. `owner` in the last column: it runs with its owner's rights.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

EXPECTED = Path(__file__).with_name("privileges.txt")
ROLES = ("jeet_reader", "jeet_producer", "jeet_worker", "public")

MATRIX = """
with schemas as (
    select n.oid, n.nspname from pg_namespace n where n.nspname in ('jeet', 'jeet_internal', 'jeet_pgqueuer')
), role as (
    select * from unnest(%(roles)s::text[]) with ordinality as r(name, place)
), object as (
    select 'schema ' || nspname as object, 's' as kind, oid, '' as runs_as from schemas
    union all
    select case when c.relkind = 'v' then 'view ' when c.relkind = 'S' then 'sequence ' else 'table ' end
           || s.nspname || '.' || c.relname, case c.relkind when 'S' then 'q' else 'r' end, c.oid, ''
      from pg_class c join schemas s on s.oid = c.relnamespace
     where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and not c.relispartition
    union all
    select 'function ' || s.nspname || '.' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', 'f',
           p.oid, case when p.prosecdef then 'owner' else '' end
      from pg_proc p join schemas s on s.oid = p.pronamespace
), may as (
    select o.object, o.runs_as, r.place, coalesce(nullif(
           case o.kind
           when 's' then case when has_schema_privilege(r.name, o.oid, 'usage') then 'U' else '' end
                      || case when has_schema_privilege(r.name, o.oid, 'create') then 'C' else '' end
           when 'q' then case when has_sequence_privilege(r.name, o.oid, 'usage') then 'U' else '' end
                      || case when has_sequence_privilege(r.name, o.oid, 'select') then 'r' else '' end
                      || case when has_sequence_privilege(r.name, o.oid, 'update') then 'w' else '' end
           when 'f' then case when has_function_privilege(r.name, o.oid, 'execute') then 'X' else '' end
           else (select coalesce(string_agg(p.letter, '' order by p.place), '')
                   from (values (1, 'r', 'select'), (2, 'a', 'insert'), (3, 'w', 'update'), (4, 'd', 'delete'),
                                (5, 'D', 'truncate'), (6, 'x', 'references'),
                                (7, 't', 'trigger')) p(place, letter, name)
                  where has_table_privilege(r.name, o.oid, p.name))
           end, ''), '-') as letters
      from object o cross join role r
)
select object, array_agg(letters order by place), runs_as from may group by object, runs_as
"""


def matrix(db: psycopg.Connection) -> list[str]:
    """One line an object: what each role may do with it."""
    rows = db.execute(MATRIX, {"roles": list(ROLES)}).fetchall()
    order = {"schema": 0, "view": 1, "table": 2, "sequence": 3, "function": 4}
    rows.sort(key=lambda row: (order[row[0].partition(" ")[0]], row[0]))
    return [f"{' '.join(f'{letters:<6}' for letters in row[1])} {row[2]:<6} {row[0]}" for row in rows]


def test_every_role_may_do_what_the_table_says_and_nothing_else(db: psycopg.Connection) -> None:
    lines = EXPECTED.read_text().splitlines()
    expected = {line for line in lines if line and not line.startswith("#")}
    actual = set(matrix(db))
    assert sorted(actual - expected) == [], "not decided: say in privileges.txt who may do what with these"
    assert sorted(expected - actual) == [], "privileges.txt says so, the database does not"


def test_the_roles_have_no_powers_of_their_own(db: psycopg.Connection) -> None:
    rows = db.execute(
        "select rolname from pg_roles where rolname = any (%s) and (rolsuper or rolcreaterole or rolcreatedb"
        " or rolcanlogin or rolreplication or rolbypassrls)",
        (list(ROLES),),
    ).fetchall()
    assert rows == []
    memberships = db.execute(
        "select r.rolname, m.roleid::regrole::text from pg_auth_members m join pg_roles r on r.oid = m.member"
        " where r.rolname = any (%s)",
        (list(ROLES),),
    ).fetchall()
    assert memberships == []


def test_segments_of_the_log_are_closed_to_all_roles(db: psycopg.Connection) -> None:
    """They are reached through their parent; a grant of their own would go round its checks."""
    db.execute("select jeet_internal.create_stream('s', 2)")
    rows = db.execute(
        "select c.oid::regclass::text, r from pg_class c, unnest(%s::text[]) r"
        " where c.relispartition and c.relkind = 'r'"
        " and has_table_privilege(r, c.oid, 'select, insert, update, delete, truncate')",
        (list(ROLES),),
    ).fetchall()
    assert rows == []


def test_what_runs_with_its_owners_rights_makes_no_statement_from_text_without_quoting(db: psycopg.Connection) -> None:
    rows = db.execute(
        "select p.oid::regprocedure::text, p.prosrc from pg_proc p where p.prosecdef and p.pronamespace in"
        " ('jeet'::regnamespace, 'jeet_internal'::regnamespace)"
    ).fetchall()
    assert rows
    loose = [name for name, body in rows if "execute" in body.lower().split() and "format(" not in body]
    assert loose == []
