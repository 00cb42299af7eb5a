"""What an event costs Postgres: publish, fetch and commit, straight through the SQL functions, without worker or guest.

The running total per user (events of about 90 bytes, 8 partitions, one output an event), its outputs and totals worked
out beforehand. Beside it runs the bare limit: the same rows read and written by one plain statement each, without
fence, offsets or routing. With `--against DIR` the functions of another checkout's `sql/` run too. Contestants take
turns within one run on an embedded server of their own, so ratios carry further than numbers.

Figures are medians over rounds of CPU microseconds per event of the backend (user and system, from the scheduler), and
bytes of WAL per event. Run it as `.venv/bin/python bench/sql.py --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import asyncpg
import psycopg

import jeet.db.migrate
from jeet import embedded
from jeet.control.lease import Lease
from jeet.db.connect import connect
from jeet.ids import Epoch, FunctionId, Offset, Partition, StreamId, TaskId
from jeet.stream.fetch import Want, fetch
from jeet.task.commit import commit
from jeet.task.effects import Effects, Output, Puts

PARTITIONS = 8
BLOCK_LINES = 5_000
FUNCTION = """
    with f as (insert into jeet_internal.function (name, version) values ('bench', 1) returning id),
    v as (insert into jeet_internal.function_version
                 (function_id, version, filename, bytecode, plugin_hash, graph, spec, digest)
          select id, 1, 'f.js', '', '', '[]', '{}', '' from f),
    t as (insert into jeet_internal.task (function_id, partition, version)
          select id, p, 1 from f, generate_series(0, %(partitions)s - 1) p order by p returning id, partition)
    select array_agg(id order by partition) from t"""
BARE = """
    create table log (p int, off bigint, key text, v text not null, primary key (p, off)) partition by list (p);
    create table outputs (p int, off bigint, key text not null, v text not null, primary key (p, off))
        partition by list (p);
    create table state (p int, key text, v text not null, primary key (p, key)) with (fillfactor = 70);
    create table checkpoint (p int primary key, off bigint not null) with (fillfactor = 50);
    insert into checkpoint select g, 0 from generate_series(0, 7) g"""
BARE_READ = r"select string_agg(v, E'\n' order by off) from log where p = $1 and off >= $2 and off < $3"
BARE_WRITE = r"""
    with o as (insert into outputs (p, off, key, v)
               select $1::int, $2::bigint + n - 1, k, x
                 from unnest(string_to_array($3, E'\n'), string_to_array($4, E'\n')) with ordinality u (k, x, n)),
    s as (insert into state as s (p, key, v)
          select $1::int, k, x from unnest(string_to_array($5, E'\n'), string_to_array($6, E'\n')) u (k, x)
              on conflict (p, key) do update set v = excluded.v)
    update checkpoint set off = $7::bigint where p = $1 and off = $2::bigint"""
BARE_PUBLISH = r"""
    insert into log (p, off, key, v)
    select $1::int, $2::bigint + n - 1, k, x
      from unnest(string_to_array($3, E'\n'), string_to_array($4, E'\n')) with ordinality u (k, x, n)"""


@dataclass
class Batch:
    """Some events of one partition and what processing them gives."""

    partition: int
    start: int
    events: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)


@dataclass
class Round:
    """What is published, then fetched and committed, before the next contestant has its turn."""

    lines: list[str]
    commits: list[list[Batch]]


def workload(options: argparse.Namespace) -> Iterator[Round]:
    chance = random.Random(1)
    totals: dict[str, int] = defaultdict(int)
    heads = [0] * PARTITIONS
    number = 0
    for _ in range(options.rounds):
        lines, batches, full = [], {}, []
        for _ in range(options.events):
            key = f"u{chance.randrange(options.keys)}"
            amount = chance.randrange(1, 100)
            number += 1
            totals[key] += amount
            note = f'"note":"hello world, order {number:06d} paid","ts":{1700000000000 + number}'
            line = f'{{"userId":"{key}","amount":{amount},{note}}}'
            place = crc32(key.encode()) % PARTITIONS
            batch = batches.setdefault(place, Batch(place, heads[place]))
            heads[place] += 1
            lines.append(line)
            batch.events.append(line)
            batch.keys.append(key)
            batch.outputs.append(f'{{"userId":"{key}","currentTotal":{totals[key]}}}')
            batch.totals[key] = totals[key]
            if len(batch.events) == options.batch:
                full.append(batches.pop(place))
        full += batches.values()
        yield Round(lines, _commits(full, options.together))


def _commits(batches: Sequence[Batch], together: int) -> list[list[Batch]]:
    """Some batches for each commit, of different partitions, in order."""
    commits: list[list[Batch]] = [[]]
    for batch in batches:
        if len(commits[-1]) == together or batch.partition in {other.partition for other in commits[-1]}:
            commits.append([])
        commits[-1].append(batch)
    return commits


class Meter:
    """CPU time of one backend and what it writes to the WAL, by phase, for each round."""

    def __init__(self, db: asyncpg.Connection) -> None:
        self.db = db
        self.pid = db.get_server_pid()
        self.rounds: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._round: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    async def of(self, phase: str, work: Any) -> Any:
        before = self._cpu_ns()
        result = await work
        self._round[phase][0] += self._cpu_ns() - before
        return result

    async def wal(self) -> int:
        return int(await self.db.fetchval("select pg_current_wal_insert_lsn() - '0/0'"))

    async def wal_of(self, phase: str, before: int) -> None:
        self._round[phase][1] += await self.wal() - before

    def end_round(self, events: int) -> None:
        for phase, (ns, wal) in self._round.items():
            self.rounds[phase].append((ns / 1000 / events, wal / events))
        self._round.clear()

    def _cpu_ns(self) -> int:
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])


class Jeet:
    """The functions in `sql`, called as the worker and the producer call them."""

    def __init__(self, name: str, sql: Path) -> None:
        self.name = name
        self.sql = sql

    async def open(self, url: str) -> None:
        jeet.db.migrate.sql_root = lambda: self.sql
        jeet.db.migrate.migrate(url)
        with psycopg.connect(url, autocommit=True) as db:
            create = "select jeet_internal.create_stream(%s, %s, 'userId')"
            self.source, self.sink = (StreamId(_one(db, create, (name, PARTITIONS))) for name in ("orders", "totals"))
            self.tasks = _one(db, FUNCTION, {"partitions": PARTITIONS})
            for task in self.tasks:
                db.execute(
                    "insert into jeet_internal.checkpoint (task_id, stream_id) values (%s, %s)", (task, self.source)
                )
        self.meter = Meter(await connect(url, "bench"))

    async def publish(self, lines: list[str]) -> None:
        publish = "select written, repeated, refused, reasons from jeet.publish_lines('orders', $1)"
        wal = await self.meter.wal()
        for n in range(0, len(lines), BLOCK_LINES):
            block = lines[n : n + BLOCK_LINES]
            row = await self.meter.of("publish", self.meter.db.fetchrow(publish, "\n".join(block)))
            assert row["written"] == len(block), row
        await self.meter.wal_of("publish", wal)

    async def process(self, commits: list[list[Batch]]) -> None:
        db, meter = self.meter.db, self.meter
        for batches in commits:
            wants = [
                Want(self.source, Partition(b.partition), Offset(b.start), len(b.events), 8 << 20) for b in batches
            ]
            found = await meter.of("fetch", fetch(db, wants))
            assert [one.count for one in found] == [len(b.events) for b in batches]
            effects = [self._effects(batch) for batch in batches]
            wal = await meter.wal()
            await meter.of("commit", commit(db, effects))
            await meter.wal_of("commit", wal)

    def _effects(self, batch: Batch) -> Effects:
        lease = Lease(
            task_id=TaskId(self.tasks[batch.partition]),
            epoch=Epoch(0),
            function_id=FunctionId(1),
            function="bench",
            stage=0,
            partition=Partition(batch.partition),
            version=1,
            crashes=0,
            ttl_hold_ms=0.0,
            on_error="dead-letter",
            inputs=((self.source, Offset(batch.start)),),
            outputs=(self.sink,),
        )
        keys = "\n".join(f'"{key}"' for key in batch.totals)
        return Effects(
            lease=lease,
            stream=self.source,
            origin=self.source,
            start=Offset(batch.start),
            end=Offset(batch.start + len(batch.events)),
            puts=[Puts(0, None, len(batch.totals), keys, "\n".join(map(str, batch.totals.values())))],
            outputs=[Output(self.sink, "\n".join(f'"{key}"' for key in batch.keys), "\n".join(batch.outputs))],
        )


class Bare:
    """One statement reads a batch, one writes it; partitions and offsets come from the caller."""

    name = "bare"

    async def open(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(BARE)
            for table in ("log", "outputs"):
                for p in range(PARTITIONS):
                    db.execute(f"create table {table}_{p} partition of {table} for values in ({p})")  # type: ignore[arg-type]
        self.meter = Meter(await connect(url, "bench"))
        self._read, self._write = [await self.meter.db.prepare(text) for text in (BARE_READ, BARE_WRITE)]
        self._publish = await self.meter.db.prepare(BARE_PUBLISH)
        self._heads = [0] * PARTITIONS

    async def publish(self, lines: list[str]) -> None:
        wal = await self.meter.wal()
        for n in range(0, len(lines), BLOCK_LINES):
            parts: dict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
            for line in lines[n : n + BLOCK_LINES]:
                key = json.loads(line)["userId"]
                keys, values = parts[crc32(key.encode()) % PARTITIONS]
                keys.append(key)
                values.append(line)
            async with self.meter.db.transaction():
                for place, (keys, values) in parts.items():
                    texts = ("\n".join(keys), "\n".join(values))
                    await self.meter.of("publish", self._publish.fetch(place, self._heads[place], *texts))
                    self._heads[place] += len(keys)
        await self.meter.wal_of("publish", wal)

    async def process(self, commits: list[list[Batch]]) -> None:
        meter = self.meter
        for batches in commits:
            for batch in batches:
                end = batch.start + len(batch.events)
                await meter.of("fetch", self._read.fetch(batch.partition, batch.start, end))
                wal = await meter.wal()
                texts = ("\n".join(batch.keys), "\n".join(batch.outputs))
                state = ("\n".join(batch.totals), "\n".join(map(str, batch.totals.values())))
                await meter.of("commit", self._write.fetch(batch.partition, batch.start, *texts, *state, end))
                await meter.wal_of("commit", wal)


def _one(db: psycopg.Connection, statement: str, values: Any) -> Any:
    row = db.execute(statement, values).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row[0]


async def run(options: argparse.Namespace, server: embedded.Server, contestants: Sequence[Jeet | Bare]) -> None:
    with psycopg.connect(server.place.url("postgres"), autocommit=True) as db:
        for number, contestant in enumerate(contestants):
            db.execute(f"create database bench_{number}")  # type: ignore[arg-type]
            await contestant.open(server.place.url(f"bench_{number}"))
    for number, turn in enumerate(workload(options)):
        # Who comes first changes, as caches and neighbours favour places.
        for n in range(len(contestants)):
            contestant = contestants[(n + number) % len(contestants)]
            await contestant.publish(turn.lines)
            await contestant.process(turn.commits)
            contestant.meter.end_round(options.events)


def report(contestants: Sequence[Jeet | Bare], warm: int) -> None:
    last = contestants[-1]
    print(f"{'':24}" + "".join(f"{phase:>34}" for phase in ("publish", "fetch", "commit", "fetch + commit")))
    for contestant in contestants:
        cells = []
        for phases in (["publish"], ["fetch"], ["commit"], ["fetch", "commit"]):
            rounds = [_sum(contestant, phases, n) for n in range(len(contestant.meter.rounds["fetch"]))][warm:]
            others = [_sum(last, phases, n) for n in range(len(last.meter.rounds["fetch"]))][warm:]
            cpu = statistics.median(one[0] for one in rounds)
            ratio = statistics.median(a[0] / b[0] for a, b in zip(rounds, others, strict=True))
            wal = statistics.median(one[1] for one in rounds)
            cells.append(f"{cpu:13.2f} us {ratio:5.2f} {wal:7.0f} B")
        print(f"{contestant.name:24}" + "".join(f"{cell:>34}" for cell in cells))


def _sum(contestant: Jeet | Bare, phases: list[str], number: int) -> tuple[float, float]:
    parts = [contestant.meter.rounds[phase][number] for phase in phases]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000, help="how many users")
    parser.add_argument("--batch", type=int, default=1_000, help="events of one partition in a batch")
    parser.add_argument("--together", type=int, default=1, help="batches fetched and committed together")
    parser.add_argument("--events", type=int, default=40_000, help="events a round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--warm", type=int, default=2, help="rounds at the beginning that do not count")
    parser.add_argument("--against", type=Path, action="append", default=[], help="an sql/ folder to compare with")
    options = parser.parse_args()
    contestants: list[Jeet | Bare] = [Jeet("this", Path(__file__).resolve().parent.parent / "sql")]
    contestants += [Jeet(str(path), path.resolve()) for path in options.against]
    contestants.append(Bare())
    home = Path(tempfile.mkdtemp(prefix="jeet-bench-"))
    home.chmod(0o755)  # the server's user has to reach it
    try:
        with embedded.start(home) as server:
            asyncio.run(run(options, server, contestants))
            report(contestants, options.warm)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
