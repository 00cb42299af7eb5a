"""The commit: all of it or nothing, by the holder of the epoch only, whatever text a guest hands over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import pytest_asyncio

from jeet.db.connect import connect
from jeet.ids import Offset
from jeet.limits import DEFAULTS
from jeet.sandbox.call import TimerSet
from jeet.sandbox.gate import cut_text
from jeet.task.commit import DataRefused, LeaseLost, StateSwept, commit
from jeet.task.effects import DeadLetter, Deletes, Effects, LoggedLine, Output, Puts, Timer, Touches
from task.rows import Deployed, checkpoints, deploy_by_hand

if TYPE_CHECKING:
    from asyncpg import Connection


@pytest_asyncio.fixture
async def writer(database_url: str) -> AsyncIterator[Connection]:
    connection = await connect(database_url, "test commit")
    yield connection
    await connection.close()


@pytest.fixture
def deployed(db: psycopg.Connection) -> Deployed:
    return deploy_by_hand(db)


def effects(deployed: Deployed, index: int = 0, start: int = 0, end: int = 2, **more: Any) -> Effects:
    return Effects(
        lease=deployed.lease(index),
        stream=deployed.source,
        origin=deployed.source,
        start=Offset(start),
        end=Offset(end),
        **more,
    )


def full(deployed: Deployed, index: int = 0) -> Effects:
    return effects(
        deployed,
        index,
        puts=[Puts(0, None, 2, '"a"\n"b"', "1\n{}")],
        outputs=[Output(deployed.sink, '"a"\n"b"', "10\n20")],
        dead_letters=[DeadLetter(Offset(1), "b", "{}", "Error: no", "at f.js:1", "totals.b", 1)],
        logs=[LoggedLine(Offset(0), "info", "hello")],
    )


def traces(db: psycopg.Connection) -> dict[str, Any]:
    """All that a commit leaves."""
    return {
        "checkpoints": db.execute("select next_offset from jeet_internal.checkpoint order by task_id").fetchall(),
        "state": db.execute("select task_id, key, value from jeet_internal.state order by 1, 2").fetchall(),
        "outputs": db.execute("select key, value from jeet_internal.event order by value::text").fetchall(),
        "dead": db.execute('select task_id, "offset", error from jeet_internal.dead_letter').fetchall(),
        "logs": db.execute("select message from jeet_internal.log").fetchall(),
        "heads": db.execute("select sum(head) from jeet_internal.head").fetchall(),
    }


async def test_a_commit_moves_everything_together(
    db: psycopg.Connection, writer: Connection, deployed: Deployed
) -> None:
    await commit(writer, [full(deployed)])
    found = traces(db)
    assert found["checkpoints"] == [(2,), (0,)]
    assert found["state"] == [(deployed.tasks[0], "a", 1), (deployed.tasks[0], "b", {})]
    assert found["outputs"] == [("a", 10), ("b", 20)]
    assert found["dead"] == [(deployed.tasks[0], 1, "Error: no")]
    assert found["logs"] == [("hello",)]


@pytest.mark.parametrize("change", ["epoch", "checkpoint"])
async def test_a_commit_of_another_epoch_or_from_another_place_writes_nothing_for_any_task_in_it(
    db: psycopg.Connection, writer: Connection, deployed: Deployed, change: str
) -> None:
    before = traces(db)
    if change == "epoch":
        db.execute("update jeet_internal.task set epoch = epoch + 1 where id = %s", (deployed.tasks[1],))
        work = [full(deployed, 0), full(deployed, 1)]
    else:
        work = [full(deployed, 0), replace(full(deployed, 1), start=Offset(1))]
    with pytest.raises(LeaseLost) as lost:
        await commit(writer, work)
    assert lost.value.tasks == {deployed.tasks[1]}
    assert traces(db) == before


@pytest.mark.parametrize(
    "hostile",
    [
        Puts(0, None, 1, '"a"\n"b"', "1\n2"),  # more than announced
        Puts(0, None, 2, '"a"\n"b"', "1"),
        Puts(0, None, 2, '"a"', "1\n2"),
        Puts(0, None, 1, "null", "1"),
        Puts(0, None, 1, "no json", "1"),
        Puts(0, None, 1, '"a"', "{"),
        Puts(0, None, 1, '"a"', "NaN"),
        Puts(0, None, 1, '"\\u0000"', "1"),
        Puts(0, None, 1, '"\\ud800"', "1"),
        Puts(0, None, 1, '"\ud800"', "1"),
        Puts(0, None, 1, '"a\x00"', "1"),
        Puts(0, None, 2, '"a"\n"a"', "1\n2"),
        Puts(0, None, 2, '"c"\n"c"', "1\n2"),
        Puts(0, None, 1, '"a"\n"a"', "1\n2"),
        Puts(0, None, 1, json.dumps("k" * 4000 + "".join(map(chr, range(256, 3000)))), "1"),
    ],
    ids=lambda puts: repr((puts.keys, puts.values))[:40],
)
async def test_hostile_state_is_refused_whole_and_as_data(
    db: psycopg.Connection, writer: Connection, deployed: Deployed, hostile: Puts
) -> None:
    before = traces(db)
    with pytest.raises(DataRefused):
        await commit(writer, [replace(full(deployed), puts=[hostile])])
    assert traces(db) == before
    # Nor if the entries are there, and would only be changed.
    await commit(writer, [full(deployed)])
    before = traces(db)
    with pytest.raises(DataRefused):
        await commit(writer, [effects(deployed, start=2, end=4, puts=[hostile])])
    assert traces(db) == before


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ('"a"', "1\n2"),
        ('"a"\n"b"', "1"),
        ('"a"', "{"),
        ("{", "1"),
        ('"a"', "'); drop table jeet_internal.task; --"),
        ('"\\u0000"', "1"),
    ],
)
async def test_hostile_outputs_are_refused_whole_and_as_data(
    db: psycopg.Connection, writer: Connection, deployed: Deployed, keys: str, values: str
) -> None:
    before = traces(db)
    with pytest.raises(DataRefused):
        await commit(writer, [replace(full(deployed), outputs=[Output(deployed.sink, keys, values)])])
    assert traces(db) == before


async def test_any_string_is_a_key_of_state(db: psycopg.Connection, writer: Connection, deployed: Deployed) -> None:
    keys = [
        "",
        "__proto__",
        "constructor",
        "\n",
        '"',
        "'",
        "\\",
        "\u2028",
        "é",
        "e\u0301",
        "🌍",
        "\x01",
        "a\tb",
        "null",
    ]
    joined = "\n".join(json.dumps(key) for key in keys)
    await commit(writer, [effects(deployed, puts=[Puts(0, None, len(keys), joined, "\n".join(["1"] * len(keys)))])])
    stored = {row[0] for row in db.execute("select key from jeet_internal.state").fetchall()}
    assert stored == set(keys)
    await commit(writer, [effects(deployed, start=2, end=3, deletes=[Deletes(0, joined)])])
    assert db.execute("select count(*) from jeet_internal.state").fetchone() == (0,)


async def test_expiry_is_stored_by_the_tasks_own_clock_and_a_touch_moves_it_alone(
    db: psycopg.Connection, writer: Connection, deployed: Deployed
) -> None:
    await commit(writer, [effects(deployed, puts=[Puts(0, 1_700_000_000_123.0, 1, '"a"', "5")])])
    read = "select extract(epoch from expires_at)::float8 * 1000, value from jeet_internal.state"
    assert db.execute(read).fetchone() == (pytest.approx(1_700_000_000_123.0), 5)
    await commit(writer, [effects(deployed, start=2, end=4, touches=[Touches(0, 1_800_000_000_000.0, '"a"')])])
    assert db.execute(read).fetchall() == [(pytest.approx(1_800_000_000_000.0), 5)]


async def test_a_refresh_of_an_entry_that_was_swept_meanwhile_undoes_the_batch_and_blames_nobody(
    db: psycopg.Connection, writer: Connection, deployed: Deployed
) -> None:
    await commit(writer, [effects(deployed, puts=[Puts(0, 1.0, 2, '"a"\n"b"', "5\n6")])])
    db.execute("delete from jeet_internal.state where key = 'b'")
    before = traces(db)
    touching = effects(deployed, start=2, end=4, touches=[Touches(0, 2.0, '"a"\n"b"')])
    with pytest.raises(StateSwept) as swept:
        await commit(writer, [touching, full(deployed, 1)])
    assert swept.value.tasks == {deployed.tasks[0]}
    assert traces(db) == before


async def test_a_refresh_that_names_an_entry_twice_is_refused_as_data(
    db: psycopg.Connection, writer: Connection, deployed: Deployed
) -> None:
    await commit(writer, [effects(deployed, puts=[Puts(0, 1.0, 1, '"a"', "5")])])
    with pytest.raises(DataRefused):
        await commit(writer, [effects(deployed, start=2, end=4, touches=[Touches(0, 2.0, '"a"\n"a"')])])


async def test_a_halt_that_meets_a_commit_with_log_lines_waits_for_it_and_neither_fails(
    db: psycopg.Connection, database_url: str, writer: Connection, deployed: Deployed
) -> None:
    halt = "select jeet_internal.halt_task(%s, 0, 'stop')"
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%halt_task%'"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        async with writer.transaction():
            await writer.execute("update jeet_internal.task set crashes = 0 where id = $1", deployed.tasks[0])
            halting = asyncio.create_task(other.execute(halt, (deployed.tasks[0],)))
            async with asyncio.timeout(20):
                while db.execute(waits).fetchone() == (0,):
                    await asyncio.sleep(0.01)
            await commit(writer, [full(deployed)])
        assert await (await halting).fetchone() == (True,)
    assert traces(db)["logs"] == [("hello",)]


async def test_a_dead_letter_always_fits(db: psycopg.Connection, writer: Connection, deployed: Deployed) -> None:
    most = DEFAULTS["dead_letter_bytes"]
    safe = cut_text("\x00\ud800 \\u0000 \n" + "é" * most, most)
    assert len(safe.encode()) <= most
    letter = DeadLetter(Offset(0), "k", safe, safe, safe, safe, 1)
    await commit(writer, [effects(deployed, dead_letters=[letter])])
    row = db.execute("select error, stack, state_key from jeet_internal.dead_letter").fetchone()
    assert row is not None
    assert all(text.startswith("\\u0000\\ud800 \\u0000") and text.endswith("[cut]") for text in row)


async def test_a_redriven_event_is_settled_in_the_fenced_commit(
    db: psycopg.Connection, writer: Connection, deployed: Deployed
) -> None:
    await commit(writer, [full(deployed)])
    letter = db.execute("select id from jeet_internal.dead_letter").fetchone()
    assert letter is not None
    db.execute(
        "insert into jeet_internal.inbox (task_id, dead_letter_id) values (%s, %s)", (deployed.tasks[0], *letter)
    )
    again = DeadLetter(Offset(1), "b", "{}", "Error: still no", "", None, 1)
    inbox = {"stream": None, "origin": deployed.source, "start": Offset(1), "end": Offset(1), "inbox": letter}
    await commit(writer, [Effects(lease=deployed.lease(), dead_letters=[again], **inbox)])
    status = "select status, attempts, error, (select count(*) from jeet_internal.inbox) from jeet_internal.dead_letter"
    assert db.execute(status).fetchone() == ("open", 2, "Error: still no", 0)
    db.execute(
        "insert into jeet_internal.inbox (task_id, dead_letter_id) values (%s, %s)", (deployed.tasks[0], *letter)
    )
    await commit(writer, [Effects(lease=deployed.lease(), redriven=letter, **inbox)])
    assert db.execute(status).fetchone() == ("redriven", 3, "Error: still no", 0)
    assert checkpoints(db, deployed.tasks) == [2, 0]


async def test_every_statement_of_the_commit_goes_by_index(
    db: psycopg.Connection, database_url: str, deployed: Deployed
) -> None:
    """Plans as the session of a lane makes them, generic ones included, on tables that are large."""
    from jeet.task.lane_settings import LaneSettings

    settings = LaneSettings(database_url, 1, 1, 1, 1, 1, 30, 5)
    writer = await connect(database_url, "test plans", settings.session())
    db.execute(
        "insert into jeet_internal.state (task_id, collection_id, key, value)"
        " select %s, 0, 'k' || n, '1' from generate_series(1, 20000) n",
        (deployed.tasks[1],),
    )
    db.execute("analyze jeet_internal.state")
    plans: list[str] = []
    writer.add_log_listener(lambda _connection, message: plans.append(str(message)))
    await writer.execute("load 'auto_explain'")
    for name, value in {
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_nested_statements": "on",
        "client_min_messages": "log",
    }.items():
        await writer.fetch("select set_config($1, $2, false)", name, value)
    for number in range(7):
        plans.clear()
        work = replace(
            full(deployed),
            start=Offset(2 * number),
            end=Offset(2 * number + 2),
            touches=[Touches(0, 1.0, '"a"')],
            deletes=[Deletes(0, '"y"')],
            clear_suspects=True,
        )
        await commit(writer, [work])
    text = "\n".join(plans)
    await writer.close()
    for table in ("task", "checkpoint", "state", "suspect", "head"):
        assert f"Seq Scan on {table}" not in text, text
    for index in ("task_pkey", "checkpoint_pkey", "state_pkey", "suspect_pkey"):
        assert index in text, text


async def test_a_commit_looks_up_the_entries_and_timers_that_it_changes_and_no_others(
    db: psycopg.Connection, writer: Connection, deployed: Deployed
) -> None:
    """Whatever was known of the tables when they were looked at last: windows fill and empty them all the time."""
    db.execute("analyze jeet_internal.state, jeet_internal.timer")
    names = [f"k{n:04}" for n in range(3000)]
    keys, values = "\n".join(json.dumps(name) for name in names), "\n".join("1" for _ in names)
    timers = [TimerSet("window", name, "0", 1000.0) for name in names]
    soon = Puts(0, 4e12, len(names), keys, values)
    await commit(writer, [effects(deployed, puts=[soon], timers=timers)])
    some = 200
    keys = "\n".join(json.dumps(name) for name in names[:some])
    fired = [Timer("window", name, "0", 1000.0, False) for name in names[:some]]
    cancelled = [TimerSet("window", name, "0", None) for name in names[-some:]]
    for start, change in enumerate((Touches(0, 5e12, keys), Deletes(0, keys))):
        kind = {"touches": [change]} if isinstance(change, Touches) else {"deletes": [change]}
        more = {"fired": fired} if start == 0 else {"timers": cancelled}
        async with writer.transaction():
            await commit(writer, [effects(deployed, 0, 2 + start, 3 + start, **kind, **more)])
            read = await writer.fetch(
                "select relname, idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables"
                " where schemaname = 'jeet_internal' and relname in ('state', 'timer')"
            )
        assert all(rows <= 2 * some for _, rows in read), read
        assert len(read) == 2
