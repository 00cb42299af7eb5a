"""jeet.publish and jeet.publish_many: what they take, where events go, what is refused and by what name."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Json, Jsonb

from jeet.sandbox.gate import key_of
from logtools import MakeStream


def refused(db: psycopg.Connection, state: str, code: str, statement: str, *values: Any) -> str:
    with pytest.raises(psycopg.Error) as caught:
        db.execute(statement, values)
    assert caught.value.sqlstate == state
    assert caught.value.diag.message_detail == code
    return str(caught.value.diag.message_primary)


def log(db: psycopg.Connection, stream: str) -> list[tuple[Any, ...]]:
    return db.execute(
        'select partition, "offset", key, value::text, headers, ts from jeet.stream_events'
        " where stream = %s order by 1, 2",
        (stream,),
    ).fetchall()


def test_a_literal_a_text_a_json_and_a_jsonb_event_all_resolve(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("orders", 1)
    assert db.execute("""select jeet.publish('orders', '{"a": 1}')""").fetchone() == (("0", "0"),)
    assert db.execute("select * from jeet.publish('orders', '[1]'::text)").fetchone() == (0, 1)
    assert db.execute("select * from jeet.publish('orders', '[1]'::json)").fetchone() == (0, 2)
    assert db.execute("select * from jeet.publish('orders', '[1]'::jsonb)").fetchone() == (0, 3)
    for event in ('{"b":2}', Json({"b": 2}), Jsonb({"b": 2})):
        db.execute("select jeet.publish(%s, %s)", ("orders", event))
    db.execute("select jeet.publish(stream => 'orders', event => '1', headers => '{\"h\": 1}', id => 'x')")
    db.execute("select jeet.publish('orders', row_to_json(r)) from (select 1 as a) r")
    assert [row[3] for row in log(db, "orders")] == [
        '{"a": 1}', "[1]", "[1]", "[1]", '{"b":2}', '{"b": 2}', '{"b": 2}', "1", '{"a":1}',
    ]  # fmt: skip


def test_publish_is_part_of_the_callers_transaction(database_url: str, make_stream: MakeStream) -> None:
    make_stream("orders", 1)
    with psycopg.connect(database_url) as caller, psycopg.connect(database_url, autocommit=True) as other:
        caller.execute("select jeet.publish('orders', '1')")
        assert log(other, "orders") == []
        caller.rollback()
        caller.execute("select jeet.publish('orders', '2')")
        caller.commit()
        assert [(row[1], row[3]) for row in log(other, "orders")] == [(0, "2")]


def test_the_key_comes_from_the_event_or_beside_it_but_never_two_ways(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 8, key="user.id")
    for event, given, key in [
        ('{"user":{"id":"u1"}}', None, "u1"),
        ('{"user":{"id":7}}', None, "7"),
        ('{"user":{"id":7}}', "7", "7"),
        ('{"user":{"id":"\\u00e9"}}', "é", "é"),
        ('{"user":{"id":""}}', None, ""),
        ("{}", "beside", "beside"),
        ('{"user":3}', "beside", "beside"),
        ('{"user":{"id":"first","id":"last"}}', None, "last"),
    ]:
        row = db.execute("select * from jeet.publish('orders', %s::text, %s)", (event, given)).fetchone()
        assert row is not None
        assert row[0] == zlib.crc32(key.encode()) % 8
        assert db.execute(
            "select key from jeet.stream_events where stream = 'orders' and partition = %s and \"offset\" = %s", row
        ).fetchone() == (key,)
    call = "select jeet.publish('orders', %s::text, %s)"
    assert '"user.id"' in refused(db, "JT110", "key_missing", call, "{}", None)
    assert '"other"' in refused(db, "JT113", "key_mismatch", call, '{"user":{"id":"u1"}}', "other")
    for value in ("null", "true", "1.5", "1e3", "9007199254740992.0", "[1]", '{"x":1}'):
        assert value in refused(db, "JT111", "key_type", call, f'{{"user":{{"id":{value}}}}}', None)
    refused(db, "JT112", "key_bytes", call, json.dumps({"user": {"id": "é" * 513}}), None)
    refused(db, "JT112", "key_bytes", call, "{}", "x" * 1025)
    db.execute(call, (json.dumps({"user": {"id": "é" * 512}}), None))


REPEATED_NAMES = [
    ("a.b", '{"a":{"b":"first"},"a":{}}', None),
    ("a.b", '{"a":{"b":"first"},"a":3}', None),
    ("a.b", '{"a":{"b":"first"},"a":{"b":"last"}}', "last"),
    ("a.b", '{"a":{"b":"first"},"c":{"b":"other"},"a":{"b":1,"b":"last"}}', "last"),
    ("a.b.c", '{"a":{"b":{"c":"first"}},"a":{"b":{}}}', None),
    ("a.b.c", '{"a":{"b":{"c":"first"},"b":{}}}', None),
    ("a.0.c", '{"a":[{"c":"first","c":"last"}]}', "last"),
]


@pytest.mark.parametrize(("path", "event", "key"), REPEATED_NAMES)
def test_of_repeated_names_on_the_way_to_key_and_id_the_last_counts_as_in_javascript(
    db: psycopg.Connection, make_stream: MakeStream, path: str, event: str, key: str | None
) -> None:
    assert key_of(json.loads(event), path.split(".")) == key
    make_stream("keyed", 8, key=path)
    make_stream("plain", 8)
    one = "select jeet.publish('keyed', %s::text)"
    if key is None:
        refused(db, "JT110", "key_missing", one, event)
    else:
        db.execute(one, (event,))
    reasons = [
        db.execute("select error from jeet.publish_many('keyed', array[%s::json])", (event,)).fetchone(),
        db.execute(
            "select reasons[1] from jeet.publish_lines('plain', %s, id_path => string_to_array(%s, '.'))", (event, path)
        ).fetchone(),
    ]
    codes = [reason and reason[0] and reason[0].split(":")[0] for reason in reasons]
    assert codes == ([None, None] if key else ["key_missing", "id_missing"])
    assert [row[2] for row in log(db, "keyed")] == [key, key] * bool(key)
    assert db.execute("select id from jeet_internal.publish_id").fetchall() == [(key,)] * bool(key)


def test_without_keys_events_go_round_and_with_an_id_by_it(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("plain", 4)
    places = [db.execute("select (jeet.publish('plain', '1')).partition").fetchone() for _ in range(8)]
    assert sorted(places) == sorted([(p,) for p in range(4)] * 2)
    assert db.execute("select (jeet.publish('plain', '1', key => 'k')).partition").fetchone() == (zlib.crc32(b"k") % 4,)
    assert db.execute("select (jeet.publish('plain', '1', id => 'k')).partition").fetchone() == (zlib.crc32(b"k") % 4,)
    rows = db.execute("select partition from jeet.publish_many('plain', array_fill('1'::json, array[400]))").fetchall()
    assert sorted(rows) == sorted([(p,) for p in range(4)] * 100)


def test_time_and_headers_are_kept_and_checked(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("orders", 1)
    at = datetime(2026, 3, 1, 12, 0, 0, 123000, UTC)
    db.execute("select jeet.publish('orders', '1', null, %s, %s)", (Jsonb({"trace": "t"}), at))
    assert log(db, "orders")[0][4:] == ({"trace": "t"}, at)
    call = "select jeet.publish('orders', '1', null, %s)"
    refused(db, "JT117", "headers_type", call, Jsonb([1]))
    refused(db, "JT118", "headers_bytes", call, Jsonb({"h": "x" * 17000}))
    refused(db, "JT106", "integer_range", call, Jsonb({"h": 2**60}))


def test_a_time_that_javascript_has_not_is_refused(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("orders", 1)
    call = "select jeet.publish('orders', '1', ts => %s::timestamptz)"
    for time in ("infinity", "-infinity", "275760-09-13 00:00:00.001+00", "294276-12-31"):
        refused(db, "JT119", "ts_range", call, time)
    for time in ("275760-09-13 00:00:00+00", "4713-01-01 BC", "1969-12-31 23:59:59.9+00"):
        db.execute(call, (time,))
    assert db.execute("select head from jeet.streams where name = 'orders'").fetchone() == (3,)


def test_line_breaks_between_tokens_become_spaces_and_nothing_else_is_touched(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 1)
    db.execute("select jeet.publish('orders', %s::text)", ('{\r\n  "a" : 1.10,\n"b":"x\\ny"\t}',))
    db.execute("select * from jeet.publish_many('orders', array[%s]::json[])", ('{\n"a":1.10\r}',))
    assert [row[3] for row in log(db, "orders")] == ['{    "a" : 1.10, "b":"x\\ny"\t}', '{ "a":1.10 }']


def test_publish_many_reports_bad_rows_and_writes_the_good_ones(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 4, key="u")
    events = [
        '{"u":"a"}',
        "{}",
        '{"u":"\\u0000"}',
        '{"u":[1]}',
        '{"u":"b","n":9007199254740993}',
        '{"u":"a","n":2}',
        None,
    ]
    rows = db.execute(
        "select ord, partition, \"offset\", error from jeet.publish_many('orders', %s::text[]::json[])", (events,)
    ).fetchall()
    place = zlib.crc32(b"a") % 4
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert rows[0][1:] == (place, 0, None)
    assert rows[5][1:] == (place, 1, None)
    codes = [row[3].split(":")[0] for row in rows if row[3]]
    assert codes == ["key_missing", "nul", "key_type", "integer_range", "not_json"]
    assert [row[3] for row in log(db, "orders")] == ['{"u":"a"}', '{"u":"a","n":2}']


def test_keys_and_ids_of_publish_many_go_with_their_events(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("plain", 8)
    rows = db.execute(
        "select error from jeet.publish_many('plain', '{1,2,3,4}'::json[], '{a,b,NULL,%s}', '{i,NULL,j,k}')"
        % ("x" * 1025)
    ).fetchall()
    assert [row[0] and row[0].split(":")[0] for row in rows] == [None, None, None, "key_bytes"]
    assert sorted((row[3], row[2]) for row in log(db, "plain")) == [("1", "a"), ("2", "b"), ("3", None)]
    with pytest.raises(errors.ArraySubscriptError):
        db.execute("select * from jeet.publish_many('plain', '{1,2}'::json[], '{a}')")
    assert db.execute("select * from jeet.publish_many('plain', '{}'::json[])").fetchall() == []


def test_a_stream_that_is_not_there_is_an_error_that_says_what_to_do(db: psycopg.Connection) -> None:
    for call in ("select jeet.publish('nope', '1')", "select * from jeet.publish_many('nope', '{1}'::json[])"):
        with pytest.raises(psycopg.Error, match="create_stream") as caught:
            db.execute(call)
        assert caught.value.sqlstate == "JT120"


def test_an_internal_stream_takes_no_events_from_outside(db: psycopg.Connection) -> None:
    db.execute("select jeet_internal.create_stream('f/1', 4, p_internal => true)")
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select jeet.publish('f/1', '1')")
    assert caught.value.sqlstate == "JT120"


def test_a_full_stream_refuses_every_publisher_by_a_state_of_its_own(
    db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders")
    db.execute("update jeet_internal.stream set max_lag = 10, over_lag = true")
    for call in (
        "select jeet.publish('orders', '1')",
        "select * from jeet.publish_many('orders', '{1}'::json[])",
        "select * from jeet.publish_lines('orders', '1')",
    ):
        with pytest.raises(psycopg.Error, match="more than 10 events behind") as caught:
            db.execute(call)
        assert caught.value.sqlstate == "JT121"
    assert log(db, "orders") == []


def test_a_name_that_would_be_trouble_later_is_refused_at_creation(db: psycopg.Connection) -> None:
    for name in ("", "a b", "-x", ".x", "a/b", "é", "x" * 129, "a\nb", "a;drop", None):
        with pytest.raises(psycopg.Error) as caught:
            db.execute("select jeet_internal.create_stream(%s, 8)", (name,))
        assert caught.value.sqlstate == "JT130"
    assert db.execute("select count(*) from jeet_internal.stream").fetchone() == (0,)


def test_a_stream_is_made_once_and_other_settings_are_refused(db: psycopg.Connection) -> None:
    make = "select jeet_internal.create_stream('s', %s, %s, %s)"
    first = db.execute(make, (8, "a.b", "7 days")).fetchone()
    assert db.execute(make, (8, "a.b", "168 hours")).fetchone() == first
    for values in [(4, "a.b", "7 days"), (8, None, "7 days"), (8, "a.b", None)]:
        with pytest.raises(psycopg.Error, match="other settings") as caught:
            db.execute(make, values)
        assert caught.value.sqlstate == "JT131"
    for partitions, key, retention in [
        (0, None, None),
        (4097, None, None),
        (8, "a..b", None),
        (8, "", None),
        (8, "a.01", None),
        (8, "a b", None),
        (8, None, "-1 day"),
    ]:
        with pytest.raises(psycopg.Error) as caught:
            db.execute("select jeet_internal.create_stream('t', %s, %s, %s)", (partitions, key, retention))
        assert caught.value.sqlstate == "JT130"


def test_names_that_look_like_something_else_are_just_names(db: psycopg.Connection) -> None:
    for name in ("1e5", "None", "3.10", "0x10", "order_2", "_a-b.c"):
        db.execute("select jeet_internal.create_stream(%s, 2)", (name,))
        db.execute("select jeet.publish(%s, '1')", (name,))
        assert db.execute("select head from jeet.streams where name = %s", (name,)).fetchall() == [(1,)]
