"""An event with an id is in its stream once, however often, by whomever and how concurrently it is published."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

import psycopg

from logtools import MakeStream


def stored(db: psycopg.Connection, stream: str) -> list[str]:
    return [row[0] for row in db.execute("select value::text from jeet.stream_events where stream = %s", (stream,))]


def test_a_repeat_gives_the_first_place_and_writes_nothing(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("s", 8, key="k")
    first = db.execute("""select * from jeet.publish('s', '{"k":1,"v":"first"}', id => 'a')""").fetchone()
    db.execute("""select * from jeet.publish('s', '{"k":2}')""")
    # Also with other content and another key: the id decides.
    assert db.execute("""select * from jeet.publish('s', '{"k":2,"v":"again"}', id => 'a')""").fetchone() == first
    rows = db.execute(
        """select partition, "offset", error
             from jeet.publish_many('s', array['{"k":3}', '{"k":4}']::json[], null, array['a', 'b'])"""
    ).fetchall()
    assert rows[0] == (*(first or ()), None)
    assert sorted(stored(db, "s")) == ['{"k":1,"v":"first"}', '{"k":2}', '{"k":4}']


def test_an_id_twice_in_one_call_is_written_once(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("s", 8, key="k")
    events = [json.dumps({"k": n, "n": n}) for n in range(6)]
    rows = db.execute(
        "select ord, partition, \"offset\" from jeet.publish_many('s', %s::text[]::json[], null, %s)",
        (events, ["a", "b", "a", None, "b", None]),
    ).fetchall()
    places = {row[0]: row[1:] for row in rows}
    assert places[3] == places[1]
    assert places[5] == places[2]
    assert sorted(stored(db, "s")) == [events[0], events[1], events[3], events[5]]


def test_a_rolled_back_id_is_free_again(database_url: str, make_stream: MakeStream) -> None:
    make_stream("s", 2)
    with psycopg.connect(database_url) as db:
        db.execute("select jeet.publish('s', '1', id => 'a')")
        db.rollback()
        db.execute("select jeet.publish('s', '2', id => 'a')")
        db.commit()
        assert stored(db, "s") == ["2"]


def test_after_its_window_an_id_counts_as_new(db: psycopg.Connection, make_stream: MakeStream) -> None:
    make_stream("s", 1)
    call = """select "offset" from jeet.publish('s', '1', id => 'a')"""
    bulk = """select "offset" from jeet.publish_many('s', '{1}'::json[], null, '{a}')"""
    expire = "update jeet_internal.publish_id set expires_at = now() - interval '1 s'"
    offsets = [db.execute(statement).fetchone() for statement in (call, bulk, call)]
    db.execute(expire)
    offsets += [db.execute(statement).fetchone() for statement in (call, bulk)]
    db.execute(expire)
    offsets += [db.execute(statement).fetchone() for statement in (bulk, call)]
    assert offsets == [(0,), (0,), (0,), (1,), (1,), (2,), (2,)]


def test_an_id_that_expires_while_it_is_published_again_still_has_its_place(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 1)
    first = db.execute("select * from jeet.publish('s', '1', id => 'a')").fetchone()
    found: list[Any] = []

    def publish() -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            call = (
                """select partition, "offset", error from jeet.publish_many('s', '{1,2,3}'::json[], null, '{a,b,b}')"""
            )
            found.extend(other.execute(call).fetchall())

    # Halfway, after it has looked for the ids and before it answers, the call waits for this transaction's id.
    with psycopg.connect(database_url) as blocker:
        blocker.execute("insert into jeet_internal.publish_id values (%s, 'b', 0, 9, 'infinity')", (s,))
        publishing = threading.Thread(target=publish)
        publishing.start()
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%publish_many%'"
        deadline = time.monotonic() + 20
        while db.execute(waits).fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        db.execute("delete from jeet_internal.publish_id where id = 'a'")
        blocker.rollback()
    publishing.join()
    assert found == [(*(first or ()), None), (0, 1, None), (0, 1, None)]


def test_many_publishers_of_the_same_ids_at_once_write_each_once(database_url: str, make_stream: MakeStream) -> None:
    make_stream("s", 8, key="k")
    names = [f"id{n}" for n in range(120)]
    answers: list[dict[str, Any]] = []
    failures: list[Exception] = []

    def publish(number: int) -> None:
        choose = random.Random(number)
        answer: dict[str, Any] = {}
        try:
            with psycopg.connect(database_url, autocommit=True) as db:
                left = choose.sample(names, len(names))
                while left:
                    some = [left.pop() for _ in range(min(len(left), choose.randint(1, 12)))]
                    # Each publisher gives the same id another key, so that it meets the others in other partitions too.
                    events = [json.dumps({"k": f"{name}-{number % 3}", "id": name}) for name in some]
                    if len(some) == 1:
                        row = db.execute("select * from jeet.publish('s', %s::text, id => %s)", (events[0], some[0]))
                        answer[some[0]] = row.fetchone()
                    else:
                        rows = db.execute(
                            "select partition, \"offset\" from jeet.publish_many('s', %s::text[]::json[], null, %s)",
                            (events, some),
                        ).fetchall()
                        answer.update(zip(some, rows, strict=True))
        except Exception as error:  # noqa: BLE001  # told by the assertion below
            failures.append(error)
        answers.append(answer)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with psycopg.connect(database_url) as db:
        where = {
            row[0]: row[1:]
            for row in db.execute(
                "select value->>'id', partition, \"offset\" from jeet.stream_events where stream = 's'"
            ).fetchall()
        }
        assert sorted(json.loads(text)["id"] for text in stored(db, "s")) == sorted(names)
    for answer in answers:
        assert answer == where
