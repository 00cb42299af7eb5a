"""Bad input at every door: the same verdict by the same name, nothing good lost beside it, nothing altered."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.torture import doors
from tests.torture.corpus import Case, beside, files, python, values
from tests.torture.corpus.texts import TEXTS
from tests.torture.doors import exact, exact_value

from jeet.control.spec import Flags, merge
from jeet.errors import DeployError, Refused, UsageError
from jeet.sandbox.call import BatchInput, InstanceSpec, OutputStream
from jeet.sandbox.gate import key_of
from jeet.sandbox.limits import Limits
from jeet.sandbox.plugin import Plugin
from jeet.stream.append import Producer
from jeet.testing import LocalFunction, MemoryState, Run
from logtools import MakeStream

ALL = pytest.mark.torture
"""not in every run, as the like of it is"""
PATIENT = Limits(event_cpu_ms=10_000, event_wall_ms=60_000)
"""time is not what is tested here"""


@pytest.fixture(scope="module")
def identity(plugin: Plugin) -> Iterator[LocalFunction]:
    with LocalFunction("stream.map(event => event)", plugin=plugin, limits=PATIENT) as function:
        yield function


WANTED = {case.name: case.code for case in TEXTS}
READABLE = [case for case in TEXTS if case.code != "not_utf8" and b"\0" not in case.data]


def differing(cases: list[Case[bytes]], codes: doors.Codes) -> dict[str, tuple[str | None, str | None]]:
    assert len(cases) == len(codes)
    return {case.name: (case.code, code) for case, code in zip(cases, codes, strict=True) if case.code != code}


def stored(db: psycopg.Connection, stream: str) -> list[str]:
    rows = db.execute(
        'select value::text from jeet.stream_events where stream = %s order by partition, "offset"', (stream,)
    )
    return [text for (text,) in rows]


def kept(cases: list[Case[bytes]]) -> list[str]:
    """Accepted texts as the log has to have them."""
    return [case.data.decode().replace("\n", " ").replace("\r", " ") for case in cases if case.code is None]


def test_the_corpus_is_large_and_each_case_is_one_of_its_kind(
    record_property: Callable[[str, object], None],
) -> None:
    assert len(TEXTS) > 200
    assert len({case.data for case in TEXTS}) == len(WANTED) == len(TEXTS)
    tables: list[Iterable[str | Case[Any]]] = [TEXTS, values.VALUES, values.BAD_VALUES, values.THROWN, values.LOGGED]
    tables += [values.STATE_KEYS, values.BAD_STATE_KEYS, values.OUTPUT_KEYS, values.BAD_OUTPUT_KEYS]
    tables += [beside.KEY_TEXTS, beside.BAD_KEY_TEXTS, beside.GIVEN_KEYS, beside.GIVEN_IDS, beside.IDS_IN_EVENTS]
    tables += [beside.HEADERS, beside.TIMES, beside.NAMES, beside.COLLECTION_NAMES, files.FILES, files.NOT_TEXT]
    tables += [python.GOOD, python.BAD]
    names = [one if isinstance(one, str) else one.name for table in tables for one in table]
    assert len(set(names)) == len(names)
    kinds = {kind: sum(name.startswith(kind) for name in names) for kind in ("y_", "n_", "i_")}
    print(f"inputs of our own: {len(names)}; {kinds}")
    record_property("inputs", len(names))


def test_the_gates_of_sandbox_and_database_agree_on_every_text(db: psycopg.Connection) -> None:
    assert differing(TEXTS, doors.gate([case.data for case in TEXTS])) == {}
    codes = doors.event_fault(db, [case.data for case in READABLE])
    assert differing(READABLE, codes) == {}
    unreadable = [case.data for case in TEXTS if case not in READABLE]
    assert set(doors.event_fault(db, unreadable)) == {doors.CANNOT_BE_SENT}


def test_the_gate_of_outputs_finds_all_that_the_cast_would_let_through() -> None:
    # Not JSON, or not UTF-8, is found by those who decode and cast the column; but a NUL must not get that far.
    cases = [case for case in TEXTS if case.code not in ("not_json", "not_utf8")]
    assert differing(cases, doors.column([case.data for case in cases])) == {}
    assert set(doors.column([case.data for case in TEXTS if b"\0" in case.data])) == {"nul"}


def test_jeet_publish_gives_each_text_its_verdict_and_keeps_it_as_it_came(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("one", 1)
    assert differing(READABLE, doors.publish(db, "one", [case.data for case in READABLE])) == {}
    assert stored(db, "one") == kept(READABLE)


def test_the_bulk_doors_give_each_text_its_verdict_and_lose_nothing_good(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    good = [Case(f"y_good_{n}", b'{"n":%d,"hash":"%s"}' % (n, b"e1234567890123456789" * 2)) for n in range(50)]
    mixed = [case for n, bad in enumerate(READABLE) for case in (bad, good[n % 50])]
    castable = [case for case in mixed if case.code not in ("not_json", "depth")]
    in_lines = [case for case in mixed if b"\n" not in case.data]
    for stream, door, cases in (
        ("many", doors.publish_many, castable),
        ("texts", doors.publish_texts, mixed),
        ("lines", doors.publish_lines, in_lines),
    ):
        make_stream(stream, 1)
        assert differing(cases, door(db, stream, [case.data for case in cases])) == {}, stream
        assert stored(db, stream) == kept(cases), stream


async def test_files_and_python_give_each_text_its_verdict_and_lose_nothing_good(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    good = [Case(f"y_good_{n}", b'{"n":%d}' % n) for n in range(len(TEXTS))]
    mixed = [case for pair in zip(good, TEXTS, strict=True) for case in pair if b"\n" not in case.data]
    make_stream("file", 1)
    assert differing(mixed, await doors.file(database_url, "file", [case.data for case in mixed])) == {}
    assert stored(db, "file") == kept(mixed)
    decodable = [case for case in mixed if case.code != "not_utf8"]
    make_stream("python", 1)
    codes = await doors.python(database_url, "python", [case.data.decode() for case in decodable])
    assert differing(decodable, codes) == {}
    assert stored(db, "python") == kept(decodable)


def test_what_jsonb_makes_of_a_number_is_judged_as_written_out_and_nothing_else_differs(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("jsonb", 1)
    wrong = {}
    for case in READABLE:
        if case.code in ("not_json", "depth"):
            continue
        try:
            db.execute("select jeet.publish('jsonb', convert_from(%s, 'UTF8')::jsonb)", (case.data,))
            if exact(stored(db, "jsonb")[-1]) != exact(case.data):
                wrong[case.name] = "was altered"
        except psycopg.Error as error:
            if case.code is None and "number" not in case.name and "size" not in case.name:
                wrong[case.name] = str(error)
    assert wrong == {}


# Through a function.

REWRITTEN = {
    "i_number_fraction_past_2_53": "past 2^53-1",  # the nearest double is an integer beyond
}
"""accepted, but JavaScript would write the double in a way that the gate refuses: a dead letter, not a silent change"""


def test_whatever_is_accepted_comes_out_of_a_function_as_it_went_in(identity: LocalFunction) -> None:
    cases = [case for case in TEXTS if case.code is None]
    assert doors.dev(identity, [case.data for case in READABLE]) == [case.code for case in READABLE]
    fed = identity._fed
    run = identity.feed_texts([case.data.decode() for case in cases])
    failed = {cases[failure.event - fed].name: failure.error for failure in run.failures}
    assert failed.keys() == REWRITTEN.keys()
    assert all(part in failed[name] for name, part in REWRITTEN.items())
    came = {cases[output.event - fed].name: exact_value(output.value) for output in run.outputs}
    assert came == {case.name: exact(case.data) for case in cases if case.name not in failed}


MADE_JS = """
const deep = (inner, levels) => { for (let i = 0; i < levels; i++) inner = [inner]; return inner; };
const values = { VALUES };
const run = {
  value: make => make(),
  emit: (make, context) => { context.emit('other', make()); },
  nested: make => ({ inner: [make()] }),
  state: (make, context) => { state.s[context.offset] = make(); return 'kept'; },
  inside: (make, context) => { state.o[context.offset] = { a: 1 }; state.o[context.offset].a = make(); return 'kept'; },
};
export const config = { emits: ['other'] };
stream.map((event, context) => {
  state.t.total = (state.t.total || 0) + 1;
  if (!event.make) return { total: state.t.total };
  return run[event.way](values[event.make], context);
});
"""


def made(plugin: Plugin, way: str, sources: dict[str, str]) -> tuple[LocalFunction, Run, list[str | None]]:
    """Each value made by one event, with two good events around it; for each event the name of what it makes."""
    table = ",\n".join(f"{json.dumps(name)}: () => ({source})" for name, source in sources.items())
    function = LocalFunction(MADE_JS.replace("VALUES", table), plugin=plugin, limits=PATIENT)
    names = [made for name in sources for made in (None, name, None)]
    return function, function.feed([{"make": name, "way": way} if name else {} for name in names]), names


@pytest.mark.parametrize(
    "way", ["value", "state", *(pytest.param(way, marks=ALL) for way in ("emit", "nested", "inside"))]
)
def test_what_a_function_makes_arrives_as_it_is_or_is_a_dead_letter_by_name(plugin: Plugin, way: str) -> None:
    good = {name: source for name, (source, _) in values.VALUES.items()}
    bad = {case.name: case.data for case in values.BAD_VALUES}
    wanted = {name: exact_value(value) for name, (_, value) in values.VALUES.items()}
    function, run, names = made(plugin, way, good | bad)
    with function:
        failed = {names[failure.event]: failure.error for failure in run.failures}
        told = {case.name: case.code or "" for case in values.BAD_VALUES}
        assert {name for name, part in told.items() if part not in failed.get(name, "")} == set(), failed
        assert failed.keys() == told.keys()
        # A failed event leaves nothing: the count goes on as if it had not been there.
        totals = [output.value["total"] for output in run.outputs if names[output.event] is None]
        assert len(totals) == 2 * len(names) // 3
        assert totals == sorted(set(totals))
        assert function.state("t") == {"total": len(names) - len(failed)}
        if way in ("value", "emit", "nested"):
            came = {names[one.event]: one.value for one in run.outputs if names[one.event] is not None}
            if way == "nested":
                came = {name: value["inner"][0] for name, value in came.items()}
        else:
            collection = function.state("s" if way == "state" else "o")
            came = {names[int(at)]: value if way == "state" else value["a"] for at, value in collection.items()}
        assert {name: exact_value(value) for name, value in came.items()} == wanted


KEYED_JS = """
const keys = { KEYS };
export const config = { emits: ['other'] };
stream.map((event, context) => {
  if (event.make === undefined) return 'good';
  const key = keys[event.make]();
  WAY;
  return 'made';
});
"""
KEY_WAYS = {
    "state": ("state.s[key] = event.make", values.STATE_KEYS, values.BAD_STATE_KEYS),
    "output": ("context.emit('other', event.make, { key })", values.OUTPUT_KEYS, values.BAD_OUTPUT_KEYS),
}


@pytest.mark.parametrize("way", KEY_WAYS)
def test_a_key_of_state_or_of_an_output_is_kept_as_it_is_or_refused_by_name(plugin: Plugin, way: str) -> None:
    code, good, bad = KEY_WAYS[way]
    sources = {name: source for name, (source, _) in good.items()} | {case.name: case.data for case in bad}
    table = ",\n".join(f"{json.dumps(name)}: () => ({source})" for name, source in sources.items())
    names = [made for name in sources for made in (None, name)]
    source = KEYED_JS.replace("KEYS", table).replace("WAY", code)
    with LocalFunction(source, plugin=plugin, limits=PATIENT) as function:
        run = function.feed([{} if name is None else {"make": name} for name in names])
        failed = {names[failure.event]: failure.error for failure in run.failures}
        told = {case.name: case.code or "" for case in bad}
        assert {name for name, part in told.items() if part not in failed.get(name, "")} == set(), failed
        assert failed.keys() == told.keys()
        assert run.values().count("good") == len(sources)
        if way == "state":
            came = {name: key for key, name in function.state("s").items()}
        else:
            came = {output.value: output.key for output in run.outputs if output.stream == "other"}
        assert came == {name: key for name, (_, key) in good.items()}


BENT_KEYS = {
    "getter that counts": ("id", "(() => { let n = 0; return { get id() { return 'k' + n++; } }; })()"),
    "toJSON of the value": ("id", "({ id: 'live', toJSON: () => ({ id: 'written' }) })"),
    "toJSON on the way": ("o.id", "({ o: { id: 'live', toJSON: () => ({ id: 'written' }) } })"),
    "inherited": ("o.id", "Object.create({ o: { id: 'inherited' } })"),
    "length of an array": ("items.length", "({ items: [1, 2] })"),
}


@pytest.mark.parametrize("case", BENT_KEYS)
def test_the_key_of_an_output_is_the_one_that_stands_in_its_text(plugin: Plugin, case: str) -> None:
    path, source = BENT_KEYS[case]
    compiled = plugin.compile(f"stream.map(() => {source})", "f.js")
    spec = InstanceSpec("f", 1, 0, (OutputStream("sink", path),), limits=PATIENT, slice_ms=60_000)
    instance = plugin.instantiate(compiled, spec, MemoryState())
    try:
        result = instance.run(BatchInput(first_offset=0, count=1, values=b"1", timestamps=b"0"))
    finally:
        instance.close()
    written = [key_of(json.loads(group.values), path.split(".")) for group in result.outputs]
    assert [json.loads(group.keys) for group in result.outputs] == written
    assert all(isinstance(key, str) for key in written)


@pytest.mark.parametrize("kind", ["thrown", "logged"])
def test_whatever_is_thrown_or_logged_is_text_that_can_be_stored(plugin: Plugin, kind: str) -> None:
    statements = values.THROWN if kind == "thrown" else values.LOGGED
    cases = ",\n".join(f"{json.dumps(name)}: () => {{ {code} }}" for name, code in statements.items())
    source = (
        f"const cases = {{ {cases} }}; stream.map(event => {{ if (event.run) cases[event.run](); return 'went on'; }})"
    )
    names = [run for name in statements for run in (None, name)]
    with LocalFunction(source, plugin=plugin, limits=PATIENT) as function:
        run = function.feed([{"run": name} if name else {} for name in names])
    texts = [text for failure in run.failures for text in (failure.error, failure.stack, failure.state_key or "")]
    texts += [line.message for line in run.logs]
    for text in texts:
        assert "\0" not in text
        assert len(text.encode()) <= PATIENT.log_bytes + 200
    assert all(failure.error for failure in run.failures)
    assert [names[failure.event] for failure in run.failures] == (list(statements) if kind == "thrown" else [])
    assert run.values() == ["went on"] * (len(statements) if kind == "thrown" else 2 * len(statements))
    if kind == "logged":
        used: dict[int, int] = {}
        for line in run.logs:
            used[line.index] = used.get(line.index, 0) + len(line.message.encode())
        assert {names[index] for index in used} == set(statements)
        assert max(used.values()) <= PATIENT.log_bytes + 200


# Keys, ids, headers, times.


async def test_a_key_in_an_event_gets_the_same_verdict_and_partition_at_every_door(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream, plugin: Plugin
) -> None:
    good = {name: text for name, (text, _) in beside.KEY_TEXTS.items()}
    texts = good | {case.name: case.data for case in beside.BAD_KEY_TEXTS}
    texts = {name: f'{{"name":"{name}","k":{text}}}' for name, text in texts.items()}
    texts["n_key_missing"] = '{"name":"n_key_missing"}'
    texts["n_key_in_array"] = '[{"k":"u1"}]'
    texts["n_key_of_scalar"] = '"k"'
    wanted = dict.fromkeys(good) | {case.name: case.code for case in beside.BAD_KEY_TEXTS}
    wanted |= {"n_key_missing": "key_missing", "n_key_in_array": "key_missing", "n_key_of_scalar": "key_missing"}
    data = [text.encode() for text in texts.values()]
    for stream in ("one", "texts", "lines", "file", "python", "flag"):
        make_stream(stream, 64, key=None if stream == "flag" else "k")
    with LocalFunction("stream.map((event, context) => context.key)", key="k", plugin=plugin) as function:
        verdicts = {
            "one": doors.publish(db, "one", data),
            "texts": doors.publish_texts(db, "texts", data),
            "lines": doors.publish_lines(db, "lines", data),
            "file": await doors.file(database_url, "file", data),
            "flag": await doors.file(database_url, "flag", data, key="k"),
            "python": await doors.python(database_url, "python", list(texts.values())),
            "dev": doors.dev(function, data),
        }
        run = function.feed_texts([text for name, text in texts.items() if wanted[name] is None])
    for door, codes in verdicts.items():
        assert dict(zip(texts, codes, strict=True)) == wanted, door
    keys = {name: key for name, (_, key) in beside.KEY_TEXTS.items()}
    assert run.values() == list(keys.values())
    assert [output.key for output in run.outputs] == list(keys.values())
    for stream in verdicts.keys() - {"dev"}:
        rows = db.execute(
            "select value->>'name', key, partition from jeet.stream_events where stream = %s", (stream,)
        ).fetchall()
        assert {name: (key, place) for name, key, place in rows} == {
            name: (key, zlib.crc32(key.encode()) % 64) for name, key in keys.items()
        }


async def test_a_bad_key_or_id_beside_an_event_refuses_that_event_only(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 4)
    for what, cases in (("keys", beside.GIVEN_KEYS), ("ids", beside.GIVEN_IDS)):
        given = [given for case in cases for given in (case.data, f"good {case.name}")]
        events = [{"case": name} for case in cases for name in (case.name, "good")]
        codes = await doors.python(database_url, "s", events, **{what: given})
        assert codes == [code for case in cases for code in (case.code, None)]
        row = db.execute("select count(*) from jeet.stream_events where value->>'case' = 'good'").fetchone()
        assert row == (len(cases),)
        db.execute("truncate jeet_internal.event")
    async with Producer(database_url) as producer:
        for wrong in (["a"], ["a", "b", "c"]):
            with pytest.raises(UsageError, match="2 events but"):
                await producer.publish_many("s", [1, 2], keys=wrong)
        for name in ("a\0", "\ud800"):
            with pytest.raises(UsageError, match="no stream"):
                await producer.publish(name, 1)


async def test_an_id_in_an_event_is_judged_as_one_beside_it(database_url: str, make_stream: MakeStream) -> None:
    make_stream("s", 4)
    lines = [f'{{"i":{case.data}}}'.encode() for case in beside.IDS_IN_EVENTS]
    codes = await doors.file(database_url, "s", [*lines, b"{}", b"[]"], id_field="i")
    assert codes == [*(case.code for case in beside.IDS_IN_EVENTS), "id_missing", "id_missing"]


def test_headers_and_times_are_kept_as_they_are_or_refused_by_name(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 1)
    codes = {}
    for column, cases in (("headers", beside.HEADERS), ("ts", beside.TIMES)):
        for case in cases:
            kind = "jsonb" if column == "headers" else "timestamptz"
            try:
                db.execute(f"select jeet.publish('s', '1', {column} => %s::{kind})", (case.data,))
                codes[case.name] = None
                row = db.execute(
                    f"select {column} is not distinct from %s::{kind} from jeet.stream_events"
                    " where stream = 's' order by \"offset\" desc limit 1",
                    (case.data,),
                ).fetchone()
                assert row == (True,), case.name
            except psycopg.Error as error:
                codes[case.name] = error.diag.message_detail
    assert codes == {case.name: case.code for case in [*beside.HEADERS, *beside.TIMES]}
    for bad, state in (('{"a":"\\u0000"}', "22P05"), ('{"a":"\\ud800"}', "22P02"), ('{"a":NaN}', "22P02")):
        with pytest.raises(psycopg.Error) as caught:
            db.execute("select jeet.publish('s', '1', headers => %s::jsonb)", (bad,))
        assert caught.value.sqlstate == state
    with pytest.raises(psycopg.Error):
        db.execute("select jeet.publish('s', '1', headers => %s)", (Jsonb({"a": float("nan")}),))


# Names, files, Python values.


def test_a_name_is_taken_or_refused_alike_for_streams_and_functions(db: psycopg.Connection) -> None:
    for case in beside.NAMES:
        refused = []
        try:
            db.execute("select jeet_internal.create_stream(%s, 1)", (case.data,))
        except psycopg.Error as error:
            refused.append("stream" if error.sqlstate == "JT130" else str(error))
        for setting in ("name", "source", "sink", "emits"):
            config: dict[str, Any] = {"name": "f", "source": "events"}
            emits = [(case.data, True)] if setting == "emits" else []
            try:
                merge(config if emits else config | {setting: case.data}, emits, Flags(), "f.js")
            except DeployError as error:
                refused.append(setting if "\n" not in str(error) else str(error))
        assert refused == ([] if case.code is None else ["stream", "name", "source", "sink", "emits"]), case.name


def test_a_collection_name_is_taken_or_refused_alike_at_deploy_and_in_use(plugin: Plugin) -> None:
    with LocalFunction("stream.map(name => { state[name].k = name; return name; })", plugin=plugin) as function:
        for case in beside.COLLECTION_NAMES:
            try:
                merge({"source": "events", "state": {case.data: {}}}, (), Flags(), "f.js")
                deployed = None
            except DeployError as error:
                deployed = "name" if "\n" not in str(error) else str(error)
            assert deployed == case.code, case.name
            if any(mark in case.data for mark in "\0\ud800"):
                continue  # no event can hold it
            run = function.feed([case.data])
            assert (run.values() == [case.data]) == (case.code is None), case.name
            if case.code is None:
                assert function.state(case.data) == {"k": case.data}


async def test_a_file_gives_its_events_and_tells_the_lines_it_refuses(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    async with Producer(database_url) as producer:
        for name, (data, (events, refused)) in files.FILES.items():
            make_stream(name, 1)
            found: list[Refused] = []
            await producer.publish_lines(name, doors.io.BytesIO(data), on_refused=found.append)
            assert [exact(text) for text in stored(db, name)] == [exact_value(event) for event in events], name
            assert [(one.line, one.code) for one in found] == refused, name
        make_stream("none", 1)
        for name, data in files.NOT_TEXT.items():
            with pytest.raises(UsageError, match="iconv"):
                await producer.publish_lines("none", doors.io.BytesIO(data))
            assert stored(db, "none") == [], name


async def test_python_values_arrive_as_they_are_or_are_refused_by_name(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 1)
    cases = [*python.BAD, *(Case(name, value) for name, (value, _) in python.GOOD.items())]
    codes = await doors.python(database_url, "s", [case.data for case in cases])
    assert dict(zip((case.name for case in cases), codes, strict=True)) == {case.name: case.code for case in cases}
    arrived = [exact(text) for text in stored(db, "s")]
    assert arrived == [exact_value(wanted) for _, wanted in python.GOOD.values()]
