"""The graph as deploy reads it, and mistakes in it: one line each, with file and line."""

from __future__ import annotations

from typing import Any

import pytest

from jeet.errors import DeployError
from jeet.sandbox.describe import Description, operator_state
from jeet.sandbox.plugin import Plugin


def described(plugin: Plugin, source: str) -> Description:
    return plugin.describe(plugin.compile(source, "f.js"))


def node(plugin: Plugin, source: str, place: int = -1) -> dict[str, Any]:
    return dict(described(plugin, source).graph[place])


def test_windows_and_joins_are_values_with_durations_in_milliseconds(plugin: Plugin) -> None:
    source = """export const config = { source: 'orders' };
    const orders = stream.keyBy('user.id', { partitions: 4, name: 'byUser' });
    orders.window({ hopping: { size: '1m', every: '10s' }, time: 'at', delay: '5s', grace: '1500ms', emit: 'both', lateTo: 'late', idle: '1m', name: 'minutes' })
      .aggregate({ init: () => 0, add: (acc, e) => acc + e.n });
    orders.window({ session: '30s', time: e => e.at }).count();
    orders.join(stream.table('customers', { ttl: '7d' }), { kind: 'left' }, (order, customer) => order);
    orders.join(stream.from('payments').keyBy(p => p.user), (order, payment) => payment, { within: '5m', name: 'paid' });
    """  # noqa: E501
    read = described(plugin, source)
    ops = [(n["id"], n["op"], n["inputs"]) for n in read.graph]
    assert ops == [
        (0, "source", []),
        (1, "keyBy", [0]),
        (2, "window", [1]),
        (3, "window", [1]),
        (4, "table", []),
        (5, "join", [1, 4]),
        (6, "source", []),
        (7, "keyBy", [6]),
        (8, "join", [1, 7]),
    ]
    graph = [{k: v for k, v in n.items() if k not in ("text", "time_text")} for n in read.graph]
    assert [n["line"] for n in graph] == [0, 2, 4, 5, 6, 6, 7, 7, 7]
    for one in graph:
        del one["line"], one["id"], one["op"], one["inputs"]
    assert graph[1] == {"path": "user.id", "partitions": 4, "name": "byUser"}
    assert graph[2] == {
        "window": {
            "kind": "hopping",
            "size_ms": 60_000,
            "every_ms": 10_000,
            "delay_ms": 5000,
            "grace_ms": 1500,
            "emit": "both",
            "late_to": "late",
            "idle_ms": 60_000,
            "time": "path",
            "time_text": "at",
        },
        "how": "aggregate",
        "name": "minutes",
        "collection": "minutes",
    }
    assert graph[3]["window"]["gap_ms"] == 30_000
    assert graph[3]["window"]["time"] == "function"
    assert (graph[3]["name"], graph[3]["how"]) == ("window", "count")
    assert graph[4] == {"stream": "customers", "name": "table", "collection": "table", "ttl_ms": 7 * 86_400_000}
    assert graph[5] == {"join": "table", "kind": "left", "name": "join", "collections": []}
    assert graph[6] == {"stream": "payments"}
    assert graph[8] == {
        "join": "stream",
        "kind": "inner",
        "within_ms": 300_000,
        "delay_ms": 0,
        "time": None,
        "name": "paid",
        "collections": ["paid_left", "paid_right"],
    }
    assert [emit.name for emit in read.emits] == ["late"]
    assert read.collections == ()
    assert operator_state(read.graph) == {
        "minutes": None,
        "window": None,
        "table": 7 * 86_400_000,
        "paid_left": None,
        "paid_right": None,
    }


def test_operators_are_named_by_what_they_do_and_numbered_from_the_second_on(plugin: Plugin) -> None:
    source = """
    stream.count(); stream.count(); stream.count({ name: 'mine' }); stream.sum('n', { ttl: '1d' });
    stream.reduce((a, b) => a);
    stream.aggregate({ init: () => 0, add: a => a }); stream.dedupe('id', { ttl: '1h' });
    stream.onTimer(name => name);
    const [big, small] = stream.branch(function big(e) { return e.n > 1; }, e => true);
    big.merge(small).to('all');
    """
    graph = described(plugin, source).graph
    assert [n.get("name") for n in graph[1:9]] == [
        *("count", "count2", "mine", "sum", "reduce", "aggregate", "dedupe", "onTimer"),
    ]
    assert (graph[4]["ttl_ms"], graph[7]["ttl_ms"], graph[7]["path"]) == (86_400_000, 3_600_000, "id")
    assert graph[8]["collection"] is None
    assert [(n["of"], n["place"], n["inputs"], n.get("name")) for n in graph[9:11]] == [
        (9, 0, [0], "big"),
        (9, 1, [0], None),
    ]
    assert graph[11]["inputs"] == [9, 10]


def test_the_text_of_a_key_tells_whether_it_has_changed(plugin: Plugin) -> None:
    texts = [node(plugin, f"stream.keyBy({by})")["text"] for by in ("e => e.a", "e => e.b", "e => e.a")]
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("\nstream.window({ tumbling: '1m' });\nstream.map(e => e);", "f.js:2: TypeError: window is never used"),
        ("stream.map(e => e);\nstream.table('t');", "f.js:2: TypeError: stream.table(\"t\") is never read"),
        ("stream.map(e => e);\nstream.from('t');", "f.js:2: TypeError: stream.from(\"t\") is never read"),
        ("\nstream.window({ tumbling: '1 minute' }).count();", "f.js:2: TypeError: window: tumbling is \"1 minute\""),
        ("stream.window({ tumbling: '0s' }).count();", "a duration is above 0"),
        ("stream.window({ tumbling: '1m', session: '1s' }).count();", "window takes one of tumbling"),
        ("stream.window({}).count();", "window takes one of tumbling"),
        ("stream.window({ tumbling: '1m', delays: '1s' }).count();", 'window has no option "delays"'),
        ("stream.window({ hopping: { size: '1s', every: '2s' } }).count();", "hopping.every is longer"),
        ("stream.window({ hopping: { size: '1h', every: '1s' } }).count();", "more than 1000 windows"),
        ("stream.window({ tumbling: '1m', emit: 'never' }).count();", "there are 'close', 'change' and 'both'"),
        ("stream.window({ tumbling: '1m', time: 5 }).count();", "window: time takes a function or the path"),
        ("stream.window({ session: '1m' }).aggregate({ init: () => 0, add: a => a });", "takes merge"),
        ("stream.window({ tumbling: '1m' }).map(e => e);", "a window is followed by aggregate, reduce, count or sum"),
        ("stream.aggregate({ add: a => a });", "aggregate takes { init"),
        ("stream.count();\nstream.sum('n', { name: 'count' });", 'f.js:2: TypeError: the name "count" is used twice, first in line 1'),  # noqa: E501
        ("stream.count({ name: 'not a name' });", "a name is a letter"),
        ("\nstream.count();\nstream.map(e => state.count[e.k]);", "f.js:2: state.count is used by the code and by this count"),  # noqa: E501
        ("stream.keyBy(5);", "keyBy takes a function or the path of a field"),
        ("stream.keyBy('a..b');", "keyBy takes a function or the path of a field"),
        ("stream.keyBy('a', { partitions: 0 });", "a whole number from 1 to 1024"),
        ("stream.keyBy('a', { name: 'x' }); stream.keyBy('b', { name: 'x' });", 'the name "x" is used twice'),
        ("stream.merge();", "merge takes one or more streams"),
        ("stream.map(e => e).merge(5);", "merge takes streams, not a number"),
        ("stream.merge(stream);", "the same stream twice"),
        ("stream.merge(stream.table('t'));", "a table is read by stream.join"),
        ("stream.table('t').map(e => e);", "a table is read by stream.join"),
        ("stream.join(5, () => 1);", "join takes a stream or stream.table"),
        ("stream.join(stream.table('t'));", "join takes a function"),
        ("stream.join(stream.table('t'), () => 1, { kind: 'outer' });", "there are 'inner' and 'left'"),
        ("stream.join(stream.table('t'), () => 1, { within: '1s' });", 'join has no option "within"'),
        ("stream.join(stream.from('o'), () => 1);", "join of two streams takes within"),
        ("stream.branch();", "branch takes one or more functions"),
        ("stream.dedupe();", "dedupe takes a function or the path"),
        ("stream.dedupe('id', { ttl: 5 });", "dedupe: ttl is 5"),
        ("stream.onTimer('x');", "onTimer takes a function"),
        ("stream.from('');", "stream.from takes the name of a stream"),
        ("export const config = { deterministic: 'no' }; stream.map(e => e);", "config.deterministic must be true"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_graph_names_what_is_wrong_and_where(plugin: Plugin, source: str, error: str) -> None:
    with pytest.raises(DeployError) as refused:
        described(plugin, source)
    assert error in str(refused.value)
    assert str(refused.value).startswith("f.js:")
    assert "\n" not in str(refused.value)
