"""A consumer that has marked a head it found itself at is told of the next append, and nobody else is disturbed."""

from __future__ import annotations

import asyncio
import json

import psycopg
from asyncpg import Connection

from jeet.db.connect import connect
from jeet.ids import Partition, StreamId
from jeet.stream.wait import CHANNEL, mark_waiting, places_of, read_heads
from logtools import MakeStream


class Listener:
    """Notifications that arrived."""

    def __init__(self) -> None:
        self.payloads: asyncio.Queue[str] = asyncio.Queue()

    def heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self.payloads.put_nowait(str(payload))

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.payloads.get()


async def test_only_an_append_that_finds_a_mark_notifies_and_takes_it_away(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = StreamId(make_stream("s", 2, key="k"))
    places = [(stream, Partition(0)), (stream, Partition(1))]
    key = {
        p: next(k for k in range(100) if db.execute("select jeet.partition_of(%s, 2)", (str(k),)).fetchone() == (p,))
        for p in (0, 1)
    }
    listener = Listener()
    await data.add_listener(CHANNEL, listener.heard)

    def publish(partition: int) -> None:
        db.execute("select jeet.publish('s', %s::text)", (json.dumps({"k": key[partition]}),))

    publish(0)
    assert await mark_waiting(data, places) == {places[0]: 1, places[1]: 0}
    publish(0)
    publish(0)
    publish(1)
    assert [list(places_of(await listener.next())) for _ in range(2)] == [[places[0]], [places[1]]]
    publish(1)
    await mark_waiting(data, [places[1]])
    publish(0)
    publish(1)
    assert list(places_of(await listener.next())) == [places[1]]
    assert listener.payloads.empty()
    assert await read_heads(data, places) == {places[0]: 4, places[1]: 3}


async def test_a_head_that_an_append_holds_is_left_out_not_waited_for(
    database_url: str, data: Connection, make_stream: MakeStream
) -> None:
    stream = StreamId(make_stream("s", 1))
    place = (stream, Partition(0))
    listener = Listener()
    await data.add_listener(CHANNEL, listener.heard)
    with psycopg.connect(database_url) as publisher:
        publisher.execute("select jeet.publish('s', '1')")
        async with asyncio.timeout(5):
            assert await mark_waiting(data, [place]) == {}
        publisher.commit()
        assert await mark_waiting(data, [place]) == {place: 1}
        publisher.execute("select jeet.publish('s', '2')")
        # Marked already: nothing to lock. The append under way has seen the mark and notifies when it commits.
        async with asyncio.timeout(5):
            assert await mark_waiting(data, [place]) == {place: 1}
        publisher.commit()
        assert list(places_of(await listener.next())) == [place]


async def test_no_append_is_missed_by_a_consumer_that_reads_marks_and_waits(
    database_url: str, data: Connection, make_stream: MakeStream
) -> None:
    stream = StreamId(make_stream("s", 1))
    place = (stream, Partition(0))
    rung = asyncio.Event()
    await data.add_listener(CHANNEL, lambda *_: rung.set())
    total = 400

    async def publish() -> None:
        publisher = await connect(database_url, "publisher")
        for number in range(total):
            await publisher.execute("select jeet.publish('s', $1::text)", str(number))
            if number % 7 == 0:
                await asyncio.sleep(0.001)
        publisher.terminate()

    async def consume() -> None:
        position, waits = 0, 0
        while position < total:
            rung.clear()
            heads = await mark_waiting(data, [place])
            if place not in heads:
                await asyncio.sleep(0.002)
            elif heads[place] > position:
                position = heads[place]
            else:
                waits += 1
                await rung.wait()  # for ever, if an append were missed
        assert waits > 0

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(publish())
        group.create_task(consume())


async def test_a_commit_that_wakes_very_many_partitions_stays_below_the_size_of_a_notification(
    db: psycopg.Connection, data: Connection, make_stream: MakeStream
) -> None:
    stream = StreamId(make_stream("s", 2000))
    listener = Listener()
    await data.add_listener(CHANNEL, listener.heard)
    places = [(stream, Partition(p)) for p in range(2000)]
    assert len(await mark_waiting(data, places)) == 2000
    db.execute("select jeet_internal.append(array[%s], array[''], array[%s])", (stream, "\n".join(["1"] * 2000)))
    woken = set()
    while len(woken) < 2000:
        payload = await listener.next()
        assert len(payload.encode()) < 8000
        woken.update(places_of(payload))
    assert woken == set(places)


def test_a_payload_of_another_form_names_no_partition() -> None:
    assert list(places_of("")) == []
    assert list(places_of("x:1,1:y,:,1,-1:2,3:4")) == [(3, 4)]
