"""`jeet graph` shows stages and streams of a file or a function as text, Mermaid, SVG and JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from jeet.cli.drawing import as_mermaid, as_svg
from jeet.cli.main import run
from jeet.control.picture import Edge, Picture, StageBox, StreamBox

PIPELINE_JS = """export const config = { source: 'clicks', sink: 'top', key: 'id', partitions: 2 };
const [big, small] = stream.branch(e => e.n > 9, e => true);
small.to('small');
big.keyBy(e => e.user, { name: 'by_user', partitions: 4 })
  .window({ tumbling: '1m', time: 'at', grace: '10s', lateTo: 'late' }).count({ name: 'clicks' })
  .keyBy('end')
  .reduce((top, next) => next, { name: 'top' });
"""

TEXT = """pipeline: 3 stages

stage 0, 2 tasks, by event time
  reads   clicks (2 partitions, key id)
  runs    branch 1 (line 2) → keyBy by_user (line 4)
  runs    branch 2 (line 2) → to small (line 3)
  writes  small (2 partitions)
  writes  pipeline/by_user (4 partitions; by a function)

stage 1, 4 tasks, by event time
  reads   pipeline/by_user (4 partitions)
  runs    window clicks: tumbling 1m count, grace 10s, time at (line 5) → keyBy (line 6)
  writes  late (2 partitions; late)
  writes  pipeline/rekey1 (2 partitions; by end)

stage 2, 2 tasks
  reads   pipeline/rekey1 (2 partitions)
  runs    reduce top (line 7)
  writes  top (2 partitions)
"""

Jeet = Callable[..., str]


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.js"
    path.write_text(PIPELINE_JS)
    return str(path)


@pytest.fixture
def jeet(capsys: pytest.CaptureFixture[str]) -> Jeet:
    """What a command printed; it went well."""

    def command(*words: str) -> str:
        code = run(words)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return command


def test_a_file_is_shown_without_a_database(jeet: Jeet, pipeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JEET_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert jeet("graph", pipeline) == TEXT


def test_mermaid_and_svg_show_every_stage_and_stream(jeet: Jeet, pipeline: str) -> None:
    mermaid = jeet("graph", pipeline, "--format=mermaid")
    assert mermaid.startswith("flowchart LR\n")
    assert 't1 -.->|"late"| s' in mermaid
    svg = ET.fromstring(jeet("graph", pipeline, "--format=svg"))
    assert svg.tag.endswith("svg")
    shown = "\n".join("".join(element.itertext()) for element in svg.iter() if element.tag.endswith("text"))
    for name in (
        "clicks",
        "pipeline/by_user",
        "pipeline/rekey1",
        "top",
        "late",
        "stage 0, 2 tasks",
        "stage 2, 2 tasks",
    ):
        assert name in shown
        assert name in mermaid


def test_json_has_the_same_facts(jeet: Jeet, pipeline: str) -> None:
    facts = json.loads(jeet("graph", pipeline, "--json"))
    assert [stage["tasks"] for stage in facts["stages"]] == [2, 4, 2]
    assert {stream["name"]: stream["internal"] for stream in facts["streams"]}["pipeline/by_user"] is True
    assert [(edge["stage"], edge["stream"]) for edge in facts["edges"] if edge["kind"] == "key"] == [
        (0, "pipeline/by_user"),
        (1, "pipeline/rekey1"),
    ]


def test_a_function_is_shown_with_what_waits(
    jeet: Jeet, pipeline: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JEET_DATABASE_URL", database_url)
    jeet("deploy", pipeline)
    assert jeet("graph", "pipeline") == TEXT.replace("pipeline: 3", "pipeline, version 1: 3")
    with psycopg.connect(database_url, autocommit=True) as db:
        for number in range(5):
            db.execute("select jeet.publish('clicks', %s)", (json.dumps({"id": number}),))
    live = jeet("graph", "pipeline", "--live")
    assert "reads   clicks (2 partitions, key id; 0/s, lag 5)" in live
    assert jeet("streams").splitlines()[0].split()[:2] == ["name", "partitions"]
    assert "pipeline/by_user" not in jeet("streams")
    assert "pipeline/by_user" in jeet("streams", "--all")
    shown = json.loads(jeet("show", "pipeline", "--json"))
    assert {(task["stage"], task["stream"]) for task in shown["tasks"]} == {
        (0, "clicks"),
        (1, "pipeline/by_user"),
        (2, "pipeline/rekey1"),
    }


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("graph", "{file}", "--live"), "is of a function that is deployed"),
        (("graph", "nothing", "--key=a"), "nothing is no file"),
        (("deploy", "{file}", "--drain", "--reset"), "choose one"),
    ],
)
def test_what_makes_no_sense_is_said(
    words: tuple[str, ...],
    what: str,
    pipeline: str,
    capsys: pytest.CaptureFixture[str],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JEET_DATABASE_URL", database_url)
    assert run([word.format(file=pipeline) for word in words]) == 1
    assert what in capsys.readouterr().err


def test_names_from_code_are_text_wherever_they_are_drawn() -> None:
    evil = 'a"]; click <script>alert(1)</script>\x1b[31m'
    picture = Picture(
        "f",
        1,
        (StreamBox("s", 1, None, False),),
        (StageBox(0, 1, ((evil,),), False),),
        (Edge(0, "s", True, "events", ""),),
    )
    mermaid = as_mermaid(picture)
    assert "<script>" not in mermaid
    assert mermaid.count('"') == 4
    svg = as_svg(picture)
    assert "<script>" not in svg
    assert "\x1b" not in svg
    ET.fromstring(svg)


def test_a_loop_over_the_functions_own_streams_is_drawn() -> None:
    streams = (StreamBox("a", 1, None, False), StreamBox("b", 1, None, False))
    edges = (Edge(0, "a", True, "events", ""), Edge(0, "a", False, "sink", ""), Edge(0, "b", False, "to", ""))
    ET.fromstring(as_svg(Picture("f", 1, streams, (StageBox(0, 1, (("map",),), False),), edges)))
