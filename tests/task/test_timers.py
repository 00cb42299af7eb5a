"""Timers: they fire when they are due, once, in order, and one that fails stops nobody else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from jeet.db.connect import connect
from jeet.ids import Offset
from jeet.sandbox.call import BatchInput, BatchResult, Fault, GuestTrap, TimerSet
from jeet.task.commit import LeaseLost, commit
from jeet.task.effects import Effects, Timer
from jeet.task.retry import OnError
from jeet.task.running import TIMERS
from task.rows import Deployed, deploy_by_hand
from task.test_lane import Guest, until
from task.timed import (
    PASSES_ON,
    PLAN,
    TimedProgram,
    clock,
    fires,
    publish,
    running_clocks,
    set_timers,
    sets,
    texts,
    timed_task,
    timers,
)


@pytest.fixture
def deployed(db: psycopg.Connection[Any]) -> Deployed:
    return deploy_by_hand(db, partitions=1)


async def test_timers_fire_in_order_once_event_time_has_come_to_them_and_then_the_watermark_follows(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    set_timers(db, deployed, "c", "b", at_ms=200)
    set_timers(db, deployed, "a", at_ms=100)
    set_timers(db, deployed, "later", at_ms=300)
    seen: list[tuple[float | None, float | None]] = []

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        if batch.timers:
            seen.append(clock(db, deployed.tasks[0]))
            assert batch.timestamps.split(b"\n") == [b"100", b"200", b"200"]
        return fires(guest, batch)

    async with running_clocks(database_url) as (lane, _):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram(answer)))
        publish(db, deployed.source, 50, 250, 120)
        await until(lambda: texts(db, deployed.sink) == ["a", "b", "c"])
    assert timers(db) == ["later"]
    assert seen == [(250, None)]  # the clock came with the events, the watermark waited for the timers
    assert clock(db, deployed.tasks[0]) == (250, 250)


async def test_a_task_may_set_move_and_cancel_timers_also_in_the_firing_of_the_same_one(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    set_timers(db, deployed, "again", "cancelled", "moved", at_ms=100)
    words = iter(
        [
            sets(
                TimerSet("window", "k", "cancelled", None),
                TimerSet("window", "k", "moved", 5000),
                TimerSet("window", "k", "new", 150),
            ),
            sets(TimerSet("window", "k", "again", 6000)),
        ]
    )

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        return fires(guest, batch, **next(words, {}))

    async with running_clocks(database_url) as (lane, _):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram(answer)))
        publish(db, deployed.source, 200)
        await until(lambda: texts(db, deployed.sink) == ["again", "new"])
        await until(lambda: timers(db) == ["moved", "again"])


async def test_a_timer_by_the_clock_fires_without_any_event(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    db.execute(
        "insert into jeet_internal.timer (task_id, operator, key, name, at, wall)"
        " values (%s, 'timer', 'k', 'soon', clock_timestamp() + interval '0.5 second', true),"
        " (%s, 'timer', 'k', 'late', clock_timestamp() + interval '1 hour', true)",
        (deployed.tasks[0], deployed.tasks[0]),
    )
    async with running_clocks(database_url) as (lane, _):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram()))
        await until(lambda: texts(db, deployed.sink) == ["soon"])
    early = db.execute(
        "select count(*) from jeet_internal.event e where e.published_at < (select acquired from (select min(at)"
        " - interval '1 hour' + interval '0.5 second' as acquired from jeet_internal.timer) t)"
    ).fetchone()
    assert early == (0,)
    assert timers(db) == ["late"]


def letters(db: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    rows = db.execute(
        'select event, key, error, "offset" < 0, stream, status from jeet.dead_letters order by id'
    ).fetchall()
    return [(json.loads(row[0])["timer"]["name"], *row[1:]) for row in rows]


@pytest.mark.parametrize("how", ["fault", "trap"])
async def test_a_firing_that_fails_is_a_dead_letter_and_the_others_go_on(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed, how: str
) -> None:
    names = [f"t{n:02}" for n in range(40)]
    set_timers(db, deployed, *names)
    ill = True

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        named = [json.loads(value).get("name") for value in batch.values.split(b"\n")]
        if not ill or "t17" not in named:
            return fires(guest, batch)
        if how == "trap":
            raise GuestTrap("it trapped", kind="abort", suspects=range(batch.count))
        result = fires(guest, batch)
        keep = [name for name in named if name != "t17"]
        group = replace(
            result.outputs[0],
            count=len(keep),
            keys="\n".join(['"k"'] * len(keep)),
            values="\n".join(map(json.dumps, keep)),
        )
        return replace(result, outputs=[group], faults=[Fault(named.index("t17"), "it threw", "", None)])

    async with running_clocks(database_url) as (lane, _):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram(answer)))
        publish(db, deployed.source, 200)
        await until(lambda: not timers(db))
        expected = [name for name in names if name != "t17"]
        assert texts(db, deployed.sink) == expected
        message = "it trapped" if how == "trap" else "it threw"
        assert letters(db) == [("t17", "k", message, True, None, "open")]
        # Redriven it is set again as it was; that it is due is seen without any event.
        ill = False
        db.execute("select jeet_internal.redrive_dead_letters(array(select id from jeet.dead_letters))")
        await until(lambda: texts(db, deployed.sink) == [*expected, "t17"])
    assert letters(db)[0][-1] == "redriven"
    assert not timers(db)


async def test_a_firing_that_fails_follows_on_error(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    set_timers(db, deployed, "a", "b")
    tried: list[int] = []

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        result = fires(guest, batch)
        named = [json.loads(value).get("name") for value in batch.values.split(b"\n")]
        if "b" not in named:
            return result
        tried.append(batch.attempts)
        return replace(result, outputs=(), faults=[Fault(named.index("b"), "it threw", "", None)])

    async with running_clocks(database_url) as (lane, _):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram(answer, on_error=OnError("retry", 2, 0.0))))
        publish(db, deployed.source, 200)
        await until(lambda: not timers(db))
    assert tried[-3:] == [1, 2, 3]
    assert texts(db, deployed.sink) == ["a"]
    assert [letter[0] for letter in letters(db)] == ["b"]


async def test_a_function_that_is_to_halt_does_so_at_the_timer_that_fails(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    set_timers(db, deployed, "bad")

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        result = fires(guest, batch)
        return replace(result, outputs=(), faults=[Fault(0, "it threw", "", None)]) if batch.timers else result

    def halted() -> Any:
        row = db.execute("select halt_reason from jeet_internal.task where status = 'halted'").fetchone()
        return row and row[0]

    async with running_clocks(database_url) as (lane, _):
        lane.add(timed_task(lane, deployed.lease(), TimedProgram(answer, on_error=OnError("halt"))))
        publish(db, deployed.source, 200)
        await until(lambda: halted() is not None)
    assert halted() == "timer 'bad' of window, key 'k': it threw"
    assert timers(db) == ["bad"]
    assert letters(db) == []


async def test_a_timer_during_which_owners_died_is_on_record_runs_alone_and_is_set_aside(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    set_timers(db, deployed, "a", "killer", "z")
    batches: list[list[str]] = []

    class Died(BaseException):
        """Stands for the end of the process."""

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        if batch.timers:
            named = [json.loads(value)["name"] for value in batch.values.split(b"\n")]
            batches.append(named)
            recorded = {row[0] for row in db.execute("select name from jeet_internal.timer where begun").fetchall()}
            assert set(named) <= recorded
            if "killer" in named:
                raise Died
        return fires(guest, batch)

    def take_over() -> None:
        # What acquire_tasks does when an owner died.
        db.execute("update jeet_internal.timer set begun = false, attempts = attempts + 1 where begun")
        db.execute("update jeet_internal.task set epoch = epoch + 1")

    publish(db, deployed.source, 200)
    for epoch in range(10):
        if not timers(db):
            break
        position = 0 if epoch == 0 else 1
        lease = replace(deployed.lease(epoch=epoch, start=position), crashes=1)
        if epoch:
            lease = replace(lease, clock_ms=200.0)
        async with running_clocks(database_url) as (lane, _):
            lane.add(timed_task(lane, lease, TimedProgram(answer)))
            died = len(batches)
            await until(lambda died=died: not timers(db) or any("killer" in b for b in batches[died:]))  # type: ignore[misc]
        take_over()
    # Once with the others, then alone until it had its chances.
    assert [batch for batch in batches if "killer" in batch] == [["a", "killer", "z"], ["killer"], ["killer"]]
    assert sorted(texts(db, deployed.sink)) == ["a", "z"]
    assert letters(db) == [
        ("killer", "k", "this timer ended the worker process 3 times; it did not fire again", True, None, "open")
    ]


async def test_a_clock_that_moves_is_committed_by_itself_and_an_idle_task_writes_nothing(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    # The delay leaves the clock behind what was seen, until the input is idle.
    plan = replace(PLAN, delay_ms=1000, idle_ms=300, cuts=(PASSES_ON,))
    async with running_clocks(database_url) as (lane, clocks):
        task = timed_task(lane, deployed.lease(), TimedProgram(plan=plan))
        lane.add(task)
        publish(db, deployed.source, 5000, 6000)
        await until(lambda: clock(db, deployed.tasks[0]) == (5000, 5000))
        await until(lambda: clock(db, deployed.tasks[0]) == (6000, 6000))
        before = db.execute("select xmin::text, ctid::text from jeet_internal.task").fetchall()
        await clocks.look_again(3)
        assert not task.may_run(lane._clock.monotonic())
        assert db.execute("select xmin::text, ctid::text from jeet_internal.task").fetchall() == before


async def test_another_epoch_or_a_timer_that_is_not_there_keeps_a_firing_from_being_committed(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed
) -> None:
    set_timers(db, deployed, "a")
    fired = Timer("window", "k", "a", 100.0, False)
    effects = Effects(deployed.lease(), None, Offset(0), Offset(0), timed=True, clock_ms=200.0, fired=[fired])
    data = await connect(database_url, "test")
    try:
        with pytest.raises(LeaseLost):
            await commit(data, [replace(effects, lease=deployed.lease(epoch=7))])
        assert timers(db) == ["a"]
        await commit(data, [effects])
        assert timers(db) == []
        with pytest.raises(LeaseLost):  # the same once more
            await commit(data, [replace(effects, clock_ms=300.0)])
        assert clock(db, deployed.tasks[0]) == (200, 200)
    finally:
        data.terminate()


@pytest.mark.parametrize(("crashes", "most"), [(0, 1000), (1, TIMERS)])
async def test_pieces_of_timers_grow_while_all_is_well_but_stay_small_where_they_are_on_record(
    database_url: str, db: psycopg.Connection[Any], deployed: Deployed, crashes: int, most: int
) -> None:
    """A crash makes suspects of all in a piece that is on record, and each suspect fires alone."""
    db.execute(
        "insert into jeet_internal.timer (task_id, operator, key, name, at, wall)"
        " select %s, 'window', 'k', n::text, to_timestamp(1), false from generate_series(1, 3000) n",
        (deployed.tasks[0],),
    )
    db.execute("update jeet_internal.task set clock = to_timestamp(2) where id = %s", (deployed.tasks[0],))
    pieces: list[int] = []

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        pieces.append(batch.count)
        return fires(guest, batch)

    async with running_clocks(database_url) as (lane, _):
        task = timed_task(lane, replace(deployed.lease(), crashes=crashes, clock_ms=2000.0), TimedProgram(answer))
        task.most_events = 1000
        lane.add(task)
        await until(lambda: not timers(db))
    assert max(pieces) == most
