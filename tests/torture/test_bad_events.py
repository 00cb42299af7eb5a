"""Bad input among good events, through real workers: nothing good is lost, nothing is altered, nothing dies."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from tests.torture.cluster import Cluster
from tests.torture.corpus import beside, values
from tests.torture.corpus.texts import TEXTS
from tests.torture.doors import exact, exact_value
from tests.torture.figures import Figures
from tests.torture.test_bad_input import REWRITTEN

from jeet.errors import Refused
from jeet.stream.append import Producer

PATIENT = {"JEET_EVENT_CPU_MS": "10000", "JEET_EVENT_WALL_MS": "60000"}
GOOD_AROUND = 1000

pytestmark = pytest.mark.torture


def tell(figures: Figures, record: Callable[[str, object], None], kind: str, found: dict[str, int]) -> None:
    """The first two of `found` are the inputs that were tried."""
    tried = sum(list(found.values())[:2])
    figures.add(kind, tried, note="; ".join(f"{what} {count:,}" for what, count in found.items()))
    record(kind, found)


async def test_bad_events_of_a_file_cost_no_good_one_on_its_way_through_a_function(
    database_url: str, record_property: Callable[[str, object], None], figures: Figures
) -> None:
    cases = [case for case in TEXTS if b"\n" not in case.data]
    lines: list[bytes] = []
    places: dict[int, int] = {}
    for number, case in enumerate(cases):
        # Some before each: together more than a thousand, and each in the midst of a batch.
        lines += [b'{"good":%d}' % (number * 10 + n) for n in range(10)]
        places[len(lines) + 1] = number
        lines.append(case.data)
    good = 10 * len(cases)
    assert good > GOOD_AROUND
    with Cluster(database_url, workers=2, environment=PATIENT) as cluster:
        cluster.deploy("stream.map(event => event)", "same", "--source=events", "--sink=copy", "--partitions=1")
        before = [worker.pid for worker in cluster.workers()]
        refused: dict[int, str] = {}
        async with Producer(database_url) as producer:

            def note(one: Refused) -> None:
                assert one.line is not None
                refused[one.line] = one.code

            await producer.publish_lines("events", io.BytesIO(b"\n".join(lines)), on_refused=note)
        assert {cases[places[line]].name: code for line, code in refused.items()} == {
            case.name: case.code for case in cases if case.code is not None
        }
        cluster.drain("same", 300)
        accepted = [case for case in cases if case.code is None]
        dead = cluster.sql("select event, error from jeet.dead_letters where status = 'open'")
        by_text = {case.data.decode(): case.name for case in accepted}
        told = {by_text[event]: error for event, error in dead}
        assert told.keys() == REWRITTEN.keys()
        assert all(REWRITTEN[name] in error for name, error in told.items())
        wanted = [exact(line) for number, line in enumerate(lines, 1) if number not in refused]
        bent = [exact(case.data) for case in accepted if case.name in REWRITTEN]
        copied = "select value::text from jeet.stream_events where stream = 'copy' order by \"offset\""
        came = [exact(text) for (text,) in cluster.sql(copied)]
        assert came == [value for value in wanted if value not in bent]
        assert [worker.pid for worker in cluster.workers()] == before
        # And the others that read: views, tail, the dead letters' page.
        assert cluster.jeet("tail", "copy").stdout.count(b"\n") == len(came)
        cluster.jeet("dlq", "list")
    found = {
        "bad inputs tried": len(refused) + len(dead),
        "odd but good ones": len(accepted) - len(dead),
        "good events around them": good,
        "processes lost": 0,
        "good events lost": 0,
        "silent changes": 0,
    }
    tell(figures, record_property, "bad input, published", found)


def test_headers_keys_and_times_reach_a_function_as_they_were_given(database_url: str) -> None:
    source = """export const config = { source: 'given', sink: 'seen', partitions: 1 };
    stream.map((n, { headers, timestamp, key }) => ({ n, headers, timestamp, key }));"""
    headers = [case.data for case in beside.HEADERS if case.code is None]
    times = [case.data for case in beside.TIMES if case.code is None]
    keys = [key for _, key in beside.KEY_TEXTS.values()]
    given = [(header, time, key) for header, time in zip(headers * 3, times * 5, strict=False) for key in keys]
    with Cluster(database_url, workers=1, environment=PATIENT) as cluster:
        cluster.deploy(source, "seer")
        call = "select jeet.publish('given', %s::text, %s, %s::jsonb, %s::timestamptz)"
        for n, (header, time, key) in enumerate(given):
            cluster.db.execute(call, (str(n), key, header, time))
        cluster.drain("seer")
        rows = cluster.sql("select value::text from jeet.stream_events where stream = 'seen'")
        milliseconds = {
            time: int(cluster.value("select floor(extract(epoch from %s::timestamptz) * 1000)", time)) for time in times
        }
    seen = sorted((json.loads(text) for (text,) in rows), key=lambda one: one["n"])
    assert [one["n"] for one in seen] == list(range(len(given)))
    assert [exact_value(one["headers"]) for one in seen] == [exact(header) for header, _, _ in given]
    assert [one["key"] for one in seen] == [key for _, _, key in given]
    assert [one["timestamp"] for one in seen] == [milliseconds[time] for _, time, _ in given]


MADE_JS = """
const deep = (inner, levels) => { for (let i = 0; i < levels; i++) inner = [inner]; return inner; };
const value = { VALUES };
const stateKey = { STATE_KEYS };
const outputKey = { OUTPUT_KEYS };
const run = { STATEMENTS };
export const config = { source: 'asked', sink: 'made', emits: ['keyed'], partitions: 1 };
stream.map(({ n, way, name }, context) => {
  state.sums.all = (state.sums.all || 0) + n;
  switch (way) {
    case 'value': return { name, value: value[name]() };
    case 'state': state.made[name] = { value: value[name]() }; break;
    case 'stateKey': state.byKey[stateKey[name]()] = name; break;
    case 'outputKey': context.emit('keyed', name, { key: outputKey[name]() }); break;
    case 'run': run[name](context); break;
  }
  return { name, sum: state.sums.all };
});
"""


def table_of(sources: dict[str, str], form: str = "() => ({})") -> str:
    return ", ".join(f"{json.dumps(name)}: {form.replace('{}', source)}" for name, source in sources.items())


def test_what_a_function_makes_throws_and_logs_costs_no_good_event(
    database_url: str, record_property: Callable[[str, object], None], figures: Figures
) -> None:
    made = {name: source for name, (source, _) in values.VALUES.items()}
    bad = {case.name: case.data for case in values.BAD_VALUES}
    state_keys = {name: source for name, (source, _) in values.STATE_KEYS.items()}
    bad_state_keys = {case.name: case.data for case in values.BAD_STATE_KEYS}
    output_keys = {name: source for name, (source, _) in values.OUTPUT_KEYS.items()}
    bad_output_keys = {case.name: case.data for case in values.BAD_OUTPUT_KEYS}
    source = (
        MADE_JS.replace("VALUES", table_of(made | bad), 1)
        .replace("STATE_KEYS", table_of(state_keys | bad_state_keys), 1)
        .replace("OUTPUT_KEYS", table_of(output_keys | bad_output_keys), 1)
        .replace("STATEMENTS", table_of(values.THROWN | values.LOGGED, "context => { {} }"), 1)
    )
    asked = [
        *(("value", name) for name in made | bad),
        *(("state", name) for name in made | bad),
        *(("stateKey", name) for name in state_keys | bad_state_keys),
        *(("outputKey", name) for name in output_keys | bad_output_keys),
        *(("run", name) for name in values.THROWN | values.LOGGED),
    ]
    failing = bad.keys() | bad_state_keys.keys() | bad_output_keys.keys() | values.THROWN.keys()
    events: list[dict[str, Any]] = []
    for way, name in asked:
        events += [{"n": len(events) + n, "name": "good"} for n in range(5)]
        events.append({"n": len(events), "way": way, "name": name})
    good = sum("way" not in event for event in events)
    assert good > GOOD_AROUND
    with Cluster(database_url, workers=2, environment=PATIENT) as cluster:
        cluster.deploy(source, "maker")
        before = [worker.pid for worker in cluster.workers()]
        rows = "\n".join(json.dumps(event) for event in events).encode()
        cluster.jeet("publish", "asked", stdin=rows)
        cluster.drain("maker", 300)
        dead = cluster.sql("select event::json->>'way', event::json->>'name', error from jeet.dead_letters")
        assert sorted((way, name) for way, name, _ in dead) == sorted((w, n) for w, n in asked if n in failing)
        cases = values.BAD_VALUES + values.BAD_STATE_KEYS + values.BAD_OUTPUT_KEYS
        parts = {case.name: case.code or "" for case in cases}
        assert {name: error for _, name, error in dead if parts.get(name, "") not in error} == {}
        # Good events: each once, in order, with the running sum that knows nothing of the failed ones.
        through = [event for event in events if event["name"] not in failing]
        sums = list(accumulate(event["n"] for event in through))
        made_events = "select value from jeet.stream_events where stream = 'made' order by \"offset\""
        outputs = [value for (value,) in cluster.sql(made_events)]
        assert [output["name"] for output in outputs] == [event["name"] for event in through]
        assert [output.get("sum", total) for total, output in zip(sums, outputs, strict=True)] == sums
        wanted = {name: exact_value(value) for name, (_, value) in values.VALUES.items()}
        assert {one["name"]: exact_value(one["value"]) for one in outputs if "value" in one} == wanted
        entries = cluster.sql("select collection, key, value from jeet.state where function = 'maker'")
        state = {(collection, key): value for collection, key, value in entries}
        assert {key: exact_value(value["value"]) for (name, key), value in state.items() if name == "made"} == wanted
        assert {value: key for (name, key), value in state.items() if name == "byKey"} == {
            name: key for name, (_, key) in values.STATE_KEYS.items()
        }
        keyed = dict(cluster.sql("select value #>> '{}', key from jeet.stream_events where stream = 'keyed'"))
        assert keyed == {name: key for name, (_, key) in values.OUTPUT_KEYS.items()}
        assert [worker.pid for worker in cluster.workers()] == before
        # What was thrown and logged can be read by everybody, and cannot command a terminal.
        for command in (("logs", "maker"), ("dlq", "list"), ("state", "maker"), ("tail", "keyed"), ("tail", "made")):
            for form in ((), ("--json",)):
                shown = cluster.jeet(*command, *form).stdout.decode()
                assert "\x1b" not in shown, command
                assert "\0" not in shown, command
        for (number,) in cluster.sql("select id from jeet.dead_letters where event::json->>'way' = 'run'"):
            assert "\x1b" not in cluster.jeet("dlq", "show", str(number)).stdout.decode()
        logged = cluster.value("select count(*) from jeet.logs where function = 'maker'")
    found = {
        "bad values, keys, errors and log lines tried": len(dead) + len(values.LOGGED),
        "odd but good ones": len(asked) - len(dead) - len(values.LOGGED),
        "good events around them": good,
        "log lines": logged,
        "processes lost": 0,
        "good events lost": 0,
        "silent changes": 0,
    }
    tell(figures, record_property, "bad input, made by a function", found)


async def test_keys_of_every_kind_lead_to_their_own_state_and_partition(
    database_url: str, record_property: Callable[[str, object], None], figures: Figures
) -> None:
    source = """export const config = { source: 'keyed', sink: 'counts', key: 'k', partitions: 4 };
    stream.map(({ k }, context) => {
      state.counts[context.key] = (state.counts[context.key] || 0) + 1;
      return { key: context.key, partition: context.partition, count: state.counts[context.key] };
    });"""
    good = {name: text for name, (text, _) in beside.KEY_TEXTS.items()}
    bad = {case.name: case.data for case in beside.BAD_KEY_TEXTS}
    wanted = {key for _, key in beside.KEY_TEXTS.values()}
    with Cluster(database_url, workers=2, environment=PATIENT) as cluster:
        cluster.deploy(source, "counter")
        lines = [f'{{"k":{text}}}'.encode() for text in (good | bad).values()] * 5
        lines += [b'{"k":"k%d"}' % (n % 100) for n in range(GOOD_AROUND)]
        async with Producer(database_url) as producer:
            done = await producer.publish_lines("keyed", io.BytesIO(b"\n".join(lines)))
        assert done.refused == 5 * len(bad)
        cluster.drain("counter", 120)
        assert cluster.value("select count(*) from jeet.dead_letters") == 0
        counts: dict[str, int] = {}
        for value, key, partition in cluster.sql(
            "select value, key, jeet.partition_of(key, 4) from jeet.stream_events"
            " where stream = 'counts' order by partition, \"offset\""
        ):
            counts[key] = counts.get(key, 0) + 1
            assert value == {"key": key, "partition": partition, "count": counts[key]}
        assert wanted | {f"k{n}" for n in range(100)} == counts.keys()
        assert sum(counts.values()) == done.written
        kept = dict(cluster.sql("select key, value from jeet.state where function = 'counter'"))
        assert kept == counts
    found = {"keys tried": len(counts), "refused": done.refused, "in another partition": 0, "good events lost": 0}
    tell(figures, record_property, "keys of every kind", found)
