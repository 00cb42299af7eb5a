"""A graph of several stages is deployed whole and changes hands whole: what fits is left, nothing is half done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from control.conftest import SEED_JS
from control.graphs import Graph
from jeet.control import drain, lifecycle, registry
from jeet.control.code import read_code
from jeet.control.deploy import Deployed, deploy
from jeet.control.spec import Flags
from jeet.errors import DeployError, UsageError
from jeet.sandbox.plugin import Plugin

DeployGraph = Callable[..., Deployed]
FLAGS = {"name": "f", "source": "events", "sink": "out", "key": "id", "partitions": 2}


@pytest.fixture
def deploy_graph(db: psycopg.Connection, plugin: Plugin, tmp_path: Path) -> DeployGraph:
    """Deploy a graph made by hand, as if a file had described it."""
    path = tmp_path / "f.js"
    path.write_text(SEED_JS)
    numbers = iter(range(1000))

    def run(graph: Graph, *, how: str = "same", **flags: Any) -> Deployed:
        code = read_code(path, plugin, Flags(**{**FLAGS, **flags}))
        code = dataclasses.replace(code, graph=graph.nodes, digest=f"{next(numbers)}")
        return deploy(db, code, wait_s=0, graph=how)  # type: ignore[arg-type]

    return run


def windowed(size_ms: int = 60_000, path: str = "user") -> Graph:
    """Keyed, counted by window, keyed again, summed up."""
    graph = Graph()
    window = graph.window(graph.key(graph.add("map", 0), path), size_ms=size_ms)
    graph.add("reduce", graph.key(window, "end", name="by_end", partitions=3), collection="total")
    return graph


def tasks(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "select t.stage, t.partition, s.name, c.next_offset from jeet_internal.task t"
        " join jeet_internal.checkpoint c on c.task_id = t.id join jeet_internal.stream s on s.id = c.stream_id"
        " order by 1, 2, 3"
    ).fetchall()


def everything(db: psycopg.Connection) -> list[Any]:
    return [
        db.execute(f"select * from jeet_internal.{table} order by 1, 2, 3").fetchall()
        for table in ("task", "checkpoint", "stage", "function", "stream", "state", "timer", "function_version")
    ]


def put(db: psycopg.Connection, stage: int, collection: str, key: str = "k") -> None:
    db.execute("select jeet_internal.register_collection(1, %s, null, 'write', 64)", (collection,))
    db.execute(
        "insert into jeet_internal.state (task_id, collection_id, key, value)"
        " select t.id, c.id, %s, '1' from jeet_internal.task t, jeet_internal.collection c"
        " where t.stage = %s and t.partition = 0 and c.name = %s",
        (key, stage, collection),
    )


def kept(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute("select stage, collection, key from jeet.state order by 1, 2").fetchall()


def test_a_deploy_makes_every_stage_with_its_streams_and_tasks(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    db.execute("select jeet_internal.create_stream('events', 2, 'id')")
    db.execute("update jeet_internal.head set head = 10")
    result = deploy_graph(windowed(), start="latest")
    assert result.streams == ("out",)
    assert tasks(db) == [
        (0, 0, "events", 10),
        (0, 1, "events", 10),
        (1, 0, "f/rekey1", 0),
        (1, 1, "f/rekey1", 0),
        (2, 0, "f/by_end", 0),
        (2, 1, "f/by_end", 0),
        (2, 2, "f/by_end", 0),
    ]
    plans = [row[0] for row in db.execute("select plan from jeet_internal.stage order by stage").fetchall()]
    assert [[each["stream"] for each in plan["inputs"]] for plan in plans] == [["events"], ["f/rekey1"], ["f/by_end"]]
    assert [plan["timed"] for plan in plans] == [True, True, False]
    assert db.execute("select name from jeet.streams order by 1").fetchall() == [("events",), ("out",)]
    assert db.execute("select name, function, partitions from jeet.internal_streams order by 1").fetchall() == [
        ("f/by_end", "f", 3),
        ("f/rekey1", "f", 2),
    ]
    (listed,) = registry.functions(db)
    assert (listed.partitions, listed.tasks) == (2, 7)
    assert registry.show(db, "f").outputs == ("out",)
    with pytest.raises(psycopg.Error, match="joins two stages"):
        db.execute("select jeet.publish('f/rekey1', '{}')")


def test_tables_are_read_from_their_beginning_wherever_sources_start(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    for name in ("events", "customers"):
        db.execute("select jeet_internal.create_stream(%s, 2, 'id')", (name,))
    db.execute("update jeet_internal.head set head = 10")
    graph = Graph()
    table = graph.add("table", stream="customers", collection="customers")
    graph.add("join", 0, table, join="table", kind="inner")
    deploy_graph(graph, start="latest")
    assert tasks(db) == [(0, p, s, o) for p in (0, 1) for s, o in (("customers", 0), ("events", 10))]


def test_delete_lets_go_of_the_streams_between_stages(db: psycopg.Connection, deploy_graph: DeployGraph) -> None:
    deploy_graph(windowed())
    lifecycle.delete(db, "f")
    assert db.execute("select count(*) from jeet.internal_streams").fetchone() == (0,)
    assert db.execute("select count(*) from jeet_internal.stream where dropped").fetchone() == (2,)
    deploy_graph(windowed())  # their names are free


def test_what_fits_takes_over_in_place(db: psycopg.Connection, deploy_graph: DeployGraph) -> None:
    deploy_graph(windowed())
    put(db, 1, "window")
    db.execute("update jeet_internal.checkpoint set next_offset = 5")
    before, held = tasks(db), kept(db)
    graph = windowed()
    graph.add("filter", 3)
    assert deploy_graph(graph).version == 2
    assert (tasks(db), kept(db)) == (before, held)
    assert lifecycle.rollback(db, "f", wait_s=0).version == 1
    assert (tasks(db), kept(db)) == (before, held)
    graph.add("dedupe", graph.nodes[-1]["id"], collection="dedupe")
    assert deploy_graph(graph).version == 3  # an operator that is new begins with nothing
    with pytest.raises(DeployError, match="stage 1 keeps dedupe no more"):
        lifecycle.rollback(db, "f", 1, wait_s=0)


CHANGES: list[tuple[Callable[[], Graph], str]] = [
    (lambda: windowed(300_000), "stage 1 keeps window otherwise: it was tumbling 1m count, it is tumbling 5m count"),
    (
        lambda: windowed(path="account"),
        "stage 0 hands on to f/rekey1 otherwise: it was user, 2 partitions, it is account",
    ),
    (Graph, "stage 1 of the version before (reads f/rekey1) is gone"),
]


@pytest.mark.parametrize(("make", "what"), CHANGES)
def test_what_does_not_fit_is_refused_with_what_it_is_and_the_choices(
    db: psycopg.Connection, deploy_graph: DeployGraph, make: Callable[[], Graph], what: str
) -> None:
    deploy_graph(windowed())
    before = everything(db)
    with pytest.raises(DeployError) as caught:
        deploy_graph(make())
    text = str(caught.value)
    assert what in text
    assert "--drain" in text
    assert "--reset" in text
    assert "\n" not in text
    assert everything(db) == before


def test_reset_discards_what_lies_between_stages_and_begins_anew(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    deploy_graph(windowed())
    put(db, 1, "window")
    db.execute("update jeet_internal.head set head = 7 where stream_id = 1")
    db.execute("update jeet_internal.checkpoint set next_offset = 5")
    old = db.execute("select id from jeet_internal.stream where internal").fetchall()
    assert deploy_graph(windowed(300_000), how="reset").version == 2
    assert {(stage, offset) for stage, _, _, offset in tasks(db)} == {(0, 0), (1, 0), (2, 0)}
    assert kept(db) == []
    now = db.execute("select id from jeet_internal.stream where internal and not dropped").fetchall()
    assert len(now) == 2
    assert not set(old) & set(now)
    assert deploy_graph(windowed(300_000), how="reset", start="latest").version == 3
    assert {(stage, offset) for stage, _, _, offset in tasks(db)} == {(0, 7), (1, 0), (2, 0)}


def test_a_drain_without_anything_under_way_takes_over_at_once_and_keeps_what_means_the_same(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    deploy_graph(windowed())
    for stage, collection in ((0, "mine"), (1, "window"), (1, "own"), (2, "total")):
        put(db, stage, collection)
    db.execute(
        "update jeet_internal.checkpoint c set next_offset = 5, watermark = '2026-01-01' from jeet_internal.stream s"
        " where s.id = c.stream_id and not s.internal"
    )
    ids = db.execute("select stage, partition, id from jeet_internal.task order by 1, 2").fetchall()
    assert deploy_graph(windowed(300_000), how="drain").version == 2
    assert db.execute("select stage, partition, id from jeet_internal.task order by 1, 2").fetchall() == ids
    assert kept(db) == [(0, "mine", "k"), (1, "own", "k"), (2, "total", "k")]
    assert {(stage, offset) for stage, _, _, offset in tasks(db)} == {(0, 5), (1, 0), (2, 0)}
    # Its clocks go by what was seen, not by the end that the drain put them to.
    clocks = db.execute(
        "select distinct stage, clock::date::text, watermark::date::text from jeet_internal.task order by 1"
    )
    assert clocks.fetchall() == [(0, "2026-01-01", "2026-01-01"), (1, None, None), (2, None, None)]
    assert not drain.is_draining(db, 1)  # type: ignore[arg-type]


def test_stages_that_come_and_go_leave_the_source_where_it_stands(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    deploy_graph(Graph())
    put(db, 0, "mine")
    db.execute("update jeet_internal.checkpoint set next_offset = 5")
    deploy_graph(windowed(), how="drain")
    assert {(stage, offset) for stage, _, _, offset in tasks(db)} == {(0, 5), (1, 0), (2, 0)}
    db.execute("select jeet_internal.create_stream('side', 3, 'id')")
    graph = Graph()
    graph.add("merge", graph.add("source", stream="side"), 0)
    deploy_graph(graph, how="drain")
    assert [row for row in tasks(db) if row[2] == "events"][:2] == [(0, 0, "events", 5), (0, 1, "events", 5)]
    assert (0, "mine", "k") in kept(db)


def test_a_drain_waits_for_events_and_timers_and_gives_up_when_nothing_moves(
    db: psycopg.Connection, deploy_graph: DeployGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy_graph(windowed())
    db.execute(
        "insert into jeet_internal.timer (task_id, operator, key, name, at, wall)"
        " select id, 'window', 'k', 'w', now(), false from jeet_internal.task where stage = 1"
    )
    monkeypatch.setattr(drain, "PATIENCE_S", 0.2)
    with pytest.raises(UsageError, match="stage 1: 2 timers"):
        deploy_graph(windowed(300_000), how="drain")
    # The old version goes on, sources and all.
    assert not drain.is_draining(db, 1)  # type: ignore[arg-type]
    assert registry.functions(db)[0].version == 1
    assert db.execute("select count(*) from jeet_internal.task where clock is not null").fetchone() == (0,)


def test_open_dead_letters_of_a_stage_that_goes_are_not_dropped_with_it(
    db: psycopg.Connection, deploy_graph: DeployGraph
) -> None:
    deploy_graph(windowed())
    db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", event, error, version)'
        " select id, 1, 0, '{}', 'e', 1 from jeet_internal.task where stage = 2 and partition = 0"
    )
    with pytest.raises(DeployError, match=r"open dead letters \(1\)"):
        deploy_graph(Graph(), how="drain")
    assert not drain.is_draining(db, 1)  # type: ignore[arg-type]


def test_a_drain_that_was_cut_short_goes_on_or_is_called_off(db: psycopg.Connection, deploy_graph: DeployGraph) -> None:
    deploy_graph(windowed())
    db.execute("select jeet_internal.begin_drain(1)")
    assert db.execute("select distinct stage from jeet_internal.task where clock is not null").fetchall() == [(0,)]
    assert any(row[0] == "f drains" for row in db.execute("select observation from jeet.diagnosis").fetchall())
    assert registry.show(db, "f").draining
    assert lifecycle.resume(db, "f", wait_s=0).changed
    assert not registry.show(db, "f").draining
    db.execute("select jeet_internal.begin_drain(1)")
    assert deploy_graph(windowed(300_000), how="drain").version == 2


def test_a_rollback_is_held_to_the_same(db: psycopg.Connection, deploy_graph: DeployGraph) -> None:
    deploy_graph(windowed())
    deploy_graph(windowed(300_000), how="reset")
    with pytest.raises(DeployError, match="version 1: this version cannot take over"):
        lifecycle.rollback(db, "f", wait_s=0)
    assert lifecycle.rollback(db, "f", wait_s=0, graph="drain").version == 1
    # Its rows name the streams that there are now.
    assert db.execute(
        "select count(*) from jeet_internal.task t join jeet_internal.checkpoint c on c.task_id = t.id"
        " join jeet_internal.stage g on g.version = 1 and g.stage = t.stage and c.stream_id = any (g.inputs)"
    ).fetchone() == (7,)
