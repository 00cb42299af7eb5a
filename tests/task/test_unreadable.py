"""A partition that cannot be read stands still by itself."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest

from task.rows import checkpoints, deploy_by_hand
from task.test_lane import Program, append, running_lane, running_task, until

BREAKAGES = {
    "a gap": 'delete from jeet_internal.event where partition = 0 and "offset" = 3',
    "a time beyond all bounds": """
        create or replace function jeet_internal.is_time(p_ts timestamptz) returns boolean language sql as
            'select p_ts is not null';
        update jeet_internal.event set ts = 'infinity' where partition = 0 and "offset" = 3""",
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
async def test_a_partition_whose_events_cannot_be_read_holds_up_no_other_and_is_named(
    database_url: str, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture, breakage: str
) -> None:
    deployed = deploy_by_hand(db, partitions=4)
    append(db, deployed, 200)
    heads = [row[0] for row in db.execute("select head from jeet.lag order by partition").fetchall()]
    db.execute(breakage.encode())
    program = Program()
    with caplog.at_level(logging.ERROR):
        async with running_lane(database_url) as (lane, lost):
            for index in range(4):
                lane.add(running_task(lane, deployed, program, index))
            await until(lambda: checkpoints(db, deployed.tasks)[1:] == heads[1:])
            await until(lambda: "cannot be read" in caplog.text)
    assert (checkpoints(db, deployed.tasks)[0], lost) == (0, [])
    (told,) = [record for record in caplog.records if "cannot be read" in record.getMessage()]
    fields = told.fields
    assert (fields["function"], fields["partition"], fields["offset"]) == ("totals", 0, 0)
