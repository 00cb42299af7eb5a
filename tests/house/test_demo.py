"""The demo's check finds what it has to find, and its data is the pinned file or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from house.deployed import deploy
from jeet import demo_data
from jeet.db.sql import query
from jeet.errors import UsageError

FLIGHTS = [("N1", 100, 500), ("N2", None, 300), ("N1", 50, 200), ("unknown", 10, 20), ("N1", None, 7)]


def append(db: psycopg.Connection, stream: str, events: list[dict[str, Any]]) -> None:
    for event in events:
        db.execute("select jeet.publish(%s, %s::json, %s)", (stream, json.dumps(event), event["tailnum"]))


@pytest.fixture
def flown(db: psycopg.Connection) -> psycopg.Connection:
    """What the demo leaves after a few flights: log, state and outputs that agree."""
    deploy(db, "flights", "flights", "aircraft_totals", 1)
    db.execute("update jeet_internal.stream set key = null")
    db.execute("update jeet_internal.collection set name = 'aircraft'")
    totals: dict[str, dict[str, Any]] = {}
    outputs = []
    for tailnum, air_time, distance in FLIGHTS:
        total = totals.setdefault(tailnum, {"flights": 0, "air_time": 0, "distance": 0})
        total["flights"] += 1
        total["air_time"] += air_time or 0
        total["distance"] += distance
        outputs.append({"tailnum": tailnum, **total})
    append(db, "flights", [{"tailnum": t, "air_time": a, "distance": d} for t, a, d in FLIGHTS])
    append(db, "aircraft_totals", outputs)
    for tailnum, total in totals.items():
        db.execute(
            "insert into jeet_internal.state (task_id, collection_id, key, value)"
            " select id, 0, %s, %s::json from jeet_internal.task",
            (tailnum, json.dumps(total)),
        )
    return db


def differing(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute(query("demo_compare").encode()).fetchall()]


def disorder(db: psycopg.Connection) -> int:
    return int((db.execute(query("demo_prefix").encode()).fetchone() or (0,))[0])


def test_the_check_finds_nothing_where_all_agree(flown: psycopg.Connection) -> None:
    assert (differing(flown), disorder(flown)) == ([], 0)


def test_the_check_finds_a_total_that_is_off_by_one_digit(flown: psycopg.Connection) -> None:
    flown.execute(
        "update jeet_internal.state set value = jsonb_set(value::jsonb, '{distance}', '301')::json where key = 'N2'"
    )
    assert differing(flown) == ["N2"]


def test_the_check_finds_an_aircraft_that_is_missing(flown: psycopg.Connection) -> None:
    flown.execute("delete from jeet_internal.state where key = 'unknown'")
    assert differing(flown) == ["unknown"]


def test_the_check_finds_a_doubled_output(flown: psycopg.Connection) -> None:
    append(flown, "aircraft_totals", [{"tailnum": "N1", "flights": 3, "air_time": 150, "distance": 707}])
    assert differing(flown) == []
    assert disorder(flown) == 1


def test_without_network_or_cache_the_demo_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(UsageError, match="put it into"):
        demo_data.fetch(tmp_path / "cache")


def test_a_file_that_is_not_the_pinned_one_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / demo_data.SDIST).write_bytes(b"something else")
    with pytest.raises(UsageError):
        demo_data.fetch(tmp_path)
