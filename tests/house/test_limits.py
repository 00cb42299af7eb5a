"""One table of limits: whoever enforces one goes by it, each can be run into, and what is said then names it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from jeet.control.code import read_code
from jeet.control.spec import Flags, merge
from jeet.errors import DeployError
from jeet.ids import Offset
from jeet.limits import DEFAULTS, REASONS, TABLE, Limit
from jeet.sandbox.engine import Engine
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Plugin
from jeet.settings import Settings
from jeet.task.effects import LoggedLine
from jeet.task.logs import LogBudget
from jeet.testing import LocalFunction
from logtools import MakeStream

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    engine = Engine(tmp_path_factory.mktemp("cache"))
    yield engine.load_plugin(None)
    engine.close()


@dataclass
class Ways:
    """The ways in which a limit can be run into; each gives what was said."""

    db: psycopg.Connection
    plugin: Plugin

    def sql(self, statement: str, *values: Any) -> str:
        with pytest.raises(psycopg.Error) as caught:
            self.db.execute(statement, values)
        return f"{caught.value.sqlstate} {caught.value.diag.message_detail}: {caught.value.diag.message_primary}"

    def publish(self, event: str, key: str | None = None, **more: Any) -> str:
        given = "".join(f", {name} => %s" for name in more)
        return self.sql(f"select jeet.publish('events', %s::text, %s{given})", event, key, *more.values())

    def stream(self, name: str, partitions: int = 1, key: str | None = None) -> str:
        return self.sql("select jeet_internal.create_stream(%s, %s, %s)", name, partitions, key)

    def deploy(self, **config: Any) -> str:
        with pytest.raises(DeployError) as caught:
            merge({"source": "events", **config}, (), Flags(), "f.js")
        return f"DeployError: {caught.value}"

    def run(self, body: str, **limits: int) -> str:
        """A dead letter; time is no matter unless it is the limit in question."""
        patient = {"event_cpu_ms": 10_000, "event_wall_ms": 30_000, **limits}
        source = f"stream.map((event, context) => {{ {body} }})"
        with LocalFunction(source, plugin=self.plugin, limits=Limits(**patient)) as function:
            run = function.feed([1])
        texts = [*(failure.error for failure in run.failures), *(line.message[-200:] for line in run.logs)]
        return f"dead letter, or cut, with a mark: {' '.join(texts)}"


def file_of(ways: Ways, size: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f.js")
        with path.open("wb") as file:
            file.truncate(size + 1)
        with pytest.raises(DeployError) as caught:
            read_code(path, ways.plugin, Flags())
    return f"DeployError: {caught.value}"


def source_of(ways: Ways, size: int) -> str:
    with pytest.raises(DeployError) as caught:
        ways.plugin.compile("//" + "x" * size, "f.js")
    return f"DeployError: {caught.value}"


SLOW_TO_COMPILE = {"properties": {f"p{n}": {"pattern": f"^(\\p{{L}}{{200}}{n})+$"} for n in range(4000)}}


def slow_schema(ways: Ways) -> str:
    source = f"export const config = {{ input: {json.dumps(SLOW_TO_COMPILE)} }}; stream.map(event => 1)"
    with pytest.raises(DeployError) as caught:
        ways.plugin.describe(ways.plugin.compile(source, "f.js"))
    return f"DeployError: {caught.value}"


def schema_memory(ways: Ways) -> str:
    schema = {"anyOf": [{"items": {"type": kind}} for kind in ("string", "object", "array", "null")]}
    source = f"export const config = {{ input: {json.dumps(schema)} }}; stream.map(event => 1)"
    patient = Limits(event_cpu_ms=60_000, event_wall_ms=120_000)
    with LocalFunction(source, plugin=ways.plugin, limits=patient) as function:
        (failure,) = function.feed([[7] * 500_000]).failures
    return f"dead letter: {failure.error}"


def cut_logs(messages: list[str]) -> str:
    lines = [LoggedLine(Offset(0), "info", message) for message in messages]
    *kept, notice = LogBudget().admit(lines, 0.0)
    assert kept == lines[:-1]
    assert "cut" in notice.message
    return f"cut, with a line that tells how much: {notice.message}"


BEYOND: dict[str, Callable[[Ways, int], str]] = {
    "event_bytes": lambda ways, most: ways.publish(json.dumps("x" * most)),
    "depth": lambda ways, most: ways.publish("[" * (most + 1) + "]" * (most + 1)),
    "integer_range": lambda ways, most: ways.publish(str(most + 1)),
    "number_digits": lambda ways, most: ways.publish("0." + "1" * most),
    "number_exponent": lambda ways, most: ways.publish(f"1e-{most + 1}"),
    "key_bytes": lambda ways, most: ways.publish("1", "x" * (most + 1)),
    "id_bytes": lambda ways, most: ways.publish("1", id="x" * (most + 1)),
    "headers_bytes": lambda ways, most: ways.publish("1", headers=Jsonb({"h": "x" * most})),
    "stream_name_chars": lambda ways, most: ways.stream("x" * (most + 1)),
    "partitions": lambda ways, most: ways.stream("s", most + 1),
    "key_path_bytes": lambda ways, most: ways.stream("s", 1, "x" * (most + 1)),
    "file_bytes": file_of,
    "source_bytes": source_of,
    "function_name_chars": lambda ways, most: ways.deploy(name="x" * (most + 1)),
    "collections": lambda ways, most: ways.deploy(state={f"c{n}": {} for n in range(most + 1)}),
    "collection_name_chars": lambda ways, most: ways.deploy(state={"x" * (most + 1): {}}),
    "schema_compile_ms": lambda ways, _most: slow_schema(ways),
    "retries": lambda ways, most: ways.deploy(onError={"retry": most + 1}),
    "output_bytes": lambda ways, most: ways.run(f"return 'x'.repeat({most})"),
    "outputs_per_event": lambda ways, most: ways.run(
        f"for (let i = 0; i <= {most}; i++) context.emit('sink', i)".replace("event =>", "")
    ),
    "schema_memory_bytes": lambda ways, _most: schema_memory(ways),
    "state_value_bytes": lambda ways, most: ways.run(f"state.s.k = ['x'.repeat({most})]"),
    "state_requests": lambda ways, most: ways.run(f"for (let i = 0; i <= {most} + 1000; i++) state.s['k' + i]"),
    "enumerated_keys": lambda ways, most: ways.run(
        f"for (let i = 0; i <= {most}; i++) state.s['k' + i] = 1; return Object.keys(state.s).length"
    ),
    "log_bytes": lambda ways, most: ways.run(f"console.log('x'.repeat({most} + 1))"),
    "log_lines_per_minute": lambda _ways, most: cut_logs(["x"] * (most + 1)),
    "log_bytes_per_minute": lambda _ways, most: cut_logs(["x" * most, "x"]),
    "dead_letter_bytes": lambda ways, most: ways.run(f"throw new Error('x'.repeat({most} + 1))"),
    "event_cpu_ms": lambda ways, most: ways.run("for (;;) {}", event_cpu_ms=most),
    "event_wall_ms": lambda ways, most: ways.run("for (;;) {}", event_wall_ms=most),
    "guest_memory_bytes": lambda ways, most: ways.run(
        "const all = []; for (;;) all.push('x'.repeat(1e6) + all.length)"
    ),
}


NAMELESS = {"enumerated_keys"}
"""what the guest says of these lacks the name yet"""


def test_each_limit_can_be_run_into_and_says_its_name(
    db: psycopg.Connection, make_stream: MakeStream, plugin: Plugin
) -> None:
    make_stream("events", 1)
    ways = Ways(db, plugin)
    assert sorted(BEYOND) == sorted(DEFAULTS)
    said = {limit.name: (limit, BEYOND[limit.name](ways, limit.default)) for limit in TABLE}
    assert {name: text for name, (limit, text) in said.items() if not is_told(limit, text)} == {}


def is_told(limit: Limit, said: str) -> bool:
    named = limit.name in said or limit.name in NAMELESS or limit.error.startswith("cut")
    return named and any(error.strip() in said for error in limit.error.split(";"))


@pytest.mark.xfail(reason="the guest's message about too many keys lacks (enumerated_keys)")
def test_the_guest_names_the_limit_of_enumeration(db: psycopg.Connection, plugin: Plugin) -> None:
    for name in NAMELESS:
        assert name in BEYOND[name](Ways(db, plugin), DEFAULTS[name])


# The numbers elsewhere.

MARKED = re.compile(r"\b(\d+)\s*/\*(\w+)\*/")
TELLTALE = re.compile(r"\b(1048576|16384|1024|4096|9007199254740991)\b(?!\s*/\*\w+\*/)")


def test_sql_has_no_number_of_its_own() -> None:
    seen = set()
    for path in (ROOT / "sql" / "functions").glob("*.sql"):
        text = "\n".join(line.split("--")[0] for line in path.read_text().splitlines()).replace("2::numeric ^ 1024", "")
        for number, name in MARKED.findall(text):
            assert int(number) == DEFAULTS[name], f"{path.name}: {name} is {DEFAULTS[name]}, not {number}"
            seen.add(name)
        assert TELLTALE.findall(text) == [], (
            f"{path.name}: mark the number with the name of its limit: 1024 /*key_bytes*/"
        )
    assert seen >= {limit.name for limit in TABLE if "JT1" in limit.error} - {"stream_name_chars"}


def test_the_names_that_the_database_takes_are_as_long_as_the_table_says(db: psycopg.Connection) -> None:
    make = "select jeet_internal.create_stream(%s, 1)"
    db.execute(make, ("x" * DEFAULTS["stream_name_chars"],))


def test_the_table_of_streams_bounds_partitions_alike() -> None:
    assert f"between 1 and {DEFAULTS['partitions']}" in (ROOT / "sql" / "schema.sql").read_text()


def test_instances_and_settings_begin_with_the_defaults() -> None:
    assert {field.name: field.default for field in fields(Limits)}.items() <= DEFAULTS.items()
    settings = {field.name.upper(): field.default for field in fields(Settings)}
    for limit in TABLE:
        if limit.setting is not None:
            scale = 2**20 if limit.setting.endswith("_MB") else 1
            assert settings[limit.setting.removeprefix("JEET_")] * scale == limit.default


def test_every_reason_has_a_state_of_its_own_and_the_database_knows_no_other(db: psycopg.Connection) -> None:
    told = {reason.code: reason.sqlstate for reason in REASONS}
    told |= {limit.name: limit.error[:5] for limit in TABLE if limit.scope == "event"}
    row = db.execute("select prosrc from pg_proc where oid = 'jeet_internal.refusal_sqlstate'::regproc").fetchone()
    assert row is not None
    known = dict(re.findall(r"when '(\w+)' then '(JT\d\d\d)'", row[0]))
    assert known == {code: state for code, state in told.items() if state is not None}
    assert len(set(known.values())) == len(known)
