"""Offsets are dense and in commit order: who has seen offset k has seen all before it, whoever else is publishing."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import defaultdict

import psycopg
from asyncpg import Connection

from jeet.ids import Offset, Partition, StreamId
from jeet.stream.fetch import Want, fetch
from logtools import MakeStream

PARTITIONS = 4


class Publisher(threading.Thread):
    """Publishes in transactions of its own making: single events and bulk, some held open, some rolled back."""

    def __init__(self, url: str, number: int, ends_at: float) -> None:
        super().__init__()
        self.url, self.number, self.ends_at = url, number, ends_at
        self.random = random.Random(number)
        self.committed: list[str] = []
        self.deadlocks = 0

    def run(self) -> None:
        slow = self.number % 4 == 0
        count = 0
        with psycopg.connect(self.url) as db:
            while time.monotonic() < self.ends_at or len(self.committed) < 4:
                names = [f"{self.number}-{count + i}" for i in range(self.random.randint(1, 4))]
                count += len(names)
                try:
                    if len(names) == 1:
                        db.execute("select jeet.publish('events', %s::text)", (json.dumps({"id": names[0]}),))
                    else:
                        db.execute(
                            "select count(*) from jeet.publish_many('events', %s::text[]::json[])",
                            ([json.dumps({"id": name}) for name in names],),
                        )
                    if slow:
                        db.execute("select pg_sleep(%s)", (self.random.uniform(0.1, 1.5),))
                    if self.random.random() < 0.2:
                        db.rollback()
                    else:
                        db.commit()
                        self.committed += names
                except psycopg.errors.DeadlockDetected:
                    self.deadlocks += 1
                    db.rollback()


async def test_of_32_publishers_some_slow_some_failing_a_reader_skips_no_event(
    database_url: str, data: Connection, make_stream: MakeStream
) -> None:
    stream = StreamId(make_stream("events", PARTITIONS, key="id"))
    publishers = [Publisher(database_url, number, time.monotonic() + 6) for number in range(32)]
    for publisher in publishers:
        publisher.start()
    seen: dict[Partition, list[str]] = defaultdict(list)

    async def read() -> int:
        wanted = [
            Want(stream, Partition(p), Offset(len(seen[Partition(p)])), 100, 1_000_000) for p in range(PARTITIONS)
        ]
        total = 0
        for fetched in await fetch(data, wanted):
            texts = fetched.values.decode().split("\n") if fetched.count else []
            assert len(texts) == fetched.count
            seen[fetched.partition] += [json.loads(text)["id"] for text in texts]
            total += fetched.count
        return total

    while any(publisher.is_alive() for publisher in publishers):
        if await read() == 0:
            await asyncio.sleep(0.002)
    while await read():
        pass
    for publisher in publishers:
        publisher.join()

    everything = [name for names in seen.values() for name in names]
    assert sorted(everything) == sorted(name for publisher in publishers for name in publisher.committed)
    heads = await data.fetch("select partition, head from jeet_internal.head order by partition")
    assert [row["head"] for row in heads] == [len(seen[Partition(p)]) for p in range(PARTITIONS)]
    # One call a transaction, all its locks in one order: nobody deadlocks.
    assert sum(publisher.deadlocks for publisher in publishers) == 0
    assert len(everything) > 100


async def test_commits_of_many_streams_and_partitions_at_once_never_deadlock(
    database_url: str, make_stream: MakeStream
) -> None:
    streams = [make_stream(name, 8) for name in ("a", "b", "c")]
    failures: list[BaseException] = []

    def commit(number: int) -> None:
        choose = random.Random(number)
        try:
            with psycopg.connect(database_url, autocommit=True) as db:
                for _ in range(40):
                    groups = choose.sample(streams * 3, 6)
                    keys = [
                        "\n".join(json.dumps(f"k{choose.randrange(50)}") for _ in range(choose.randint(1, 5)))
                        for _ in groups
                    ]
                    values = ["\n".join("1" for _ in key.split("\n")) for key in keys]
                    db.execute("select jeet_internal.append(%s, %s, %s)", (groups, keys, values))
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with psycopg.connect(database_url) as db:
        uneven = db.execute(
            """select h.stream_id, h.partition, h.head, count(e.*), max(e."offset")
                 from jeet_internal.head h
                 left join jeet_internal.event e on e.stream_id = h.stream_id and e.partition = h.partition
                group by 1, 2, 3 having h.head <> count(e.*) or h.head <> coalesce(max(e."offset"), -1) + 1"""
        ).fetchall()
    assert uneven == []
