"""fetch gives events of a partition in order, without a gap, within its bounds, as one consistent picture."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import psycopg
import pytest
from asyncpg import Connection

from jeet.ids import Offset, Partition, StreamId
from jeet.stream.fetch import EventsLost, Want, fetch
from logtools import MakeStream


def want(stream: int, partition: int, start: int, events: int = 1000, size: int = 10**7) -> Want:
    return Want(StreamId(stream), Partition(partition), Offset(start), events, size)


def append(db: psycopg.Connection, stream: int, keys: list[str | None], values: list[str]) -> None:
    db.execute(
        "select jeet_internal.append(array[%s], array[%s], array[%s])",
        (stream, "\n".join(map(json.dumps, keys)), "\n".join(values)),
    )


async def test_several_partitions_of_several_streams_come_in_the_order_asked_for(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    a, b = make_stream("a", 2), make_stream("b", 1)
    append(db, a, [str(n) for n in range(40)], [str(n) for n in range(40)])
    append(db, b, [None, "k", 'q"\\\n'], ["1", '{"x": "é"}', "null"])
    found = await fetch(data, [want(b, 0, 1), want(a, 1, 3), want(b, 0, 0, events=1), want(a, 0, 0), want(b, 0, 3)])
    assert [(one.stream_id, one.partition, one.start) for one in found] == [
        (b, 0, 1), (a, 1, 3), (b, 0, 0), (a, 0, 0), (b, 0, 3),
    ]  # fmt: skip
    assert found[0].count == 2
    assert found[0].values == '{"x": "é"}\nnull'.encode()
    assert [json.loads(key) for key in found[0].keys.split(b"\n")] == ["k", 'q"\\\n']
    assert (found[2].count, found[2].values, found[2].keys, found[2].headers) == (1, b"1", b"", b"")
    assert (found[4].count, found[4].values, found[4].head) == (0, b"", 3)
    everything = found[1].values.split(b"\n") + found[3].values.split(b"\n")
    assert len(everything) == 37
    assert found[1].head + found[3].head == 40


@pytest.mark.parametrize(
    "keys",
    [
        ["a", "é", ""],
        ["a", 'q"\n"q', "b"],
        ["a", "tab\t", "b"],
        ["back\\slash", "b", "c"],
        ["a\nb", "c", "d"],
        ["a", None, "c"],
    ],
)
async def test_keys_come_as_the_json_that_they_are(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream, keys: list[str | None]
) -> None:
    s = make_stream("s", 1)
    append(db, s, keys, ["1"] * 3)
    found = (await fetch(data, [want(s, 0, 0)]))[0]
    assert [json.loads(key) for key in found.keys.split(b"\n")] == keys


async def test_events_on_both_sides_of_a_border_between_segments_come_together(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 2, small=True)
    keys = [str(n % 7) for n in range(4000)]
    append(db, s, keys, [str(n) for n in range(4000)])
    heads = {row[0]: row[1] for row in db.execute("select partition, head from jeet_internal.head").fetchall()}
    for wanted in ([want(s, 0, 900, events=200)], [want(s, 0, 900, events=50), want(s, 1, 1000, events=50)]):
        for one, fetched in zip(wanted, await fetch(data, wanted), strict=True):
            assert (fetched.count, fetched.head) == (one.max_events, heads[one.partition])
            numbers = [int(value) for value in fetched.values.split(b"\n")]
            assert numbers == sorted(numbers)
            assert [json.loads(key) for key in fetched.keys.split(b"\n")] == [keys[number] for number in numbers]


@pytest.mark.parametrize("time", ["infinity", "-infinity", "294276-12-31"])
async def test_a_time_that_should_not_be_in_the_log_keeps_nobody_from_reading(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream, time: str
) -> None:
    s = make_stream("s", 2)
    append(db, s, [str(n) for n in range(40)], [str(n) for n in range(40)])
    db.execute("update jeet_internal.event set ts = %s::timestamptz where partition = 1", (time,))
    for wanted in ([want(s, 1, 0)], [want(s, 0, 0), want(s, 1, 0)]):
        for fetched in await fetch(data, wanted):
            times = [int(text) for text in fetched.timestamps.split(b"\n")]
            assert fetched.count == len(times) > 0
            assert all(abs(text - fetched.now_ms) < 60_000 for text in times)


async def test_times_and_headers_go_with_their_events(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 1)
    at = datetime(2031, 5, 6, 7, 8, 9, 123000, UTC)
    before = datetime.now(UTC).timestamp() * 1000
    db.execute("select jeet.publish('s', '1')")
    db.execute("select jeet.publish('s', '2', headers => '{\"a\":\"\\n\"}', ts => %s)", (at,))
    found = (await fetch(data, [want(s, 0, 0)]))[0]
    times = [int(time) for time in found.timestamps.split(b"\n")]
    assert times[1] == round(at.timestamp() * 1000)
    assert before - 1000 <= times[0] <= found.now_ms + 1
    assert [json.loads(one) for one in found.headers.split(b"\n")] == [None, {"a": "\n"}]


async def test_the_bound_of_bytes_holds_and_one_event_always_fits(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 1)
    sizes = [10, 20, 30, 40, 100_000, 5, 2_000, 7]
    append(db, s, [None] * len(sizes), ['"' + "x" * (size - 2) + '"' for size in sizes])
    for start in range(len(sizes)):
        for bound in (1, 10, 30, 60, 100, 2000, 100_000, 200_000):
            found = (await fetch(data, [want(s, 0, start, size=bound)]))[0]
            end = start + found.count
            assert len(found.values) == sum(sizes[start:end]) + found.count - 1
            assert found.count == 1 or sum(sizes[start:end]) <= bound
            # What comes next did not fit; a value may count for 4 bytes more than it has.
            assert end == len(sizes) or sum(sizes[start : end + 1]) + 4 * (found.count + 1) > bound


async def test_large_events_past_the_bound_are_not_even_read(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 1)
    # Random, so that it is stored out of line at its full size.
    db.execute(
        """select count(jeet.publish('s', to_json(t))) from (
             select (select string_agg(md5(random()::text || i || j), '') from generate_series(1, 8000) j) t
               from generate_series(1, 40) i) big"""
    )

    async def blocks(bound: int) -> int:
        values = await data.fetch(
            "explain (analyze, buffers, format json)"
            " select * from jeet_internal.fetch_events($1, '{0}', '{0}', '{40}', array[$2::bigint])",
            s,
            bound,
        )
        plan = json.loads(values[0][0])[0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    await blocks(1)
    assert 10 * await blocks(600_000) < await blocks(20_000_000)


async def test_events_that_retention_took_are_told_not_skipped(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 1)
    append(db, s, [None] * 10, ["1"] * 10)
    db.execute("update jeet_internal.head set first_offset = 4")
    with pytest.raises(EventsLost, match=r"\[2,4\)") as caught:
        await fetch(data, [want(s, 0, 5), want(s, 0, 2)])
    assert (caught.value.start, caught.value.end) == (2, 4)
    assert (await fetch(data, [want(s, 0, 4)]))[0].count == 6


async def test_a_hole_in_the_log_is_an_error_never_a_shorter_answer(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    s = make_stream("s", 1)
    append(db, s, [None] * 10, ["1"] * 10)
    db.execute('delete from jeet_internal.event where "offset" = 5')
    with pytest.raises(Exception, match="holds 9 events"):
        await fetch(data, [want(s, 0, 0)])


async def test_nothing_is_there_past_the_head(data: Connection, make_stream: MakeStream) -> None:
    s = make_stream("s", 2)
    for found in await fetch(data, [want(s, 0, 0), want(s, 1, 50)]):
        assert (found.count, found.values, found.keys, found.timestamps, found.headers, found.head) == (
            0,
            b"",
            b"",
            b"",
            b"",
            0,
        )
