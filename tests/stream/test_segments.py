"""Segments of the log are made ahead by whoever appends, wait for nobody, and go when nobody needs them."""

from __future__ import annotations

import threading
from datetime import timedelta

import psycopg
import pytest
from asyncpg import Connection

from jeet.ids import Offset, Partition, StreamId
from jeet.stream.fetch import EventsLost, Want, fetch
from jeet.stream.retention import drop_segments
from logtools import MakeStream


def append(db: psycopg.Connection, stream: int, count: int, key: str = "k") -> None:
    keys, values = "\n".join([f'"{key}"'] * count), "\n".join(["1"] * count)
    db.execute("select jeet_internal.append(array[%s], array[%s], array[%s])", (stream, keys, values))


def segments(db: psycopg.Connection, stream: int) -> list[int]:
    rows = db.execute(
        """select substring(inhrelid::regclass::text from '[0-9]+$')::int from pg_inherits
            where inhparent = format('jeet_internal.event_%%s', %s::int)::regclass order by 1""",
        (stream,),
    )
    return [row[0] for row in rows]


def test_two_segments_are_ahead_of_every_append(db: psycopg.Connection, make_stream: MakeStream) -> None:
    stream = make_stream("s", 1, small=True)
    assert segments(db, stream) == [0, 1, 2]
    append(db, stream, 999)
    assert segments(db, stream) == [0, 1, 2]
    append(db, stream, 1)
    append(db, stream, 1)
    assert segments(db, stream) == [0, 1, 2, 3]


def test_one_append_may_be_larger_than_any_number_of_segments(db: psycopg.Connection, make_stream: MakeStream) -> None:
    stream = make_stream("s", 1, small=True)
    append(db, stream, 500)
    append(db, stream, 7300)
    assert segments(db, stream) == list(range(10))
    assert db.execute("""select count(*), max("offset") from jeet.stream_events where stream = 's'""").fetchone() == (
        7800,
        7799,
    )


def test_a_reader_that_stays_open_holds_up_neither_appends_nor_new_segments(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 2, key="k", small=True)
    db.execute("set lock_timeout = '2s'")
    with psycopg.connect(database_url) as reader:
        reader.execute("select count(*) from jeet.stream_events")
        reader.execute("declare c cursor for select * from jeet_internal.event")
        reader.execute("fetch 1 from c")
        append(db, stream, 2500)
        db.execute("select jeet.publish('s', '{\"k\":1}')")
        assert segments(db, stream)[-1] == 4


def test_a_publisher_that_makes_a_segment_and_stays_open_holds_up_nobody_else(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 8, key="k", small=True)
    append(db, stream, 1000, "a")
    db.execute("set lock_timeout = '2s'")
    with psycopg.connect(database_url) as slow:
        slow.execute("select jeet.publish('s', '{\"k\":\"a\"}')")  # enters segment 1, makes segment 3, does not commit
        append(db, stream, 1500, "b")  # enters segment 1 as well
        assert segments(db, stream) == [0, 1, 2]
        slow.commit()
    append(db, stream, 1, "b")
    assert segments(db, stream) == [0, 1, 2, 3]


def test_many_who_need_a_segment_at_once_make_it_once(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 8, small=True)
    failures: list[Exception] = []

    def publish() -> None:
        try:
            with psycopg.connect(database_url, autocommit=True) as mine:
                for _ in range(15):
                    mine.execute("select count(*) from jeet.publish_many('s', array_fill('1'::json, array[1600]))")
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=publish) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert db.execute("select count(*) from jeet.stream_events").fetchone() == (6 * 15 * 1600,)


def test_publishing_from_a_query_over_the_same_stream_works(db: psycopg.Connection, make_stream: MakeStream) -> None:
    stream = make_stream("s", 1, small=True)
    append(db, stream, 1600)
    db.execute("select count(jeet.publish('s', value)) from jeet.stream_events where stream = 's'")
    assert db.execute("select head from jeet.streams").fetchone() == (3200,)
    append(db, stream, 100)
    assert segments(db, stream)[-1] == 5


def age(db: psycopg.Connection, by: timedelta, below: int) -> None:
    db.execute('update jeet_internal.event set published_at = published_at - %s where "offset" < %s', (by, below))


def consumer(db: psycopg.Connection, stream: int, positions: list[int]) -> None:
    """A deployed function, as far as the log can see."""
    db.execute(
        """with f as (insert into jeet_internal.function (name, version) values ('f', 1) returning id),
                t as (insert into jeet_internal.task (function_id, partition, version)
                      select f.id, p - 1, 1 from f, generate_series(1, cardinality(%(positions)s::bigint[])) p
                      returning id, partition)
           insert into jeet_internal.checkpoint (task_id, stream_id, next_offset)
           select t.id, %(stream)s, (%(positions)s::bigint[])[t.partition + 1] from t""",
        {"stream": stream, "positions": positions},
    )


async def test_retention_drops_whole_old_segments_and_never_passes_a_checkpoint(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 1, small=True)
    append(db, stream, 4500)
    consumer(db, stream, [2500])
    assert await drop_segments(data) == 0
    db.execute("update jeet_internal.stream set retention = '1 day'")
    assert await drop_segments(data) == 0
    age(db, timedelta(days=2), 3000)
    assert await drop_segments(data) == 2
    assert segments(db, stream) == [2, 3, 4, 5, 6]
    assert db.execute("select first_offset, head, barred from jeet_internal.head").fetchone() == (2000, 4500, None)
    db.execute("update jeet_internal.checkpoint set next_offset = 4500")
    assert await drop_segments(data) == 1
    age(db, timedelta(days=2), 4500)
    # The one that is written to stays, however old.
    assert await drop_segments(data) == 1
    assert segments(db, stream)[0] == 4
    append(db, stream, 10)
    with pytest.raises(EventsLost, match=r"\[2500,4000\)"):
        await fetch(data, [Want(StreamId(stream), Partition(0), Offset(2500), 10, 1000)])
    assert (await fetch(data, [Want(StreamId(stream), Partition(0), Offset(4000), 1000, 10**6)]))[0].count == 510


async def test_a_partition_that_gets_little_keeps_its_segment_and_may_grow_into_a_dropped_one(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 8, key="k", small=True)
    db.execute("update jeet_internal.stream set retention = '1 day'")
    append(db, stream, 3500, "a")
    append(db, stream, 900, "b")
    age(db, timedelta(days=2), 10**6)
    assert await drop_segments(data) == 2
    assert segments(db, stream) == [0, 3, 4, 5]
    append(db, stream, 1500, "b")
    rows = db.execute(
        'select key, count(*), min("offset"), max("offset") from jeet.stream_events where key = \'b\' group by key'
    ).fetchall()
    assert rows == [("b", 2400, 0, 2399)]


async def test_max_bytes_passes_checkpoints_but_says_how_much_is_lost(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream, caplog: pytest.LogCaptureFixture
) -> None:
    stream = make_stream("s", 1, small=True)
    append(db, stream, 4500)
    consumer(db, stream, [700])
    db.execute("update jeet_internal.stream set max_bytes = jeet_internal.stream_bytes(id) - 150000")
    assert await drop_segments(data) == 2
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    with pytest.raises(EventsLost, match=r"\[700,2000\)"):
        await fetch(data, [Want(StreamId(stream), Partition(0), Offset(700), 10, 1000)])


async def test_a_reader_that_stays_open_delays_retention_and_nobody_else(
    database_url: str, db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 1, small=True)
    append(db, stream, 2500)
    db.execute("update jeet_internal.stream set retention = '1 day'")
    age(db, timedelta(days=2), 2000)
    await data.execute("set lock_timeout = '100ms'")
    with psycopg.connect(database_url) as reader:
        reader.execute("select count(*) from jeet.stream_events where stream = 's'")
        # Barred and half detached: readers and publishers go on, and the next time takes it up where it stopped.
        assert await drop_segments(data) == 0
        assert db.execute("select first_offset, barred from jeet_internal.head").fetchone() == (1000, 0)
        append(db, stream, 1200)
        assert await drop_segments(data) == 0
        db.execute("select jeet.publish('s', '1')")
    assert await drop_segments(data) == 2
    assert db.execute("select first_offset, head, barred from jeet_internal.head").fetchone() == (2000, 3701, None)
    assert segments(db, stream) == [2, 3, 4, 5]


async def test_a_role_that_does_not_own_the_log_can_let_go_of_it_too(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 1, small=True)
    append(db, stream, 2500)
    db.execute("update jeet_internal.stream set retention = '1 day'")
    age(db, timedelta(days=2), 2000)
    await data.execute("set role jeet_worker")
    assert await drop_segments(data) == 2
    await data.execute("select jeet_internal.append($1, $2, $3)", [stream], [""], ["\n".join(["1"] * 3000)])
    assert segments(db, stream) == [2, 3, 4, 5, 6, 7]


async def test_no_append_enters_a_segment_that_is_being_dropped(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = make_stream("s", 8, key="k", small=True)
    append(db, stream, 2500, "a")
    append(db, stream, 990, "b")
    db.execute("update jeet_internal.head set barred = 1")
    append(db, stream, 10, "b")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        append(db, stream, 1, "b")
    append(db, stream, 10, "a")
    db.execute("update jeet_internal.head set barred = null")
    append(db, stream, 1, "b")
