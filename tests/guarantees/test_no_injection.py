"""A name is a name: whatever it looks like, nothing of it is executed, and no file but those given is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from house.deployed import deploy, put_state
from jeet.cli import main
from jeet.cli.output import visible
from jeet.db.sql import query

EVIL = {
    "quote": "'; create table pwned (); --",
    "quote in a string": "' || (select pg_sleep(9)) || '",
    "double quote": '"; drop table jeet_internal.task; --',
    "dollar quote": "$$; create table pwned (); $$",
    "closing bracket": "x); create table pwned (); --",
    "backslash": "\\'; create table pwned (); --",
    "comment": "x/*",
    "format": "%s %I %L %(name)s %n",
    "braces": "{0.__class__} {name}",
    "parameter": "$1",
    "above": "../../../../tmp/pwned",
    "root": "/etc/passwd",
    "home": "~root/x",
    "address": "file:///etc/passwd",
    "shell": "$(touch pwned) `touch pwned` ; touch pwned | touch pwned",
    "line break": "a\nb",
    "carriage return": "a\rb",
    "escape": "\x1b]0;pwned\x07\x1b[31m",
    "separator": "a\x1fb",
    "NUL": "a\0b",
    "delete": "\x7f",
    "half a pair": "\ud800",
    "look-alike": "tot\u0430ls",  # a Cyrillic a
    "right to left": "\u202egnp.x",
    "no width": "totals\u200b",
    "None": "None",
    "float": "1e5",
    "tuple": "a,b",
    "flag": "--help",
    "dash": "-",
    "empty": "",
    "blank": " ",
    "like": "%",
    "glob": "*",
    "dot": ".",
    "proto": "__proto__",
    "64 bytes": "n" * 64,
    "long": "é" * 5000,
}

FUNCTION = "export const config = { source: 'events', sink: 'sums', key: 'userId' };\nstream.map(e => e);\n"

# N is the name, FILE a file of events, CODE a function. Arguments come after `--`, so that none is taken for a flag.
COMMANDS = [
    *(["show", "--", "N"], ["versions", "--", "N"], ["rollback", "--", "N"], ["rollback", "--", "totals", "N"]),
    *(["pause", "--", "N"], ["resume", "--", "N"], ["delete", "--", "N"], ["lag", "--", "N"], ["logs", "--", "N"]),
    *(["tail", "--", "N"], ["tail", "--start=N", "events"], ["state", "--", "N"], ["state", "--", "totals", "N"]),
    *(
        ["state", "--", "totals", "totals", "N"],
        ["publish", "--", "N", "FILE"],
        ["publish", "--key=N", "events", "FILE"],
    ),
    *(["publish", "--", "events", "N"], ["create_stream", "--key=N", "new"], ["create_stream", "--", "N"]),
    *(["dlq", "list", "--", "N"], ["dlq", "show", "--", "N"], ["dlq", "redrive", "--", "N"]),
    *(["dlq", "drop", "--", "N"], ["deploy", "--", "N"], ["probe", "--", "N"], ["N"], ["show", "--N", "totals"]),
]
DEPLOYS = [["--name=N"], ["--source=N"], ["--sink=N"], ["--key=N"], ["--start=N"], ["--on_error=N"]]


@pytest.fixture
def canary(
    database_url: str, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """A function, its state and an empty folder to work in; reads what must not change by a name."""
    deploy(db)
    put_state(db, "u1", "5")
    monkeypatch.setenv("JEET_DATABASE_URL", database_url)
    monkeypatch.setenv("JEET_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "events.ndjson").write_text('{"userId": "u1"}\n')
    (tmp_path / "here" / "code.js").write_text(FUNCTION)

    def read() -> Any:
        return (
            db.execute(
                "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                " where c.relkind in ('r', 'v', 'p') and not c.relispartition and n.nspname !~ '^pg_' order by 1, 2"
            ).fetchall(),
            db.execute("select rolname from pg_roles order by 1").fetchall(),
            db.execute("select name, status, version from jeet_internal.function order by 1").fetchall(),
            db.execute("select function, key, value from jeet.state").fetchall(),
            sorted(os.listdir(tmp_path / "here")),
            sorted(name for name in os.listdir("/tmp") if "pwned" in name),
        )

    return read


def filled(words: list[str], name: str) -> list[str]:
    given = {"N": name, "FILE": "events.ndjson", "CODE": "code.js"}
    return [given.get(word, word[:-1] + name if word.endswith("=N") or word == "--N" else word) for word in words]


def one_line(text: str) -> bool:
    """One line, with nothing in it that could command a terminal."""
    return text == "" or (text.endswith("\n") and visible(text[:-1]) == text[:-1])


@pytest.mark.parametrize("name", EVIL)
def test_no_command_does_more_with_a_name_than_name_something(
    canary: Callable[[], Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each name at some of the commands; all names at all of them in `make torture`."""
    _try(canary, EVIL[name], COMMANDS[list(EVIL).index(name) % 4 :: 4], capsys)


@pytest.mark.torture
@pytest.mark.parametrize("name", EVIL)
def test_no_command_at_all_does_more_with_a_name(
    canary: Callable[[], Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _try(canary, EVIL[name], COMMANDS, capsys)


def _try(canary: Callable[[], Any], name: str, commands: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    before = canary()
    for words in commands:
        argv = filled(words, name)
        code = main.run(argv)
        told = capsys.readouterr()
        assert code in (0, 1), argv
        assert "Traceback" not in told.err, argv
        if code == 1 and words[0] == "publish":  # of a file that is none: a line for each line that is no event
            assert all(one_line(line) for line in told.err.splitlines(keepends=True)), (argv, told.err)
        elif code == 1:
            assert told.err.startswith("jeet: "), argv
            assert one_line(told.err), (argv, told.err)
        assert "\x1b" not in told.out + told.err, argv
        assert canary() == before, argv


@pytest.mark.parametrize("name", ["quote", "above", "line break", "NUL", "half a pair", "escape", "long"])
def test_nothing_is_deployed_under_a_name_that_is_none(
    canary: Callable[[], Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = canary()
    for flags in DEPLOYS:
        argv = ["deploy", "code.js", *filled(flags, EVIL[name])]
        assert main.run(argv) == 1, argv
        told = capsys.readouterr().err
        assert one_line(told), (argv, told)
        assert canary() == before, argv


def _calls(db: psycopg.Connection) -> list[tuple[str, list[str]]]:
    """Every function of ours that takes a text, with the types of its arguments."""
    return db.execute(
        "select p.oid::regproc::text,"
        " array(select t::regtype::text from unnest(p.proargtypes) with ordinality a(t, n) order by n)"
        " from pg_proc p where p.pronamespace in ('jeet'::regnamespace, 'jeet_internal'::regnamespace)"
        " and p.proargtypes::oid[] && array['text'::regtype, 'text[]'::regtype]::oid[] order by 1, 2"
    ).fetchall()


def test_no_function_executes_a_text_that_it_is_given(canary: Callable[[], Any], db: psycopg.Connection) -> None:
    calls = _calls(db)
    assert len(calls) > 15
    before = canary()
    for function, types in calls:
        for name in EVIL.values():
            values: list[Any] = []
            for kind in types:
                values.append(
                    name if kind == "text" else [name] if kind == "text[]" else 1 if kind == "integer" else None
                )
            places = [sql.SQL("%s::" + kind) for kind in types]  # type: ignore[arg-type]
            text = sql.SQL("select * from {}({})").format(sql.SQL(function), sql.SQL(", ").join(places))  # type: ignore[arg-type]
            try:
                db.execute(text, values)
            except (psycopg.Error, UnicodeEncodeError):
                continue  # refused
        assert canary() == before, function


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_any_text_is_a_name_or_is_refused(canary: Callable[[], Any], db: psycopg.Connection, name: str) -> None:
    before = canary()
    row: tuple[Any, ...] | None = None
    try:
        row = db.execute("select jeet_internal.create_stream(%s, 1)", (name,)).fetchone()
    except (psycopg.Error, UnicodeEncodeError):
        pass
    else:
        assert row is not None
        assert db.execute("select name from jeet_internal.stream where id = %s", row).fetchone() == (name,)
    assert canary() == before


def test_statements_are_files_and_take_no_text_but_parameters() -> None:
    """No query of ours has a place that Python fills in with text."""
    root = Path(main.__file__).parents[1]
    built = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text().splitlines()
        if any(f'{call}(f"' in line or f"{call}(f'" in line for call in ("execute", "fetch", "fetchval", "fetchrow"))
    ]
    assert built == []
    assert query("heartbeat")
