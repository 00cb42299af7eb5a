"""Membership: one row, one lock, one connection; whoever cannot keep it must stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from jeet.control import membership as module
from jeet.control.membership import Identity, Membership
from jeet.db.keys import TASK_CLASS, WORKER_CLASS
from jeet.errors import StopWorker, UsageError
from jeet.ids import TaskId


class Member:
    """A membership and what it told."""

    def __init__(self, database_url: str, timeout_s: float = 2.0) -> None:
        loop = asyncio.get_running_loop()
        self.heard: list[str] = []
        self.lost: asyncio.Future[StopWorker] = loop.create_future()
        self.membership = Membership(
            database_url,
            Identity(uuid4(), "here", os.getpid(), "1", None),
            heartbeat_s=0.05,
            timeout_s=timeout_s,
            on_control=self.heard.append,
            on_lost=lambda error: loop.call_soon_threadsafe(self.lost.set_result, error) and None,
        )


@pytest_asyncio.fixture
async def member(database_url: str) -> AsyncIterator[Member]:
    member = Member(database_url)
    yield member
    await member.membership.abandon("the test is over")


def locks(db: psycopg.Connection[Any], kind: int) -> list[int]:
    rows = db.execute("select objid from pg_locks where locktype = 'advisory' and classid = %s order by 1", (kind,))
    return [row[0] for row in rows.fetchall()]


async def test_the_row_appears_with_its_lock_and_goes_with_it(member: Member, db: psycopg.Connection[Any]) -> None:
    joined = await member.membership.start()
    assert db.execute("select id, status from jeet_internal.worker").fetchall() == [(joined.worker_id, "running")]
    assert locks(db, WORKER_CLASS) == [joined.worker_id]
    await member.membership.leave()
    assert db.execute("select count(*) from jeet_internal.worker").fetchone() == (0,)
    assert not member.lost.done()


async def test_heartbeats_go_on_while_the_event_loop_is_busy(member: Member, db: psycopg.Connection[Any]) -> None:
    await member.membership.start()
    beats = set()
    for _ in range(40):  # this test never yields to its event loop here
        beats.add(db.execute("select heartbeat_at, pg_sleep(0.02) from jeet_internal.worker").fetchone()[:1])  # type: ignore[index]
    assert len(beats) > 5


async def test_a_lock_is_had_once_and_given_back_aloud(
    member: Member, database_url: str, db: psycopg.Connection[Any]
) -> None:
    await member.membership.start()
    other = Member(database_url)
    await other.membership.start()
    tasks = [TaskId(1), TaskId(2)]
    assert await member.membership.lock(tasks) == {1, 2}
    assert await other.membership.lock(tasks) == set()
    await member.membership.unlock([TaskId(1)])
    assert await other.membership.lock([TaskId(1)]) == {1}
    assert locks(db, TASK_CLASS) == [1, 2]
    async with asyncio.timeout(10):
        while "released 1" not in other.heard:
            await asyncio.sleep(0.01)
    await other.membership.abandon("the test is over")


@pytest.mark.parametrize("how", ["its session is ended", "it is declared lost", "its row is gone"])
async def test_a_worker_that_was_given_up_stops(member: Member, db: psycopg.Connection[Any], how: str) -> None:
    await member.membership.start()
    db.execute(
        {
            "its session is ended": "select pg_terminate_backend(backend_pid) from jeet_internal.worker",
            "it is declared lost": "update jeet_internal.worker set status = 'lost'",
            "its row is gone": "delete from jeet_internal.worker",
        }[how]
    )
    async with asyncio.timeout(10):
        assert isinstance(await member.lost, StopWorker)
    with pytest.raises(StopWorker):
        await member.membership.lock([TaskId(1)])


async def test_a_heartbeat_that_is_not_answered_in_time_ends_it(database_url: str, db: psycopg.Connection[Any]) -> None:
    member = Member(database_url, timeout_s=0.5)
    await member.membership.start()
    with db.transaction():
        db.execute("select from jeet_internal.worker for update")  # heartbeats wait for this row
        async with asyncio.timeout(10):
            while not member.lost.done():
                member.membership.check()
                await asyncio.sleep(0.02)
    with pytest.raises(StopWorker):
        await member.membership.lock([TaskId(1)])
    await member.membership.abandon("the test is over")


class TransactionPooler:
    """What a client sees of a pooler in transaction mode: any free session, for one transaction at a time."""

    def __init__(self, sessions: list[psycopg.Connection[Any]]) -> None:
        self.sessions = sessions

    def execute(self, text: str, values: Any = None) -> Any:
        return self._free().execute(text, values)

    def transaction(self) -> Any:
        return self._free().transaction()

    def _free(self) -> psycopg.Connection[Any]:
        idle = psycopg.pq.TransactionStatus.IDLE
        return next(session for session in self.sessions if session.info.transaction_status == idle)


def test_a_pooler_in_transaction_mode_is_told_from_a_direct_connection(database_url: str) -> None:
    with (
        psycopg.connect(database_url, autocommit=True) as first,
        psycopg.connect(database_url, autocommit=True) as second,
    ):
        assert module.is_direct(first, second)
        pooled: Any = TransactionPooler([first, second])

        class InTransaction(TransactionPooler):
            """The second client: its statements run in the session that its transaction holds."""

            def execute(self, text: str, values: Any = None) -> Any:
                return self.sessions[0].execute(text, values)

        other: Any = InTransaction([first, second])
        assert not module.is_direct(pooled, other)


async def test_behind_such_a_pooler_nothing_starts_and_the_remedy_is_named(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_direct", lambda db, other: False)
    with pytest.raises(UsageError, match="session mode"):
        await member.membership.start()
