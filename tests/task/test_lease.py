"""Leases: whoever acquires a task fences off whoever held it, before anything else has happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio
from asyncpg import InterfaceError

from jeet.control.lease import Lease, Owner, acquire, release
from jeet.db.connect import connect
from jeet.ids import Offset, WorkerId
from jeet.task.commit import LeaseLost, commit
from jeet.task.effects import Effects
from task.rows import Deployed, checkpoints, deploy_by_hand

if TYPE_CHECKING:
    from asyncpg import Connection


@pytest_asyncio.fixture
async def connections(database_url: str) -> AsyncIterator[tuple[Connection, Connection]]:
    pair = await connect(database_url, "jeet-worker test"), await connect(database_url, "jeet-worker test")
    yield pair
    for connection in pair:
        connection.terminate()


@pytest.fixture
def deployed(db: psycopg.Connection[Any]) -> Deployed:
    return deploy_by_hand(db)


def join(db: psycopg.Connection[Any], deployed: Deployed, process: UUID | None = None) -> Owner:
    """A worker's row, and the assignment of all tasks to it."""
    row = db.execute(
        "insert into jeet_internal.worker (process, host, pid, version, backend_pid, backend_start)"
        " values (%s, 'here', 1, '1', 1, now()) returning id",
        (process or uuid4(),),
    ).fetchone()
    assert row is not None
    for task in deployed.tasks:
        db.execute(
            "insert into jeet_internal.assignment (task_id, worker_id) values (%s, %s)"
            " on conflict (task_id) do update set worker_id = excluded.worker_id",
            (task, row[0]),
        )
    return Owner(WorkerId(row[0]), 1)


def effects(lease: Lease, start: int, end: int) -> Effects:
    stream = lease.inputs[0][0]
    return Effects(lease=lease, stream=stream, origin=stream, start=Offset(start), end=Offset(end))


async def test_a_predecessor_cannot_commit_even_if_nothing_has_moved_since(
    db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed
) -> None:
    first = await acquire(*connections, join(db, deployed), deployed.tasks)
    second = await acquire(*connections, join(db, deployed), deployed.tasks)
    assert [lease.epoch for lease in second] == [lease.epoch + 1 for lease in first]
    with pytest.raises(LeaseLost):
        await commit(connections[0], [effects(first[0], 0, 5)])
    assert checkpoints(db, deployed.tasks) == [0, 0]
    await commit(connections[0], [effects(second[0], 0, 5)])
    assert checkpoints(db, deployed.tasks) == [5, 0]


async def test_a_lease_says_where_its_task_stands(
    db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed
) -> None:
    db.execute("update jeet_internal.checkpoint set next_offset = 7 where task_id = %s", (deployed.tasks[0],))
    leases = await acquire(*connections, join(db, deployed), deployed.tasks)
    assert [lease.inputs for lease in leases] == [((deployed.source, 7),), ((deployed.source, 0),)]
    assert leases[0].outputs == (deployed.sink,)


@pytest.mark.parametrize(
    "change",
    [
        "delete from jeet_internal.assignment",
        "update jeet_internal.function set status = 'paused'",
        "update jeet_internal.task set status = 'halted'",
    ],
)
async def test_what_is_not_ours_to_run_is_left_alone(
    db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed, change: str
) -> None:
    owner = join(db, deployed)
    db.execute(change)
    assert await acquire(*connections, owner, deployed.tasks) == []
    assert db.execute("select max(epoch) from jeet_internal.task").fetchone() == (0,)


async def test_only_an_owner_that_did_not_give_the_task_back_counts_as_a_crash(
    db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed
) -> None:
    owner = join(db, deployed)
    assert [lease.crashes for lease in await acquire(*connections, owner, deployed.tasks)] == [0, 0]
    # Taken anew by the same incarnation, as after a deploy.
    assert [lease.crashes for lease in await acquire(*connections, owner, deployed.tasks)] == [0, 0]
    await release(connections[0], owner, deployed.tasks[:1])
    leases = await acquire(*connections, join(db, deployed), deployed.tasks)
    assert [lease.crashes for lease in leases] == [0, 1]
    await commit(connections[0], [effects(lease, 0, 1) for lease in leases])
    assert [lease.crashes for lease in await acquire(*connections, join(db, deployed), deployed.tasks)] == [1, 1]


async def test_a_process_that_lost_its_session_and_came_back_has_not_died_nor_have_its_events_ended_it(
    db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed
) -> None:
    process = uuid4()
    (lease, _) = await acquire(*connections, join(db, deployed, process), deployed.tasks)
    for who, deaths in ((process, 0), (process, 0), (uuid4(), 1), (uuid4(), 2)):
        assert await connections[0].fetchval(
            "select jeet_internal.record_suspects($1, $2, $3, 5, 7)", lease.task_id, lease.epoch, deployed.source
        )
        (lease, _) = await acquire(*connections, join(db, deployed, who), deployed.tasks)
        assert lease.crashes == deaths
        counted = db.execute('select "offset", attempts from jeet_internal.suspect order by 1').fetchall()
        assert counted == [(5, deaths), (6, deaths)]


@pytest.mark.parametrize(("unowned_s", "hold_s"), [(30, 0), (90, 30)])
async def test_the_hold_grows_by_the_time_without_an_owner_beyond_a_minute(
    db: psycopg.Connection[Any],
    connections: tuple[Connection, Connection],
    deployed: Deployed,
    unowned_s: float,
    hold_s: float,
) -> None:
    db.execute("update jeet_internal.task set unowned_since = now() - %s", (timedelta(seconds=unowned_s),))
    leases = await acquire(*connections, join(db, deployed), deployed.tasks)
    assert leases[0].ttl_hold_ms == pytest.approx(hold_s * 1000, abs=5000)
    again = await acquire(*connections, join(db, deployed), deployed.tasks)
    assert again[0].ttl_hold_ms == pytest.approx(leases[0].ttl_hold_ms, abs=1)


async def test_commits_of_one_task_in_another_order_than_offered_still_go_in_the_order_of_ids(
    db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed
) -> None:
    leases = await acquire(*connections, join(db, deployed), deployed.tasks)
    work = [effects(lease, 0, 1) for lease in leases]
    await commit(connections[0], [work[1], replace(work[0])])
    assert checkpoints(db, deployed.tasks) == [1, 1]


async def test_a_takeover_that_fails_on_the_way_leaves_its_connection_fit_for_the_next(
    database_url: str, db: psycopg.Connection[Any], connections: tuple[Connection, Connection], deployed: Deployed
) -> None:
    owner = join(db, deployed)
    with psycopg.connect(database_url) as stalled:
        stalled.execute("select from jeet_internal.task where id = %s for update", (deployed.tasks[1],))
        connections[1].terminate()
        with pytest.raises(InterfaceError):
            await acquire(*connections, owner, deployed.tasks)
        assert await connections[0].fetchval("select 1") == 1
