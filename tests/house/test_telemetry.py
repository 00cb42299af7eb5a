"""One line an event, whatever is logged, and no password in it."""

from __future__ import annotations

import ast
import io
import json
import logging
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jeet import telemetry
from jeet.telemetry import LogFormat, without_secrets


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def written(form: LogFormat, message: str, **fields: object) -> str:
    stream = io.StringIO()
    telemetry.configure(log_format=form, stream=stream)
    telemetry.logger("jeet.test").info(message, **fields)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
@given(message=st.text(), value=st.text())
def test_an_event_is_one_line(form: LogFormat, message: str, value: str) -> None:
    line = written(form, message, value=value)
    assert len(line.splitlines()) == 1
    assert line.endswith("\n")
    assert {unicodedata.category(c) for c in line[:-1]}.isdisjoint({"Cc", "Zl", "Zp", "Cs"})
    if form == "json":
        assert json.loads(line)["level"] == "info"


def test_fields_follow_the_message_in_order() -> None:
    line = written("text", "worker disconnected", worker=3, partitions=[1, 2], elapsed_ms=212.4, note="two words")
    assert line.split("info", 1)[1].strip() == (
        'worker disconnected worker=3 partitions=1,2 elapsed_ms=212.4 note="two words"'
    )


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:s3cret@host/db",
        "postgres://me:s3cret@/db?host=/tmp",
        "postgres://me:s3:cr@s3cret@host/db",
        "host=h password=s3cret user=me",
        "host=h password='s3cret \\' s3cret' user=me",
        'password: "s3cret"',
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_password_is_never_written(form: LogFormat, text: str) -> None:
    assert "s3cret" not in without_secrets(text)
    assert "s3cret" not in written(form, text, dsn=text, many=[text])


def test_an_address_without_a_password_stays_readable() -> None:
    assert without_secrets("postgresql://postgres:@/jeet?host=/tmp/x") == "postgresql://postgres:@/jeet?host=/tmp/x"
    assert without_secrets("postgresql://postgres@host:5432/jeet") == "postgresql://postgres@host:5432/jeet"


def test_an_error_keeps_its_stack_in_the_same_line() -> None:
    stream = io.StringIO()
    telemetry.configure(stream=stream)
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        telemetry.logger("jeet.test").error("it failed", exc=error, task=7)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "task=7" in line
    assert "ValueError" in line
    assert "test_telemetry.py" in line


def test_fields_given_by_the_standard_library_are_shown() -> None:
    stream = io.StringIO()
    telemetry.configure(stream=stream)
    logging.getLogger("jeet.test").warning("half of %s", "it", extra={"path": "x/y"})
    assert stream.getvalue().rstrip().endswith("warning half of it path=x/y")


HANDED_ON = (
    *("stack", "logger", "error"),  # telemetry.py
    *("function", "stage", "partition", "offset", "timer"),  # of a task
    *("process", "pid", "signal", "exit_code"),  # of a child
)
"""fields that log calls are given as **fields"""


def test_fields_have_one_vocabulary() -> None:
    """Every name that a log call gives is in the table, and nothing else is."""
    used = dict.fromkeys(HANDED_ON, "")
    for path in Path(telemetry.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
            if isinstance(call.func, ast.Attribute):
                logs = ast.unparse(call.func.value) == "log" and call.func.attr in ("debug", "info", "warning", "error")
            else:
                logs = isinstance(call.func, ast.Name) and call.func.id == "write"
            if logs:
                names = [keyword.arg for keyword in call.keywords if keyword.arg not in (None, "exc", "extra")]
                extras = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
                names += [str(ast.literal_eval(key)) for extra in extras for key in getattr(extra, "keys", []) if key]
                used.update({str(name): path.name for name in names})
    assert {name: file for name, file in used.items() if name not in telemetry.FIELDS} == {}
    assert sorted(set(telemetry.FIELDS) - set(used)) == []
