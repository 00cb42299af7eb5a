"""The producer writes what it reports, once, in order, whatever happens to its connection."""

from __future__ import annotations

import asyncio
import io
import threading
from collections import defaultdict

import psycopg
import pytest
from asyncpg import Connection

from jeet.errors import JeetError, NotFound, Refused, RetryLater, UsageError
from jeet.stream.append import Placed, Producer, Published, PublishInterrupted
from jeet.stream.delivery import StreamFull
from logtools import MakeStream


class Lines(io.RawIOBase):
    """A source that hands out one line at a time and calls back before each."""

    def __init__(self, lines: list[bytes], before: dict[int, threading.Event]) -> None:
        self._lines = list(enumerate(lines))
        self._before = before

    def read1(self, size: int, /) -> bytes:
        if not self._lines:
            return b""
        number, line = self._lines.pop(0)
        if number in self._before:
            assert self._before[number].wait(30)
        return line


def ndjson(count: int, start: int = 0) -> bytes:
    return b"".join(b'{"k":"%d","n":%d}\n' % (n % 7, n) for n in range(start, start + count))


def stored(db: psycopg.Connection, stream: str = "s") -> list[int]:
    rows = db.execute("select value->>'n' from jeet.stream_events where stream = %s", (stream,)).fetchall()
    return sorted(int(row[0]) for row in rows)


async def test_a_file_goes_in_whole_and_each_key_in_order(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 4, key="k")
    progress: list[Published] = []
    async with Producer(database_url) as producer:
        done = await producer.publish_lines("s", io.BytesIO(ndjson(50_000)), on_progress=progress.append)
    assert (done.lines, done.written, done.repeated, done.refused) == (50_000, 50_000, 0, 0)
    assert progress[-1] == done
    assert len(progress) > 1
    assert stored(db) == list(range(50_000))
    by_key = defaultdict(list)
    for key, n in db.execute(
        "select key, value->>'n' from jeet.stream_events where stream = 's' order by partition, \"offset\""
    ):
        by_key[key].append(int(n))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


async def test_bad_lines_are_told_by_number_and_reason_and_the_others_go_in(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 4, key="k")
    lines = [
        b'\xef\xbb\xbf{"k":1,"n":0}\r', b"", b"{", b'{"k":"\xff"}', b'{"n":2}', b'{"k":[1]}',
        b'{"k":1,"n":9007199254740993}',
        b'{"k":1,"n":1}', b'"' + b"x" * 2**20 + b'"', b'{"k":"\\u0000"}', b"\0", b'{"k":2,"n":2}',
    ]  # fmt: skip
    refused: list[Refused] = []
    async with Producer(database_url) as producer:
        done = await producer.publish_lines("s", io.BytesIO(b"\n".join(lines)), on_refused=refused.append)
    assert [(one.line, one.code) for one in refused] == [
        (3, "not_json"), (4, "not_utf8"), (5, "key_missing"), (6, "key_type"), (7, "integer_range"), (9, "event_bytes"),
        (10, "nul"), (11, "not_json"),
    ]  # fmt: skip
    assert (done.lines, done.written, done.refused) == (12, 3, 8)
    assert str(refused[2]).startswith('line 5: has no "k"')
    assert stored(db) == [0, 1, 2]


async def test_with_an_id_field_a_second_run_writes_only_what_is_missing(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 4, key="k")
    async with Producer(database_url) as producer:
        first = await producer.publish_lines("s", io.BytesIO(ndjson(3000)), id_field="n")
        second = await producer.publish_lines("s", io.BytesIO(ndjson(4000, 1000) + ndjson(1)), id_field="n")
    assert (first.written, first.repeated) == (3000, 0)
    assert (second.written, second.repeated) == (4001, 2001)
    assert stored(db) == list(range(5000))


async def test_a_key_flag_keys_a_stream_without_one_and_must_not_differ_from_its_own(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("plain", 4)
    make_stream("keyed", 4, key="k")
    async with Producer(database_url) as producer:
        await producer.publish_lines("plain", io.BytesIO(ndjson(20)), key="k")
        await producer.publish_lines("keyed", io.BytesIO(ndjson(20)), key="k")
        with pytest.raises(UsageError, match='has the key "k", not "n"'):
            await producer.publish_lines("keyed", io.BytesIO(ndjson(20)), key="n")
        with pytest.raises(NotFound, match="create_stream"):
            await producer.publish_lines("nope", io.BytesIO(ndjson(1)))
    rows = db.execute("select count(*), count(key) from jeet.stream_events group by stream").fetchall()
    assert rows == [(20, 20), (20, 20)]


async def test_a_lost_connection_loses_and_doubles_no_line(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 4, key="k")
    stop = threading.Event()

    went_on = threading.Event()

    def snipe() -> None:
        with psycopg.connect(database_url, autocommit=True) as sniper:
            # A block goes in between two shots, however slow the machine is.
            while went_on.wait(60) and not stop.wait(0.1):
                went_on.clear()
                sniper.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and application_name = 'jeet-producer'"
                )

    killer = threading.Thread(target=snipe)
    lines = [ndjson(100, start) for start in range(0, 5000, 100)]
    async with Producer(database_url) as producer:
        killer.start()
        done = await producer.publish_lines("s", Lines(lines, {}), on_progress=lambda published: went_on.set())
        stop.set()
        went_on.set()
    killer.join()
    assert (done.written, done.refused) == (5000, 0)
    assert stored(db) == list(range(5000))


async def test_a_block_whose_answer_was_lost_gives_the_same_answer_again(
    data: Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 2, key="k")
    call = "select written, repeated, refused, reasons from jeet.publish_lines('s', $1, token => $2)"
    token = "6f1f9b4e-0000-4000-8000-000000000001"
    first = await data.fetchrow(call, '{"k":1}\n{}\n{"k":2}', token)
    assert first is not None
    assert (first["written"], first["refused"]) == (2, [2])
    assert await data.fetchrow(call, '{"k":1}\n{}\n{"k":2}', token) == first
    assert await data.fetchval("select count(*) from jeet.stream_events") == 2


async def test_a_full_stream_is_waited_for_or_fails_at_once_as_asked(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 2, key="k")
    db.execute("update jeet_internal.stream set max_lag = 5, over_lag = true")
    async with Producer(database_url, wait_when_full=False) as producer:
        with pytest.raises(StreamFull, match="more than 5"):
            await producer.publish_lines("s", io.BytesIO(ndjson(10)))
    assert stored(db) == []
    async with Producer(database_url, patience_s=0.05) as producer:
        publishing = asyncio.create_task(producer.publish_lines("s", io.BytesIO(ndjson(10))))
        # Longer than its patience, which is for outages.
        done, _ = await asyncio.wait([publishing], timeout=0.5)
        assert not done
        db.execute("update jeet_internal.stream set over_lag = false")
        async with asyncio.timeout(20):
            assert (await publishing).written == 10


async def test_when_the_database_stays_away_the_error_says_which_lines_are_in(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 2, key="k")
    second = threading.Event()
    source = Lines([ndjson(100), ndjson(100, 100)], {1: second})
    name = db.info.dbname

    def reached(published: Published) -> None:
        with psycopg.connect(database_url.replace(f"/{name}", "/postgres"), autocommit=True) as admin:
            admin.execute(f"alter database {name} with allow_connections false")  # type: ignore[arg-type]
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jeet-producer'"
            )
        second.set()

    async with Producer(database_url, patience_s=0.3) as producer:
        with pytest.raises(PublishInterrupted, match="lines up to 100 are in") as caught:
            await producer.publish_lines("s", source, on_progress=reached)
    assert caught.value.published.written == 100
    assert stored(db) == list(range(100))


async def test_a_database_that_was_never_there_fails_at_once() -> None:
    async with Producer("postgresql://nobody@/nowhere?host=/nonexistent") as producer:
        with pytest.raises(JeetError, match="cannot connect"):
            await producer.publish_lines("s", io.BytesIO(ndjson(1)))


async def test_events_from_python_are_placed_or_refused_each(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 1)
    async with Producer(database_url) as producer:
        assert await producer.publish("s", {"n": 1, "t": "é"}) == Placed(0, 0)  # type: ignore[arg-type]
        assert await producer.publish("s", '{"n": 2}', key="k", id="i") == Placed(0, 1)  # type: ignore[arg-type]
        assert await producer.publish("s", {"n": 2}, id="i") == Placed(0, 1)  # type: ignore[arg-type]
        found = await producer.publish_many(
            "s",
            [{"n": 3}, float("nan"), "{", "\ud800", {"t": "\ud800"}, "a\0b", {"t": "\0"}, object(), 2**60, {"n": 4}],
        )
        with pytest.raises(Refused, match="cannot be written"):
            await producer.publish("s", float("inf"))
        with pytest.raises(NotFound):
            await producer.publish("nope", 1)
    codes = [one.code if isinstance(one, Refused) else one.offset for one in found]
    assert codes == [
        2, "not_json", "not_json", "lone_surrogate", "lone_surrogate", "not_json", "nul", "not_json", "integer_range",
        3,
    ]  # fmt: skip
    assert stored(db) == [1, 2, 3, 4]


async def test_events_without_ids_are_not_sent_again_when_it_is_unknown_whether_they_arrived(
    database_url: str, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("s", 1)
    db.execute(
        """create function cut() returns trigger language plpgsql as
           $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$"""
    )
    db.execute("create trigger cut after insert on jeet_internal.event_1_0 for each row execute function cut()")
    async with Producer(database_url) as producer:
        with pytest.raises(RetryLater, match="may be in or not"):
            await producer.publish("s", 1)
        db.execute("drop trigger cut on jeet_internal.event_1_0")
        await producer.publish("s", {"n": 1})
    assert stored(db) == [1]
