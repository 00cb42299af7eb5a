"""Reads what the turns of a cycle need: events in order, redriven ones, due timers, and the record of who is suspected.

Promise: an event that may end the process is on record, in a transaction of its own, before it runs. Data that cannot
be read holds up its own task only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import asyncpg

from jeet.clock import Clock
from jeet.db.sql import query
from jeet.db.sqlstates import UNREADABLE, Verdict, verdict
from jeet.ids import Offset
from jeet.sandbox.call import BatchInput, Fault
from jeet.stream.fetch import EventsLost, Fetched, Want, fetch
from jeet.task.effects import Events
from jeet.task.running import INBOX_SIZE, RunningTask
from jeet.task.timers import read_due
from jeet.task.turn import Cursor, Halt, Turn
from jeet.task.watermark import EARLIEST_MS, held_to

if TYPE_CHECKING:
    from asyncpg import Connection


class Prepared:
    """What came of it: tasks that turned out to be lost, that must halt, or whose events cannot be read."""

    def __init__(self) -> None:
        self.lost: list[RunningTask] = []
        self.halts: list[tuple[RunningTask, Halt]] = []
        self.unreadable: list[tuple[RunningTask, asyncpg.PostgresError]] = []


async def prepare(
    db: Connection, turns: Sequence[Turn], *, max_attempts: int, max_bytes: int, clock: Clock
) -> Prepared:
    """Give each turn its events (none if there are none), or the effects of setting its event aside."""
    found = Prepared()
    by_stream: dict[int, list[Turn]] = defaultdict(list)
    deaths: dict[Turn, int] = {}
    if fired := [turn for turn in turns if turn.kind == "timers"]:
        found.lost += await read_due(db, fired, max_attempts=max_attempts, clock=clock)
    for turn in turns:
        if turn.kind == "inbox":
            try:
                deaths[turn] = await _read_inbox(db, turn, max_bytes, clock)
            except asyncpg.PostgresError as error:
                _blame_alone([turn], error, found)
        elif turn.cursor is not None:
            by_stream[turn.cursor.stream].append(turn)
    for together in by_stream.values():
        await _read_in_order(db, together, max_bytes, clock, found)
    for turn in turns:
        # Last of all, so that what is on record did run.
        if turn.events is None or turn.kind == "timers":
            continue
        if turn.kind == "inbox":
            await _begin(db, turn, turn.events, deaths[turn], max_attempts, found)
        elif _needs_record(turn):
            await _record(db, turn, turn.events, found)
        if turn.cursor is not None and turn.events is not None and turn.alone:
            attempts = turn.task.crashed.get((turn.cursor.stream, turn.events.start), 0)
            # The first attempt on record may have been that of a whole piece: one alone must have followed.
            if attempts >= max(max_attempts, 2):
                turn.task.set_aside(turn, Fault(0, _ended(attempts), "", None), attempts)
    return found


def _needs_record(turn: Turn) -> bool:
    careful = turn.cursor.careful if turn.cursor is not None else None
    if careful is None or turn.cursor is None or turn.cursor.read < careful.start:
        return False
    return turn.alone or careful.crashed is not None


async def _record(db: Connection, turn: Turn, events: Events, found: Prepared) -> None:
    lease = turn.task.lease
    held = await db.fetchval(
        "select jeet_internal.record_suspects($1, $2, $3, $4, $5)",
        lease.task_id,
        lease.epoch,
        events.stream,
        events.start,
        events.start + events.batch.count,
    )
    if not held:
        turn.events = None
        found.lost.append(turn.task)


async def _read_in_order(db: Connection, turns: Sequence[Turn], max_bytes: int, clock: Clock, found: Prepared) -> None:
    wanted = [
        Want(turn.cursor.stream, turn.task.lease.partition, turn.cursor.read, turn.limit, max_bytes)
        for turn in turns
        if turn.cursor is not None
    ]
    try:
        answers = await fetch(db, wanted)
    except EventsLost as error:
        if len(turns) == 1:
            found.halts.append((turns[0].task, Halt(str(error))))
        else:
            await _read_singly(db, turns, max_bytes, clock, found)
        return
    except asyncpg.PostgresError as error:
        if not _blame_alone(turns, error, found):
            await _read_singly(db, turns, max_bytes, clock, found)
        return
    read_at = clock.monotonic()
    for turn, fetched in zip(turns, answers, strict=True):
        assert turn.cursor is not None
        turn.cursor.head = Offset(fetched.head)
        if fetched.count:
            turn.events = Events(turn.cursor.stream, _batch(turn, turn.cursor, fetched, read_at))


async def _read_singly(db: Connection, turns: Sequence[Turn], max_bytes: int, clock: Clock, found: Prepared) -> None:
    for turn in turns:
        await _read_in_order(db, [turn], max_bytes, clock, found)


def _blame_alone(turns: Sequence[Turn], error: asyncpg.PostgresError, found: Prepared) -> bool:
    """Note that the turn's events cannot be read; of several turns, False: each must be tried by itself.

    An error that does not lie in what was read is raised again.
    """
    if verdict(error) is not Verdict.DATA and error.sqlstate not in UNREADABLE:
        raise error
    if len(turns) > 1:
        return False
    found.unreadable.append((turns[0].task, error))
    return True


def _batch(turn: Turn, cursor: Cursor, fetched: Fetched, read_at: float) -> BatchInput:
    batch = BatchInput(
        first_offset=fetched.start,
        count=fetched.count,
        values=fetched.values,
        keys=fetched.keys,
        timestamps=fetched.timestamps,
        headers=fetched.headers,
        now_ms=fetched.now_ms,
        fetched_at=read_at,
        attempts=cursor.careful.attempt if cursor.careful is not None and turn.alone else 1,
        input=cursor.place,
    )
    time = turn.task.time
    if time is None:
        return batch
    time.ahead_ms = fetched.now_ms - read_at * 1000
    return replace(
        batch,
        watermark_ms=time.clock_ms,
        highest_ms=None if cursor.time is None else cursor.time.highest_ms,
        bound_ms=held_to(time.clock_ms, turn.task.standings(apart_from=cursor)),
    )


async def _read_inbox(db: Connection, turn: Turn, max_bytes: int, clock: Clock) -> int:
    """Redriven events, oldest request first: from the log, or from the dead letter if the log has let go of them.

    Returns how often an owner died while they ran; those that one died with come singly.
    """
    lease = turn.task.lease
    rows = await db.fetch(query("read_inbox"), lease.task_id, lease.partition, turn.limit, max_bytes)
    # A batch has one input, whose events its offsets name, and one number of attempts, which its events are told.
    rows = [row for row in rows if (row["stream_id"], row["attempts"]) == (rows[0]["stream_id"], rows[0]["attempts"])]
    if rows and rows[0]["deaths"]:
        rows, turn.alone = rows[:1], True
    else:
        rows = [row for row in rows if not row["deaths"]]
    if not rows:
        turn.task.has_inbox = False
        turn.task.inbox_size = INBOX_SIZE
        return 0
    headers = [row["headers"] or "null" for row in rows]
    batch = BatchInput(
        first_offset=rows[0]["offset"],
        count=len(rows),
        values=b"\n".join(row["value"].encode() for row in rows),
        keys=b"\n".join(json.dumps(row["key"]).encode() for row in rows),
        timestamps=b"\n".join(str(row["timestamp_ms"]).encode() for row in rows),
        headers=b"" if all(text == "null" for text in headers) else b"\n".join(text.encode() for text in headers),
        now_ms=rows[0]["now_ms"],
        fetched_at=clock.monotonic(),
        attempts=rows[0]["attempts"] + 1,
        offsets=[row["offset"] for row in rows],
        input=next((cursor.place for cursor in turn.task.cursors if cursor.stream == rows[0]["stream_id"]), 0),
    )
    if (time := turn.task.time) is not None:
        # Out of order by nature: their times do not move the clock.
        batch = replace(
            batch,
            watermark_ms=time.clock_ms,
            bound_ms=EARLIEST_MS if time.clock_ms is None else time.clock_ms,
        )
    turn.events = Events(rows[0]["stream_id"], batch, [row["id"] for row in rows])
    return int(rows[0]["deaths"])


async def _begin(db: Connection, turn: Turn, events: Events, deaths: int, max_attempts: int, found: Prepared) -> None:
    """Mark redriven events as running, or take out one that ended the process each time: it stays a dead letter."""
    lease = turn.task.lease
    # The first death may have been that of a whole batch: one alone must have followed.
    if deaths >= max(max_attempts, 2):
        turn.task.set_aside(turn, Fault(0, _ended(deaths), "", None), deaths)
        return
    held = await db.fetchval(
        "select jeet_internal.begin_redrives($1, $2, $3)", lease.task_id, lease.epoch, events.inbox
    )
    if not held:
        turn.events = None
        found.lost.append(turn.task)


def _ended(times: int) -> str:
    return f"this event ended the worker process {times} times; it was not run again"
