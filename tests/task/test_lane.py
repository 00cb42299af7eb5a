"""Lanes: turns, time, memory and undoing, on a real database with a guest whose answers the test decides."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
import pytest

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.ids import Offset, TaskId
from jeet.sandbox.call import BatchInput, BatchResult, Fault, OutputGroup
from jeet.task.lane import Lane, LaneSettings
from jeet.task.program import CannotRun
from jeet.task.retry import Careful, OnError
from jeet.task.running import RunningTask
from jeet.task.state import TaskState
from jeet.task.turn import Cursor
from jeet.task.wake import Wake
from task.rows import Deployed, checkpoints, deploy_by_hand

Answer = Callable[["Guest", BatchInput], BatchResult]


def echo(guest: Guest, batch: BatchInput, processed: int | None = None) -> BatchResult:
    """Every event is its own output."""
    count = batch.count if processed is None else processed
    values = b"\n".join(batch.values.split(b"\n")[:count]).decode()
    keys = b"\n".join(batch.keys.split(b"\n")[:count]).decode()
    return BatchResult(
        count, [OutputGroup(0, count, keys, values, None)], (), (), (), guest.memory_bytes, guest.sequence
    )


@dataclass
class Guest:
    """Stands for an instance."""

    program: Program
    memory_bytes: int = 1 << 20
    recycle_due: bool = False
    ticks: Sequence[int] = ()
    slowest: tuple[int, float] | None = None
    sequence: int = 0
    closed: bool = False

    def run(self, batch: BatchInput) -> BatchResult:
        self.sequence += 1
        self.program.batches.append(batch)
        return self.program.answer(self, batch)

    def close(self) -> None:
        self.closed = True


@dataclass
class Program:
    """Stands for a compiled version."""

    answer: Answer = echo
    on_error: OnError = field(default_factory=OnError)
    slice_ms: float = 50.0
    guests: list[Guest] = field(default_factory=list)
    batches: list[BatchInput] = field(default_factory=list)

    def instantiate(self, lease: Any, state: Any) -> Guest:
        self.guests.append(Guest(self))
        return self.guests[-1]


@asynccontextmanager
async def running_lane(
    database_url: str, clock: Clock = SYSTEM_CLOCK, **more: Any
) -> AsyncIterator[tuple[Lane, list[TaskId]]]:
    lost: list[TaskId] = []
    values: dict[str, Any] = {
        "batch_events": 100,
        "batch_bytes": 1 << 20,
        "slice_s": 0.05,
        "memory_bytes": 1 << 30,
        "max_attempts": 3,
        "commit_timeout_s": 30,
        "lock_timeout_s": 5,
        **more,
    }
    wake = Wake(database_url, SYSTEM_CLOCK, Random(1))
    lane = Lane("0", LaneSettings(database_url=database_url, **values), wake, lost.append, clock=clock)
    tasks = [asyncio.create_task(lane.run()), asyncio.create_task(wake.run())]
    try:
        yield lane, lost
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def running_task(lane: Lane, deployed: Deployed, program: Any, index: int = 0) -> RunningTask:
    lease = deployed.lease(index)
    state = TaskState(lane.state, lease.task_id, lease.function_id, 0.0, {})
    return RunningTask(
        lease, program, state, [Cursor(deployed.source, Offset(0), Offset(0))], most_events=100, size=100
    )


def append(db: psycopg.Connection[Any], deployed: Deployed, count: int, start: int = 0) -> None:
    """Spread over the partitions by key."""
    keys = "\n".join(json.dumps(f"k{n}") for n in range(start, start + count))
    values = "\n".join(json.dumps({"n": n}) for n in range(start, start + count))
    db.execute("select jeet_internal.append(%s, %s, %s)", ([deployed.source], [keys], [values]))


def numbers(db: psycopg.Connection[Any], deployed: Deployed) -> list[int]:
    rows = db.execute(
        "select (value ->> 'n')::int from jeet_internal.event where stream_id = %s order by partition, \"offset\"",
        (deployed.sink,),
    )
    return [row[0] for row in rows.fetchall()]


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)


async def test_what_a_time_slice_left_over_is_given_again(database_url: str, db: psycopg.Connection[Any]) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 250)
    program = Program(lambda guest, batch: echo(guest, batch, processed=min(batch.count, 7)))
    async with running_lane(database_url) as (lane, _):
        lane.add(running_task(lane, deployed, program))
        await until(lambda: checkpoints(db, deployed.tasks) == [250])
    assert numbers(db, deployed) == list(range(250))
    assert len(program.guests) == 1


async def test_an_event_that_comes_later_wakes_a_task_that_had_run_dry(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    async with running_lane(database_url) as (lane, _):
        lane.add(running_task(lane, deployed, Program()))
        for number in range(20):
            append(db, deployed, 1, start=number)
            await until(lambda number=number: checkpoints(db, deployed.tasks) == [number + 1])
    assert numbers(db, deployed) == list(range(20))


async def test_a_batch_that_ran_on_top_of_a_failed_one_is_undone_with_it(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    """The first instance makes one output that the database refuses; what it made afterwards may not be committed."""
    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 300)

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        result = echo(guest, batch)
        if guest is guest.program.guests[0] and guest.sequence == 1:
            group = OutputGroup(0, batch.count, result.outputs[0].keys, result.outputs[0].values + "}", None)
            return BatchResult(batch.count, [group], (), (), (), 0, 1)
        return result

    program = Program(answer)
    async with running_lane(database_url) as (lane, lost):
        lane.add(running_task(lane, deployed, program))
        await until(lambda: checkpoints(db, deployed.tasks) == [300])
    assert numbers(db, deployed) == list(range(300))
    assert len(program.guests) > 1
    assert program.guests[0].closed
    assert lost == []
    assert db.execute("select count(*) from jeet_internal.dead_letter").fetchone() == (0,)


async def test_a_version_that_cannot_start_halts_its_task_and_condemns_no_event(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    class Broken(Program):
        def instantiate(self, lease: Any, state: Any) -> Guest:
            raise CannotRun("version 1 of totals cannot start")

    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 1)
    reason = "select halt_reason from jeet_internal.task where status = 'halted'"
    async with running_lane(database_url) as (lane, _):
        task = running_task(lane, deployed, Broken())
        task.cursors[0].careful = Careful(Offset(0), Offset(1))  # alone: how it ends would be the event's own affair
        lane.add(task)
        await until(lambda: db.execute(reason).fetchone() == ("version 1 of totals cannot start",))
    assert checkpoints(db, deployed.tasks) == [0]
    assert db.execute("select count(*) from jeet_internal.dead_letter").fetchone() == (0,)


async def test_a_task_whose_epoch_moved_is_given_up_and_its_neighbour_goes_on(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=2)
    db.execute("update jeet_internal.task set epoch = 1 where id = %s", (deployed.tasks[0],))
    append(db, deployed, 200)
    async with running_lane(database_url) as (lane, lost):
        for index in range(2):
            lane.add(running_task(lane, deployed, Program(), index))
        await until(lambda: checkpoints(db, deployed.tasks)[1] > 50 and lost != [])
    assert lost == [deployed.tasks[0]]
    assert checkpoints(db, deployed.tasks)[0] == 0


async def test_idle_instances_are_dropped_while_all_together_are_too_large(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=8)
    programs = [Program() for _ in deployed.tasks]
    async with running_lane(database_url, memory_bytes=3 << 20) as (lane, _):
        tasks = [running_task(lane, deployed, program, index) for index, program in enumerate(programs)]
        for task in tasks:
            lane.add(task)
        done = 0
        for _ in range(5):
            append(db, deployed, 80, start=done)
            done += 80
            await until(lambda done=done: sum(checkpoints(db, deployed.tasks)) == done)
        await until(lambda: sum(task.instance is not None for task in tasks) <= 3)
        await until(lambda: sum(not guest.closed for program in programs for guest in program.guests) <= 3)
    assert sorted(numbers(db, deployed)) == list(range(done))


async def test_an_instance_that_is_due_is_renewed_between_committed_batches(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 500)

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        guest.recycle_due = guest.sequence == 2
        assert guest.sequence <= 2
        return echo(guest, batch)

    program = Program(answer)
    async with running_lane(database_url) as (lane, _):
        lane.add(running_task(lane, deployed, program))
        await until(lambda: checkpoints(db, deployed.tasks) == [500])
    assert numbers(db, deployed) == list(range(500))
    assert len(program.guests) == 3


async def test_a_pause_that_ends_between_two_looks_at_the_clock_is_no_pause_for_ever(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    """Each look at this clock takes 10 ms, so that pauses end between any two of them."""
    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 12)
    readings = itertools.count(1)

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        if batch.attempts == 1:
            return BatchResult(batch.count, (), (), (Fault(0, "Error: again", "", None),), (), 0, guest.sequence)
        return echo(guest, batch)

    program = Program(answer, on_error=OnError("retry", 3, 0.03))
    slow_clock = Clock(monotonic=lambda: next(readings) * 0.01)
    async with running_lane(database_url, clock=slow_clock) as (lane, _):
        lane.add(running_task(lane, deployed, program))
        await until(lambda: checkpoints(db, deployed.tasks) == [12])
    assert numbers(db, deployed) == list(range(12))


@pytest.mark.parametrize("slow_for_s", [0.0, 1.5])
async def test_a_function_that_has_used_much_time_lets_others_go_first(
    database_url: str, db: psycopg.Connection[Any], slow_for_s: float
) -> None:
    """However long the greedy one ran alone before, the other gets its turns; and not all turns for that."""
    greedy, modest = deploy_by_hand(db, "greedy", 4), deploy_by_hand(db, "modest", 4)

    def burn(guest: Guest, batch: BatchInput) -> BatchResult:
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            pass
        return echo(guest, batch, processed=1)

    append(db, greedy, 10_000)
    slow, quick = Program(burn), Program(burn)
    async with running_lane(database_url) as (lane, _):
        for index in range(4):
            lane.add(running_task(lane, greedy, slow, index))
        await until(lambda: len(slow.batches) * 0.03 >= slow_for_s)
        append(db, modest, 10_000)
        for index in range(4):
            lane.add(running_task(lane, modest, quick, index))
        before = len(slow.batches)
        await until(lambda: len(quick.batches) >= 30, within_s=60)
    ran = len(slow.batches) - before
    assert 15 <= ran <= 60


async def test_a_commit_carries_all_ready_tasks(database_url: str, db: psycopg.Connection[Any]) -> None:
    deployed = deploy_by_hand(db, partitions=8)
    append(db, deployed, 80)
    async with running_lane(database_url) as (lane, _):
        for index in range(8):
            lane.add(running_task(lane, deployed, Program(), index))
        await until(lambda: sum(checkpoints(db, deployed.tasks)) == 80)
    commits = db.execute("select count(distinct committed_at) from jeet_internal.checkpoint").fetchone()
    assert commits is not None
    assert commits[0] <= 4


def fail_all(db: psycopg.Connection[Any], deployed: Deployed, count: int) -> None:
    """Dead letters for the first events of partition 0, all of them to be run again."""
    db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", event, error, version)'
        " select %s, %s, o, '{}', 'failed', 1 from generate_series(0, %s - 1) o",
        (deployed.tasks[0], deployed.source, count),
    )
    db.execute("select jeet_internal.redrive_dead_letters(array(select id from jeet_internal.dead_letter))")


async def test_redriven_events_are_read_in_batches_of_bounded_bytes(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    values = "\n".join(json.dumps({"n": n, "text": "x" * size}) for n, size in enumerate([900] * 9 + [5000, 900]))
    keys = "\n".join(['"k"'] * 11)
    db.execute("select jeet_internal.append(%s, %s, %s)", ([deployed.source], [keys], [values]))
    db.execute("update jeet_internal.checkpoint set next_offset = 11")
    fail_all(db, deployed, 11)
    program = Program()
    async with running_lane(database_url, batch_bytes=3000) as (lane, _):
        task = running_task(lane, deployed, program)
        task.cursors[0].committed = task.cursors[0].read = Offset(11)
        task.has_inbox = True
        lane.add(task)
        await until(lambda: len(numbers(db, deployed)) == 11)
    assert [batch.count for batch in program.batches] == [3, 3, 3, 1, 1]
    assert numbers(db, deployed) == list(range(11))


def slow(guest: Guest, batch: BatchInput) -> BatchResult:
    """Takes the whole time of a cycle, whatever the clock of its thread says."""
    time.sleep(0.1)
    return echo(guest, batch)


async def test_tasks_that_a_cycle_had_no_time_for_come_first_in_the_next(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=3)
    append(db, deployed, 3000)
    programs = [Program(slow) for _ in deployed.tasks]
    async with running_lane(database_url, slice_s=0.01) as (lane, _):
        tasks = [running_task(lane, deployed, program, index) for index, program in enumerate(programs)]
        for task in tasks:
            task.most_events = task.size = 5
            lane.add(task)
        await until(lambda: sum(len(program.batches) for program in programs) >= 12)
        ran = sorted(len(program.batches) for program in programs)
    assert ran[0] >= ran[-1] - 2


async def test_a_task_that_a_cycle_had_no_time_for_is_let_go_when_asked(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=2)
    append(db, deployed, 200)
    entered, leave = threading.Event(), threading.Event()

    def held(guest: Guest, batch: BatchInput) -> BatchResult:
        entered.set()
        assert leave.wait(20)
        return slow(guest, batch)

    programs = [Program(held), Program(held)]
    async with running_lane(database_url, slice_s=0.01) as (lane, _):
        for index, program in enumerate(programs):
            task = running_task(lane, deployed, program, index)
            task.most_events = task.size = 5
            lane.add(task)
        await until(entered.is_set)
        # Both are in the cycle; the one whose guest does not run is asked to leave, and the cycle's time is over.
        (waiting,) = [index for index, program in enumerate(programs) if not program.batches]
        leaving = asyncio.create_task(lane.remove(deployed.tasks[waiting]))
        await until(lambda: lane.tasks[deployed.tasks[waiting]].gone is not None)
        assert lane.tasks[deployed.tasks[waiting]].in_cycle
        leave.set()
        await asyncio.wait_for(leaving, 20)
    assert programs[waiting].batches == []
