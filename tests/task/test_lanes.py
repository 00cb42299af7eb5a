"""Lanes together: little work is done by one of them, much by all, and nobody waits for a neighbour's long turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import psycopg

from jeet.clock import SYSTEM_CLOCK
from jeet.sandbox.call import BatchInput, BatchResult
from jeet.task.lane import Lane
from jeet.task.lane_settings import LaneSettings
from jeet.task.wake import Wake
from task.rows import checkpoints, deploy_by_hand
from task.test_lane import Guest, Program, append, echo, numbers, running_task, until


@asynccontextmanager
async def two_lanes(database_url: str) -> AsyncIterator[list[Lane]]:
    wake = Wake(database_url, SYSTEM_CLOCK, Random(1))
    settings = LaneSettings(
        database_url=database_url,
        batch_events=100,
        batch_bytes=1 << 20,
        slice_s=0.05,
        memory_bytes=1 << 30,
        max_attempts=3,
        commit_timeout_s=30,
        lock_timeout_s=5,
    )
    lanes = [Lane(str(number), settings, wake, lambda _: None) for number in range(2)]
    lanes[0].peers, lanes[1].peers = [lanes[1]], [lanes[0]]
    running = [asyncio.create_task(lane.run()) for lane in lanes] + [asyncio.create_task(wake.run())]
    try:
        yield lanes
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_little_work_gathers_in_one_lane_and_instances_come_along(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=8)
    programs = [Program() for _ in deployed.tasks]
    threads: set[int] = set()

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        threads.add(threading.get_ident())
        return echo(guest, batch)

    async with two_lanes(database_url) as lanes:
        for index, program in enumerate(programs):
            program.answer = answer
            lanes[index % 2].add(running_task(lanes[index % 2], deployed, program, index))
        for done in range(80, 801, 80):
            threads.clear()
            append(db, deployed, 80, start=done - 80)
            await until(lambda done=done: sum(checkpoints(db, deployed.tasks)) == done)
        assert sorted(len(lane.tasks) for lane in lanes) == [0, 8]
        assert len(threads) == 1
    assert sorted(numbers(db, deployed)) == list(range(800))
    assert all(len(program.guests) == 1 for program in programs)


async def test_much_work_is_done_by_both_lanes_at_a_time(database_url: str, db: psycopg.Connection[Any]) -> None:
    """Each batch waits until a batch of the other lane runs too."""
    deployed = deploy_by_hand(db, partitions=4)
    append(db, deployed, 2400)
    together = threading.Barrier(2)
    met = threading.Event()

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        if batch.first_offset > 0 and not met.is_set():
            together.wait(timeout=20)
            met.set()
        return echo(guest, batch)

    async with two_lanes(database_url) as lanes:
        for index in range(4):
            lanes[0].add(running_task(lanes[0], deployed, Program(answer), index))
        await until(lambda: sum(checkpoints(db, deployed.tasks)) == 2400)
    assert met.is_set()
    assert sorted(numbers(db, deployed)) == list(range(2400))


async def test_what_is_ready_does_not_wait_for_a_neighbours_long_turn(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=8)
    over = threading.Event()

    def stay(guest: Guest, batch: BatchInput) -> BatchResult:
        over.wait(timeout=30)
        return echo(guest, batch)

    try:
        async with two_lanes(database_url) as lanes:
            lanes[0].add(running_task(lanes[0], deployed, Program(stay), 0))
            append(db, deployed, 40)
            await until(lambda: any(task.in_cycle for task in lanes[0].tasks.values()))
            for index in range(1, 8):
                lanes[0].add(running_task(lanes[0], deployed, Program(), index))
            await until(lambda: all(offset > 0 for offset in checkpoints(db, deployed.tasks)[1:]))
            assert checkpoints(db, deployed.tasks)[0] == 0
            over.set()
            await until(lambda: sum(checkpoints(db, deployed.tasks)) == 40)
    finally:
        over.set()
    assert sorted(numbers(db, deployed)) == list(range(40))


async def test_a_task_can_be_stopped_wherever_it_runs_now(database_url: str, db: psycopg.Connection[Any]) -> None:
    deployed = deploy_by_hand(db, partitions=2)
    async with two_lanes(database_url) as lanes:
        for index in range(2):
            lanes[index].add(running_task(lanes[index], deployed, Program(), index))
        append(db, deployed, 20)
        await until(lambda: sum(checkpoints(db, deployed.tasks)) == 20)
        for task_id in deployed.tasks:
            lane = next(lane for lane in lanes if task_id in lane.tasks)
            async with asyncio.timeout(20):
                await lane.remove(task_id)
        assert all(not lane.tasks for lane in lanes)
