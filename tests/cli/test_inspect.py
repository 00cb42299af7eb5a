"""Commands that look: the facts of the views, as text and as JSON, whatever was stored."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from house.deployed import deploy, put_state
from jeet.cli import main
from jeet.cli.output import Done, Output, Record, Table, visible
from jeet.cli.when import since

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def deployed(database_url: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> psycopg.Connection:
    monkeypatch.setenv("JEET_DATABASE_URL", database_url)
    deploy(db)
    return db


def jeet(captured: Captured, *argv: str) -> tuple[int, str, str]:
    code = main.run(argv)
    out, error = captured.readouterr()
    return code, out, error


def facts(captured: Captured, *argv: str) -> Any:
    code, out, error = jeet(captured, *argv, "--json")
    assert code == 0, error
    return json.loads(out)


def log(db: psycopg.Connection, message: str, level: str = "info") -> None:
    db.execute(
        "insert into jeet_internal.log (function_id, version, partition, level, message) select id, 1, 0, %s, %s"
        " from jeet_internal.function where name = 'totals'",
        (level, message),
    )


def test_state_is_listed_by_collection_by_key_and_for_one_key(deployed: psycopg.Connection, capsys: Captured) -> None:
    for key in ["b", "a", "__proto__", "None", "1e5", "-x", ""]:
        put_state(deployed, key, json.dumps({"of": key}))
    assert facts(capsys, "state", "totals")[0]["keys"] == 7
    listed = [row["key"] for row in facts(capsys, "state", "totals", "totals")]
    assert listed == sorted(["b", "a", "__proto__", "None", "1e5", "-x", ""])
    for key in ["None", "1e5", "__proto__", ""]:
        assert [row["value"] for row in facts(capsys, "state", "totals", "totals", key)] == [{"of": key}]
    code, _, error = jeet(capsys, "state", "totals", "totals", "missing")
    assert code == 1
    assert 'no state totals["missing"]' in error
    code, _, error = jeet(capsys, "state", "totals", "missing")
    assert (code, error) == (1, 'jeet: totals has no collection "missing"; those it has: jeet state totals\n')
    deployed.execute("truncate jeet_internal.state")
    assert jeet(capsys, "state", "totals", "totals")[:2] == (0, "totals has no state in totals\n")


def test_a_key_that_looks_like_a_flag_is_found(deployed: psycopg.Connection, capsys: Captured) -> None:
    put_state(deployed, "--json", "1")
    code, out, _ = jeet(capsys, "state", "totals", "totals", "--json", "--", "--json")
    assert (code, [row["key"] for row in json.loads(out)]) == (0, ["--json"])


def test_a_function_that_does_not_exist_is_named_with_the_nearest(
    deployed: psycopg.Connection, capsys: Captured
) -> None:
    for command in ("state", "lag", "logs"):
        code, _, error = jeet(capsys, command, "total")
        assert (code, error) == (1, 'jeet: no function "total"; did you mean totals?\n')


def test_lag_has_a_row_for_each_task(deployed: psycopg.Connection, capsys: Captured) -> None:
    rows = facts(capsys, "lag", "totals")
    assert [row["partition"] for row in rows] == [0, 1, 2, 3]
    assert set(rows[0]) >= {"function", "stage", "stream", "head", "next_offset", "lag", "oldest_age", "worker"}


def test_status_shows_functions_and_what_is_wrong(deployed: psycopg.Connection, capsys: Captured) -> None:
    shown = facts(capsys, "status")
    assert shown["functions"][0]["function"] == "totals"
    assert any("no worker is running" in problem["observation"] for problem in shown["problems"])
    assert jeet(capsys, "status")[0] == 0


def test_logs_are_shown_oldest_first_from_a_level_up(deployed: psycopg.Connection, capsys: Captured) -> None:
    for number, level in enumerate(["debug", "info", "warning", "error"]):
        log(deployed, f"m{number}", level)
    _, out, _ = jeet(capsys, "logs", "totals", "--level=warning", "--json")
    assert [json.loads(line)["message"] for line in out.splitlines()] == ["m2", "m3"]
    assert jeet(capsys, "logs", "totals", "--level=warn", "--json")[1] == out
    _, out, _ = jeet(capsys, "logs", "totals", "--limit=2", "--json")
    assert [json.loads(line)["message"] for line in out.splitlines()] == ["m2", "m3"]
    assert jeet(capsys, "logs", "totals", "--since=1ms")[1] == ""


def test_following_logs_shows_each_line_once_even_when_they_commit_out_of_order(
    deployed: psycopg.Connection, database_url: str
) -> None:
    log(deployed, "first")
    follower = subprocess.Popen(
        [sys.executable, "-m", "jeet.cli", "logs", "totals", "--follow", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    seen: list[str] = []
    reader = threading.Thread(
        target=lambda: seen.extend(json.loads(line)["message"] for line in follower.stdout or []), daemon=True
    )
    reader.start()
    try:
        with psycopg.connect(database_url) as late:
            log(late, "late")
            log(deployed, "early")
            wait_for(seen, ["first", "early"])
        wait_for(seen, ["first", "early", "late"])
        log(deployed, "last")
        wait_for(seen, ["first", "early", "late", "last"])
    finally:
        follower.terminate()
        follower.wait(10)


def wait_for(seen: list[str], wanted: list[str]) -> None:
    deadline = time.monotonic() + 20
    while seen != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)


def test_stored_text_cannot_command_the_terminal(deployed: psycopg.Connection, capsys: Captured) -> None:
    put_state(deployed, "\x1b[31mred\nline", '"\\u001b[2J"')
    log(deployed, "\x1b]0;title\x07\nsecond line")
    for words in (["state", "totals", "totals"], ["logs", "totals"]):
        _, out, _ = jeet(capsys, *words)
        assert "\x1b" not in out
        assert "\x07" not in out
    assert len(jeet(capsys, "logs", "totals")[1].splitlines()) == 1


def test_a_reader_may_use_the_commands_that_look(
    deployed: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    deployed.execute("drop role if exists jeet_test_looker")
    deployed.execute("create role jeet_test_looker login in role jeet_reader")
    try:
        monkeypatch.setenv("JEET_DATABASE_URL", psycopg.conninfo.make_conninfo(database_url, user="jeet_test_looker"))
        for words in (["status"], ["top"], ["workers"], ["lag"], ["state", "totals"], ["logs", "totals"]):
            code, _, error = jeet(capsys, *words)
            assert code == 0, error
        code, out, error = jeet(capsys, "doctor")
        assert (code, error) == (1, "")
        assert "no worker is running" in out
    finally:
        deployed.execute("drop role jeet_test_looker")


def test_a_database_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("JEET_DATABASE_URL", "postgresql://me:s3cret@/nowhere?host=/nonexistent")
    code, _, error = jeet(capsys, "status")
    assert code == 1
    assert error.count("\n") == 1
    assert "s3cret" not in error


def test_without_any_database_the_way_to_start_one_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    monkeypatch.delenv("JEET_DATABASE_URL", raising=False)
    monkeypatch.setenv("JEET_HOME", str(tmp_path / "empty"))
    code, _, error = jeet(capsys, "status")
    assert code == 1
    assert "jeet up" in error


def test_a_database_without_the_schema_names_the_command_that_makes_it(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("JEET_DATABASE_URL", empty_database_url)
    assert "jeet migrate" in jeet(capsys, "status")[2]
    assert jeet(capsys, "migrate")[0] == 0
    assert jeet(capsys, "status")[0] == 0
    assert facts(capsys, "migrate") == {"applied": [], "refreshed": False}


@given(st.text())
def test_what_is_shown_holds_no_control_character(text: str) -> None:
    shown = visible(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)


@given(
    st.lists(
        st.tuples(st.text(), st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text())), max_size=4
    )
)
def test_a_table_is_one_line_a_row_when_it_is_piped(rows: list[tuple[Any, ...]]) -> None:
    kept = sys.stdout
    sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        Output().show(Table(["name", "value"], rows))
        sys.stdout.flush()
        lines = sys.stdout.buffer.getvalue().decode().split("\n")  # type: ignore[attr-defined]
    finally:
        sys.stdout = kept
    assert len(lines) == (len(rows) + 2 if rows else 2)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_table_fits_the_terminal_and_cuts_no_word(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(Output, "is_terminal", True)
    columns = ["name", "offset", "status", "tasks", "running", "dead_letters", "deployed_at", "reason"]
    row: list[object] = ["totals", 123456789012, "running", 8, 8, 12345, "2026-12-01 01:33:31.362+00:00", "it " * 30]
    Output().show(Table(columns, [row, row]))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    text = " ".join(" ".join(lines).split())
    for word in [*columns, "123456789012", "01:33:31.362+00:00"]:
        assert word in text
    if width > 80:
        assert max(map(len, lines)) <= width
    else:
        assert lines[0].split() == ["name:", "totals"]


def test_text_and_json_say_the_same(capsys: Captured) -> None:
    Output(json=True).show(Record({"a": 1, "t": Table(["x"], [[1], [None]])}))
    assert json.loads(capsys.readouterr().out) == {"a": 1, "t": [{"x": 1}, {"x": None}]}
    Output().show(Done("did it", {"n": 3}))
    assert capsys.readouterr().out == "did it\n"


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10x", "-5m", "99999999999d", "2026-13-01"])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    from datetime import UTC, datetime

    from jeet.errors import UsageError

    with pytest.raises(UsageError):
        since(text, datetime.now(UTC))


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m jeet.cli --help | head -1", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Jeet runs")
