"""State that is swept under a batch makes it run again; a guest that only pretends holds nothing up for ever."""

from __future__ import annotations

from typing import Any

import psycopg

from jeet.sandbox.call import BatchInput, BatchResult, StateWrites
from task.rows import checkpoints, deploy_by_hand
from task.test_lane import Guest, Program, append, running_lane, running_task, until


def refresh(batch: BatchInput) -> BatchResult:
    """Nothing but a refresh of entry "a"."""
    return BatchResult(batch.count, (), [StateWrites(0, 0, "", "", 0, "", 1, '"a"')], (), (), 0, 1)


async def test_a_batch_under_which_state_was_swept_runs_again_and_no_event_is_set_aside(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 1)

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        # An honest guest's new instance reads state anew and does not find the entry; here another one is swept, twice.
        if guest in guest.program.guests[:3]:
            return refresh(batch)
        return BatchResult(batch.count, (), (), (), (), 0, guest.sequence)

    program = Program(answer)
    async with running_lane(database_url) as (lane, lost):
        lane.add(running_task(lane, deployed, program))
        await until(lambda: checkpoints(db, deployed.tasks) == [1])
    assert (len(program.guests), lost) == (4, [])
    assert db.execute("select count(*) from jeet_internal.dead_letter").fetchone() == (0,)


async def test_events_that_refresh_what_was_never_there_are_set_aside_in_the_end(
    database_url: str, db: psycopg.Connection[Any]
) -> None:
    deployed = deploy_by_hand(db, partitions=1)
    append(db, deployed, 4)

    def answer(guest: Guest, batch: BatchInput) -> BatchResult:
        if b'{"n": 2}' in batch.values:
            return refresh(batch)
        return BatchResult(batch.count, (), (), (), (), 0, guest.sequence)

    async with running_lane(database_url) as (lane, _):
        lane.add(running_task(lane, deployed, Program(answer)))
        await until(lambda: checkpoints(db, deployed.tasks) == [4])
    letters = db.execute('select "offset", error from jeet_internal.dead_letter').fetchall()
    assert [(offset, "not there" in error) for offset, error in letters] == [(2, True)]
