"""`jeet dev` and `jeet plugin`: a function on a file of events, without a database."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from jeet.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("JEET_DATABASE_URL", raising=False)
    monkeypatch.setenv("JEET_HOME", str(tmp_path_factory.getbasetemp() / "dev-home"))  # keeps the compiled plugin


def dev(captured: Captured, *argv: str, code: int = 0) -> list[dict[str, Any]]:
    assert main.run(["dev", *argv, "--json"]) == code
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


def test_outputs_logs_failures_and_state_are_shown(tmp_path: Path, capsys: Captured) -> None:
    function = tmp_path / "f.js"
    function.write_text(
        "stream.map(event => {\n"
        "  console.warn('saw', event.k);\n"
        "  if (event.n < 0) throw new RangeError('below zero');\n"
        "  return { k: event.k, n: state.sums[event.k] = (state.sums[event.k] || 0) + event.n };\n"
        "});\n"
    )
    events = tmp_path / "events.ndjson"
    events.write_text('{"k":"a","n":1}\n{"k":"b","n":-1}\n\nnot json\n{"k":"a","n":2}\n{"n":5}\n{"k":"a","n":NaN}\n')
    shown = dev(capsys, str(function), f"--input={events}", "--key=k", code=1)
    assert [one["value"] for one in shown if one["type"] == "output"] == [{"k": "a", "n": 1}, {"k": "a", "n": 3}]
    (failure,) = [one for one in shown if one["type"] == "failure"]
    assert failure["error"] == "RangeError: below zero"
    assert "f.js:3" in failure["stack"]
    assert sorted(one["line"] for one in shown if one["type"] == "refused") == [4, 6, 7]
    assert sum(one["type"] == "log" for one in shown) == 3
    assert shown[-2:] == [
        {"type": "state", "collection": "sums", "entries": {"a": 3}},
        {"type": "summary", "events": 3, "outputs": 2, "failed": 1, "refused": 3},
    ]
    assert main.run(["dev", str(function), f"--input={events}", "--key=k"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[-4:] == [
        "state.sums:",
        "key  value",
        "a        3",
        "3 events, 2 outputs, 1 failed, 3 refused",
    ]
    assert told.err == "jeet: 1 event failed; 3 lines were refused\n"


def test_all_stages_run_and_windows_close_at_the_end_of_the_input(tmp_path: Path, capsys: Captured) -> None:
    function = tmp_path / "f.js"
    function.write_text(
        "stream.keyBy(e => e.user)\n"
        "  .window({ tumbling: '1m', time: 'at' }).count()\n"
        "  .keyBy('value').map((r, context) => ({ user: r.key, n: r.value, key: context.key }));\n"
        "stream.onTimer(() => { throw new Error('no'); });\n"
        "stream.peek((e, context) => { if (e.at === 5) context.timer('t', { after: '1h' }); }).filter(() => false);\n"
    )
    events = tmp_path / "events.ndjson"
    rows = [("a", 5), ("b", 6), ("a", 70_000), ("a", 7)]
    events.write_text("".join(json.dumps({"id": user, "user": user, "at": at}) + "\n" for user, at in rows))
    shown = dev(capsys, str(function), f"--input={events}", "--key=id", code=1)
    outputs = [(one["event"], one["value"]) for one in shown if one["type"] == "output"]
    assert outputs == [
        (None, {"user": "a", "n": 2, "key": "2"}),
        (None, {"user": "b", "n": 1, "key": "1"}),
        (None, {"user": "a", "n": 1, "key": "1"}),
    ]
    assert [(one["event"], one["error"]) for one in shown if one["type"] == "failure"] == [(None, "Error: no")]
    assert [one["event"] for one in shown if one["type"] == "late"] == []


def test_late_events_are_shown(tmp_path: Path, capsys: Captured) -> None:
    function = tmp_path / "f.js"
    function.write_text("stream.window({ tumbling: '1m', time: 'at' }).count();")
    events = tmp_path / "events.ndjson"
    events.write_text('{"k":"a","at":70000}\n{"k":"a","at":5}\n')
    (late,) = [one for one in dev(capsys, str(function), f"--input={events}", "--key=k") if one["type"] == "late"]
    assert late["event"] == 1
    assert "late for window: at 1970-01-01T00:00:00.005Z" in late["message"]


def test_a_file_is_read_and_judged_as_publish_does(tmp_path: Path, capsys: Captured) -> None:
    function = tmp_path / "f.js"
    function.write_text("stream.map(event => event.n)")
    lines = [
        b'\xef\xbb\xbf{"k":1,"n":1.50}\r', b"", b'{"k":"\xff"}', b'{"k":2,"n":1e-400}', b'{"k":3,"n":9007199254740993}',
        b'{"k":"' + b"x" * 1025 + b'"}', b'{"n":1}', b'{"k":7.0}', b'{"k":4,\r"n":2}', b"\0",
    ]  # fmt: skip
    (tmp_path / "events").write_bytes(b"\n".join(lines))
    shown = dev(capsys, str(function), f"--input={tmp_path / 'events'}", "--key=k", code=1)
    assert [(one["key"], one["value"]) for one in shown if one["type"] == "output"] == [("1", 1.5), ("4", 2)]
    assert [(one["line"], one["code"]) for one in shown if one["type"] == "refused"] == [
        (3, "not_utf8"), (4, "number_exponent"), (5, "integer_range"), (6, "key_bytes"), (7, "key_missing"),
        (8, "key_type"), (10, "not_json"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["totals", "flights", "alerts"])
def test_the_examples_run(name: str, tmp_path: Path, capsys: Captured) -> None:
    inputs = {
        "totals": [{"userId": "a", "amount": 1}],
        "flights": [{"tailnum": "N1", "air_time": None, "distance": 100}],
        "alerts": [{"account": "a", "amount": 1}, {"account": "a", "amount": 100}, {"account": 5, "amount": 1}],
    }
    events = tmp_path / "events.ndjson"
    events.write_text("".join(json.dumps(event) + "\n" for event in inputs[name]))
    shown = dev(capsys, str(ROOT / "functions" / f"{name}.js"), f"--input={events}", code=int(name == "alerts"))
    assert sum(one["type"] == "output" for one in shown) == 1
    assert sum(one["type"] == "failure" for one in shown) == (1 if name == "alerts" else 0)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"stream.map(event => {", "f.js:1"),
        (b"stream.map(event => {\n\n", "end of input"),
        (b"stream.map(event => ", "end of input"),
        (b"stream.map(event => event", "end of input"),
        (b"", "nothing to run"),
        (None, "is not a file"),
        (b"// x\n// caf\xe9\nstream.map(event => event)", "f.js:2: the file is not UTF-8"),
        (b"\xff\xfes\0t\0", "f.js:1: the file is not UTF-8"),
        (b"// \0\nstream.map(event => event)", "f.js:1: the source holds a NUL"),
        (rb"export const config = { input: { const: '\0' } }; stream.map(event => event)", "config holds a NUL"),
        (rb"export const config = { key: '\ud800' }; stream.map(event => event)", "config holds a lone surrogate"),
        (rb"export const config = { key: '' }; stream.map(event => event)", "is not a path"),
        (rb"stream.map(event => event).to('a\ud800')", "the graph holds a lone surrogate"),
    ],
)
def test_a_function_that_cannot_run_is_one_line(
    source: bytes | None, said: str, tmp_path: Path, capsys: Captured
) -> None:
    function = tmp_path / "f.js"
    if source is not None:
        function.write_bytes(source)
    (tmp_path / "events").write_text("{}\n")
    assert main.run(["dev", str(function), f"--input={tmp_path / 'events'}"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("name", "said"), [("f.ts", "esbuild f.ts"), ("f.ndjson", "jeet publish STREAM f.ndjson")])
def test_a_file_that_is_no_javascript_gets_a_hint(name: str, said: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / name).write_text("{}\n")
    for command in (["dev", f"--input={tmp_path / name}"], ["graph"]):
        assert main.run([command[0], str(tmp_path / name), *command[1:]]) == 1
        assert said in capsys.readouterr().err


def test_the_readme_shows_what_dev_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    readme = (ROOT / "README.md").read_text()
    (function,) = re.findall(r"```js\n(.*?)```", readme, re.DOTALL)
    (events,) = re.findall(r"```json\n(.*?)```", readme, re.DOTALL)
    (shown,) = re.findall(r"\$ (jeet dev .*)\n((?:    .*\n)+)", readme)
    (tmp_path / "totals.js").write_text(function)
    (tmp_path / "events.ndjson").write_text(events)
    monkeypatch.chdir(tmp_path)
    assert main.run(shown[0].split()[1:]) == 0
    assert capsys.readouterr().out == textwrap.dedent(shown[1])


def test_the_plugin_tells_what_it_is(capsys: Captured) -> None:
    assert main.run(["plugin", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.keys() == {"path", "sha256", "namespace", "quickjs", "built_in"}
    assert len(shown["sha256"]) == 64


def test_a_plugin_that_is_none_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    (tmp_path / "x.wasm").write_bytes(b"\0asm\1\0\0\0")
    monkeypatch.setenv("JEET_JAVY_PLUGIN", str(tmp_path / "x.wasm"))
    assert main.run(["plugin"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
