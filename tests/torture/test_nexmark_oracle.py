"""What the proof by Nexmark stands on: the generator keeps its word, and oracles and queries agree with plain loops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench import nexmark
from bench.nexmark import Workload, lines

from jeet.sandbox.plugin import Plugin
from jeet.testing import LocalFunction
from logtools import MakeStream

from .nexmark import model, oracle
from .oracle import publish

EVENTS = 3_000
STARTS_MS = nexmark.START_MS + (19 * 3600 + 58 * 60) * 1000
"""in the third part of the day, before the fourth"""


def made(**settings: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(Workload(**settings))]


def test_a_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    command = [sys.executable, str(Path(nexmark.__file__)), "--events=500", "--rate=20", "--disorder=4000"]
    first, again, other = (
        subprocess.run([*command, f"--seed={seed}"], capture_output=True, check=True).stdout for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first.decode().splitlines() == list(lines(Workload(500, rate=20, disorder_ms=4000)))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    events = made(events=5_000)
    assert Counter(event["type"] for event in events) == {"person": 100, "auction": 300, "bid": 4600}
    for kind in ("person", "auction"):
        ids = [event["id"] for event in events if event["type"] == kind]
        assert ids == list(range(1000, 1000 + len(ids)))
    # A part of what is named is yet to come, so that joins have to wait for either side.
    opened = {event["id"]: event["dateTime"] for event in events if event["type"] == "auction"}
    bids = [event for event in events if event["type"] == "bid"]
    assert any(bid["dateTime"] < opened.get(bid["auction"], 0) for bid in bids)
    assert sum(bid["auction"] in opened for bid in bids) > 0.9 * len(bids)
    assert all(event["expires"] > event["dateTime"] for event in events if event["type"] == "auction")


def test_event_time_advances_at_the_rate_and_disorder_is_bounded() -> None:
    assert [event["dateTime"] - 1000 for event in made(events=5, rate=200, start_ms=1000)] == [0, 5, 10, 15, 20]
    ordered, disordered = made(events=2_000, rate=50), made(events=2_000, rate=50, disorder_ms=4_000)
    assert sorted(disordered, key=str) == sorted(ordered, key=str)
    highest = behind = 0
    for event in disordered:
        highest = max(highest, event["dateTime"])
        behind = max(behind, highest - event["dateTime"])
    assert 2_000 < behind <= 4_000


def test_without_a_count_there_is_no_end_and_a_reader_may_stop() -> None:
    assert len(list(islice(lines(Workload(None)), 200))) == 200
    command = f"{sys.executable} {nexmark.__file__} --realtime --rate=100000 | head -n 20"
    done = subprocess.run(command, shell=True, capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == 20
    assert done.stderr == b""


@pytest.fixture(scope="module")
def workload() -> list[dict[str, Any]]:
    return made(events=EVENTS, seed=3, rate=20, disorder_ms=oracle.DISORDER_MS, start_ms=STARTS_MS)


@pytest.fixture
def published(db: psycopg.Connection, make_stream: MakeStream, workload: list[dict[str, Any]]) -> psycopg.Connection:
    """The events in the log, with times of publishing of half a minute, and the oracles' tables."""
    make_stream(oracle.STREAM, 4)
    for number, event in enumerate(workload[:100]):
        db.execute(
            "select jeet.publish(%s, %s::text, null, null, timestamptz '2026-01-01' + %s * interval '300 ms')",
            (oracle.STREAM, json.dumps(event), number),
        )
    publish(db, oracle.STREAM, workload[100:])
    oracle.publish_closing(db, workload[-1]["dateTime"], 4)
    oracle.load(db)
    return db


def modelled(db: psycopg.Connection, query: str) -> list[dict[str, Any]]:
    log = db.execute(
        "select value, (date_part('epoch', coalesce(ts, published_at)) * 1000)::bigint"
        " from jeet.stream_events where stream = %s",
        (oracle.STREAM,),
    ).fetchall()
    return model.rows(query, model.Events.of(log))


def multiset(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def test_the_oracles_say_what_plain_loops_say_of_the_same_events(published: psycopg.Connection) -> None:
    for query in oracle.QUERIES:
        wanted = modelled(published, query)
        assert len(wanted) >= 4, f"{query} says too little to prove anything"
        assert multiset(oracle.expected(published, query)) == multiset(wanted), query


@pytest.mark.parametrize("query", ["q5", "q11", "q4"])
def test_the_comparison_sees_a_row_that_is_lost_doubled_or_changed(
    query: str, published: psycopg.Connection, make_stream: MakeStream
) -> None:
    sink = f"nexmark_{query}"
    make_stream(sink, 1)
    wanted = oracle.expected(published, query)
    publish(published, sink, wanted[1:])
    assert oracle.differences(published, query) == [("missing", wanted[0], 1)]
    publish(published, sink, wanted[:1])
    assert oracle.differences(published, query) == []
    if query == "q4":  # only the last of each category counts
        wrong = {**wanted[0], "average": 1}
        publish(published, sink, [wrong])
        assert oracle.differences(published, query) == [("missing", wanted[0], 1), ("too many", wrong, 1)]
    else:
        publish(published, sink, wanted[:1])
        assert oracle.differences(published, query) == [("too many", wanted[0], 1)]


@pytest.mark.parametrize("query", oracle.QUERIES)
def test_the_queries_say_what_plain_loops_say(query: str, plugin: Plugin, workload: list[dict[str, Any]]) -> None:
    events = [*workload, *oracle.closing(workload[-1]["dateTime"])]
    published = [100 * number for number in range(EVENTS)] + [3_600_000] * (len(events) - EVENTS)
    with LocalFunction.from_file(oracle.FUNCTIONS / f"{query}.js", plugin=plugin) as function:
        run = function.feed(events, times_ms=published)
    assert (run.failures, run.late) == ([], [])
    got = run.values()
    if query == "q4":
        got = list({row["category"]: row for row in got}.values())
    assert multiset(got) == multiset(model.rows(query, model.Events.of(zip(events, published, strict=True))))
