"""What `jeet savepoint`, `savepoints`, `restore` and `reset` say, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from jeet.cli.main import run

JS = "export const config = { source: 'events', sink: 'out', partitions: 2 };\nstream.map(e => e);\n"
NO_WORKER = "no worker is running: its tasks start when one does (jeet worker)"

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for the compiled plugin that all share."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def said(
    database_url: str,
    db: psycopg.Connection,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Said:
    """Run a command on a function `f` that has read four events: its exit code, and what it printed where."""
    monkeypatch.setenv("JEET_DATABASE_URL", database_url)
    monkeypatch.setenv("JEET_HOME", str(home))
    path = tmp_path / "f.js"
    path.write_text(JS)
    assert run(["deploy", str(path)]) == 0
    db.execute("select count(*) from jeet.publish_many('events', array_fill('{}'::json, array[6]))")
    db.execute("update jeet_internal.checkpoint set next_offset = 2")
    capsys.readouterr()

    def command(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        captured = capsys.readouterr()
        return code, captured.out.strip(), captured.err.strip()

    return command


def test_a_savepoint_is_taken_listed_restored_and_dropped(said: Said, db: psycopg.Connection) -> None:
    assert said("savepoints", "f") == (0, "no savepoint of f yet: jeet savepoint f", "")
    assert said("savepoint", "f", "--note=before lunch") == (0, "savepoint 1 of f version 1: positions only", "")
    _, listed, _ = said("savepoints", "f")
    assert "before lunch" in listed
    assert "events 2,2" in listed
    (facts,) = json.loads(said("savepoints", "f", "--json")[1])
    assert facts["positions"] == {"events": [2, 2]}
    db.execute("update jeet_internal.checkpoint set next_offset = 3")
    assert said("restore", "f", "1") == (
        0,
        f"restored f to savepoint 1; 2 events to process from there; {NO_WORKER}",
        "note: 2 events are processed again: what f made of them stays in out, and comes there once more",
    )
    code, out, err = said("restore", "f", "1", "--into=g")
    assert (code, err) == (0, "note: it writes to streams of its own: g.out for out")
    assert out == f"made g version 1 from savepoint 1 of f; 2 events to process from there; {NO_WORKER}"
    assert said("savepoints", "f", "--drop=1") == (0, "dropped savepoint 1 of f", "")


def test_a_reset_says_what_will_happen_again(said: Said) -> None:
    assert said("reset", "f", "--to=earliest") == (
        0,
        f"reset f to earliest; 0 state entries gone; {NO_WORKER}",
        "note: 4 events are processed again: what f made of them stays in out, and comes there once more",
    )
    assert (
        said("reset", "f", "--to=latest")[1]
        == f"reset f to latest; 6 events passed by; 0 state entries gone; {NO_WORKER}"
    )
    assert json.loads(said("reset", "f", "--to=1h", "--json")[1])["events_again"] == 6
    assert json.loads(said("reset", "f", "--to=1", "--keep_state", "--json")[1])["events_skipped"] == 2


def test_a_rebuild_says_how_far_it_is(said: Said, db: psycopg.Connection) -> None:
    assert said("rebuild", "f", "--progress") == (0, "f is not being rebuilt", "")
    assert said("rebuild", "f") == (0, "rebuilding f from 4 events", "")
    assert said("rebuild", "f")[1] == "f is being rebuilt: settle, 0 events to go"
    assert db.execute("select jeet_internal.advance_rebuilds()").fetchone() == (1,)
    assert said("rebuild", "f", "--progress")[1] == "f is being rebuilt: replay, 4 events to go"
    assert "running, being rebuilt (replay)" in said("show", "f")[1]
    assert db.execute("select status, under_way from jeet.functions").fetchone() == ("running", "rebuilding")
    db.execute("update jeet_internal.checkpoint set next_offset = stop_at")
    assert said("rebuild", "f", "--progress", "--wait")[1] == "rebuilt f"
    assert said("savepoint", "f")[0] == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["savepoint", "ff"], 'no function "ff"; did you mean f?'),
        (["restore", "f", "7"], "f has no savepoint 7; jeet savepoints f lists them"),
        (["restore", "f", "1", "--sink=x"], "--sink is of the function that --into makes: give --into=OTHER, too"),
        (["savepoints", "f", "--drop=7"], "f has no savepoint 7; jeet savepoints f lists them"),
        (["reset", "f"], "jeet reset needs --to=TO: earliest, latest, an offset, a time, or how long ago: 10m, 2h, 7d"),
        (
            ["reset", "f", "--to=soon"],
            (
                '--to is "soon": use earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z,'
                " or how long ago: 10m, 2h, 7d"
            ),
        ),
        (
            ["reset", "f", "--to=999999"],
            (
                "offset 999999 is past the end of events, 3:"
                " nothing was changed; --to=latest passes by all that is there"
            ),
        ),
        (
            ["reset", "f", "--to=2999-01-01"],
            ("2999-01-01 00:00:00 UTC is in the future: nothing was changed; --to=latest passes by all that is there"),
        ),
    ],
)
def test_what_is_refused_is_told_in_a_line_with_the_remedy(said: Said, words: list[str], what: str) -> None:
    assert said(*words) == (1, "", f"jeet: {what}")
