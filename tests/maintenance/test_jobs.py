"""Upkeep removes what is due, nothing else, in slices, and nobody waits for it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from control.actors import HandWorker, coordinator, make_function, wait_for
from jeet import maintenance
from jeet.db.sql import sql_root
from jeet.maintenance import SLICE, Job, cron, jobs, run_once
from jeet.settings import Settings

Run = Callable[..., int]


@pytest.fixture
def run(database_url: str) -> Run:
    """Run one job by its name: `run("state_ttl", ttl_grace_s=0.001)`."""

    def run_job(name: str, **settings: object) -> int:
        chosen = Settings(**settings)  # type: ignore[arg-type]
        job = next(job for job in jobs(chosen) if job.name == name)
        return asyncio.run(run_once(job, chosen, database_url))

    return run_job


def put_state(db: psycopg.Connection, keys: int, age: str, prefix: str = "k", task: int = 1) -> None:
    """Entries that expired `age` ago; negative: that will expire."""
    db.execute("insert into jeet_internal.collection values (1, 0, 'c') on conflict do nothing")
    db.execute(
        "insert into jeet_internal.state (task_id, collection_id, key, value, expires_at)"
        " select %s, 0, %s || i, '1', clock_timestamp() - %s::interval from generate_series(1, %s) i",
        (task, prefix, age, keys),
    )


def keys(db: psycopg.Connection) -> int:
    return db.execute("select count(*) from jeet_internal.state").fetchone()[0]  # type: ignore[index]


def owned(db: psycopg.Connection, name: str = "f", partitions: int = 1) -> None:
    """A function whose tasks have an owner, so that the clock of their state goes on."""
    make_function(db, name, partitions)
    db.execute("update jeet_internal.task set unowned_since = null")


def test_state_goes_when_it_has_expired_and_not_before(db: psycopg.Connection, run: Run) -> None:
    owned(db)
    put_state(db, 10, "1 minute", "old")
    put_state(db, 10, "-1 minute", "new")
    put_state(db, 10, "1 second", "grace")
    db.execute("insert into jeet_internal.state (task_id, collection_id, key, value) values (1, 0, 'forever', '1')")
    assert run("state_ttl", ttl_grace_s=5.0) == 10
    assert keys(db) == 21
    assert db.execute("select count(*) from jeet_internal.state where key like 'old%'").fetchone() == (0,)
    assert run("state_ttl", ttl_grace_s=0.001) == 10


def test_each_tasks_state_goes_by_its_own_clock(db: psycopg.Connection, run: Run) -> None:
    owned(db, partitions=2)
    put_state(db, 5, "10 minutes", task=1)
    put_state(db, 5, "10 minutes", task=2)
    db.execute("update jeet_internal.task set ttl_hold = '1 hour' where id = 1")
    assert run("state_ttl") == 5
    assert db.execute("select distinct task_id from jeet_internal.state").fetchall() == [(1,)]


@pytest.mark.parametrize(("hold_ttl", "left"), [(True, 5), (False, 0)])
def test_state_does_not_age_while_its_task_has_no_owner_unless_that_is_turned_off(
    db: psycopg.Connection, run: Run, hold_ttl: bool, left: int
) -> None:
    make_function(db, "f", 1)
    db.execute("update jeet_internal.function set hold_ttl = %s", (hold_ttl,))
    db.execute("update jeet_internal.task set unowned_since = clock_timestamp() - interval '1 hour'")
    put_state(db, 5, "30 minutes")
    run("state_ttl")
    assert keys(db) == left


def test_the_time_since_a_lost_workers_last_heartbeat_does_not_age_its_state(
    database_url: str, db: psycopg.Connection, run: Run
) -> None:
    owned(db)
    worker = HandWorker(database_url, obedient=False)
    worker.crash()
    db.execute("update jeet_internal.worker set status = 'lost', heartbeat_at = clock_timestamp() - interval '2 hours'")
    db.execute("update jeet_internal.task set worker_id = %s", (worker.id,))
    put_state(db, 5, "1 hour")
    assert run("state_ttl") == 0
    # It is not forgotten either, as the clock counts from its heartbeat.
    assert run("workers") == 0
    db.execute("update jeet_internal.task set worker_id = null")
    assert run("workers") == 1


def test_a_sweep_neither_waits_for_entries_that_a_commit_holds_nor_takes_what_it_refreshes(
    database_url: str, db: psycopg.Connection, run: Run
) -> None:
    owned(db)
    put_state(db, 10, "1 minute")
    with psycopg.connect(database_url) as commit:
        commit.execute(
            "update jeet_internal.state set expires_at = clock_timestamp() + interval '1 hour' where key = 'k1'"
        )
        assert run("state_ttl") == 9
        commit.commit()
    assert run("state_ttl") == 0
    assert db.execute("select key from jeet_internal.state").fetchall() == [("k1",)]


def test_a_large_sweep_goes_in_slices_and_writers_of_the_same_keys_go_on(
    database_url: str, db: psycopg.Connection, run: Run
) -> None:
    owned(db)
    count = 40 * SLICE + 7
    put_state(db, count, "1 minute")
    over = threading.Event()
    written: list[int] = []
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with psycopg.connect(database_url, autocommit=True) as writer:
                # Should one statement delete all, a writer would run into this.
                writer.execute("set lock_timeout = '2s'")
                while not over.is_set():
                    writer.execute(
                        "insert into jeet_internal.state (task_id, collection_id, key, value, expires_at)"
                        " values (1, 0, 'k' || (random() * 40000)::int, '2', clock_timestamp() + interval '1 hour')"
                        " on conflict (task_id, collection_id, key)"
                        " do update set value = '2', expires_at = excluded.expires_at"
                    )
                    written.append(1)
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    wait_for(lambda: written or failed, "the writer writes")
    swept = run("state_ttl")
    over.set()
    thread.join()
    assert failed == []
    assert swept + db.execute("select count(*) from jeet_internal.state where value::text = '2'").fetchone()[0] >= count  # type: ignore[index]
    assert db.execute("select count(*) from jeet_internal.state where value::text = '1'").fetchone() == (0,)


def test_two_sweeps_at_once_share_the_work(database_url: str, db: psycopg.Connection, run: Run) -> None:
    owned(db)
    put_state(db, 20 * SLICE, "1 minute")
    swept: list[int] = []
    threads = [threading.Thread(target=lambda: swept.append(run("state_ttl"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that finds only locked rows stops early; what it leaves, the next run takes.
    assert sum(swept) + run("state_ttl") == 20 * SLICE
    assert keys(db) == 0


def test_where_tasks_stand_is_recorded_when_they_move_and_forgotten_after_a_while(
    db: psycopg.Connection, run: Run
) -> None:
    make_function(db, "f", 2)
    assert run("checkpoint_history") == 2
    assert run("checkpoint_history") == 0
    db.execute("update jeet_internal.checkpoint set next_offset = 5 where task_id = 1")
    assert run("checkpoint_history") == 1
    assert db.execute(
        "select next_offset from jeet_internal.checkpoint_history where task_id = 1 order by recorded_at"
    ).fetchall() == [(0,), (5,)]
    db.execute("update jeet_internal.checkpoint_history set recorded_at = recorded_at - interval '8 days'")
    run("checkpoint_history")
    assert db.execute("select count(*) from jeet_internal.checkpoint_history").fetchone() == (0,)


def test_console_output_and_publish_ids_go_after_their_time(db: psycopg.Connection, run: Run) -> None:
    make_function(db, "f", 1)
    for age in ("1 hour", "30 days"):
        db.execute(
            "insert into jeet_internal.log (function_id, version, partition, level, message, logged_at)"
            " select 1, 1, 0, 'info', 'x', clock_timestamp() - %s::interval from generate_series(1, %s)",
            (age, SLICE + 5),
        )
    assert run("logs") == SLICE + 5
    db.execute(
        'insert into jeet_internal.publish_id (stream_id, id, partition, "offset", expires_at)'
        " select 1, i::text, 0, i, clock_timestamp() + (case when i % 2 = 0 then -1 else 1 end) * interval '1 minute'"
        " from generate_series(1, 20) i"
    )
    assert run("publish_ids") == 10


def test_lost_workers_are_forgotten_and_others_are_not(database_url: str, db: psycopg.Connection, run: Run) -> None:
    worker = HandWorker(database_url, obedient=False)
    db.execute(
        "insert into jeet_internal.worker (host, pid, version, status, backend_pid, backend_start, heartbeat_at)"
        " select 'h', 1, '1', 'lost', 1, now(), clock_timestamp() - age"
        " from unnest(array[interval '1 minute', '1 day']) age"
    )
    assert run("workers") == 1
    assert db.execute("select count(*) from jeet_internal.worker where status = 'lost'").fetchone() == (1,)
    worker.crash()


def test_a_job_that_fails_says_so_and_disturbs_nobody(database_url: str) -> None:
    async def broken(db: object, settings: Settings) -> int:
        return int(await db.fetchval("select 1 / 0"))  # type: ignore[attr-defined]

    assert asyncio.run(run_once(Job("broken", 1, broken), Settings(), database_url)) == -1


def tables_of_events(db: psycopg.Connection) -> set[str]:
    rows = db.execute("select relid::regclass::text from pg_partition_tree('jeet_internal.event') where level = 1")
    return {row[0] for row in rows.fetchall()}


def test_streams_that_a_function_has_let_go_of_are_removed_unless_somebody_reads_them(
    database_url: str, db: psycopg.Connection, run: Run
) -> None:
    before = tables_of_events(db)
    ids = [
        db.execute("select jeet_internal.create_stream(%s, 2, p_internal => true)", (name,)).fetchone()[0]  # type: ignore[index]
        for name in ("f/a", "f/b", "g/a")
    ]
    assert run("streams") == 0
    db.execute("select jeet_internal.let_go_of_streams(%s)", (ids[:2],))
    with psycopg.connect(database_url) as reader:
        reader.execute(sql.SQL("select from jeet_internal.{}").format(sql.Identifier(f"event_{ids[0]}")))
        run("streams")
        left = db.execute("select name from jeet_internal.stream where dropped").fetchall()
        assert (f"/{ids[0]}",) in left
    while db.execute("select count(*) from jeet_internal.stream where dropped").fetchone() != (0,):
        assert run("streams") > 0
    assert tables_of_events(db) - before == {f"jeet_internal.event_{ids[2]}"}
    assert db.execute("select name from jeet_internal.stream").fetchall() == [("g/a",)]
    assert db.execute("select count(*) from jeet_internal.head").fetchone() == (2,)
    leftover = "select count(*) from pg_class where relname like %s or relname = %s"
    for gone in ids[:2]:
        assert db.execute(leftover, (f"event\\_{gone}%", f"turn_{gone}")).fetchone() == (0,)


def test_what_lies_between_stages_goes_an_hour_after_it_was_processed_and_not_before_that(
    db: psycopg.Connection, run: Run
) -> None:
    make_function(db, "f", 1)
    db.execute(
        "select jeet_internal.create_stream('f/x', 1, p_retention => '1 hour', p_internal => true, p_max_bytes => 800)"
    )
    db.execute("update jeet_internal.stream set max_bytes = null where internal")
    stream = db.execute("select id from jeet_internal.stream where internal").fetchone()[0]  # type: ignore[index]
    db.execute(
        "insert into jeet_internal.checkpoint (task_id, stream_id) select id, %s from jeet_internal.task", (stream,)
    )
    for _ in range(3):
        db.execute("select jeet_internal.append(array[%s], array[''], array[%s])", (stream, "\n".join(["{}"] * 1000)))
    first = "select first_offset from jeet_internal.head where stream_id = %s"
    db.execute(
        "update jeet_internal.event set published_at = published_at - interval '2 hours' where stream_id = %s",
        (stream,),
    )
    run("retention")
    assert db.execute(first, (stream,)).fetchone() == (0,), "nobody has processed it"
    db.execute("update jeet_internal.checkpoint set next_offset = 1500 where stream_id = %s", (stream,))
    run("retention")
    assert db.execute(first, (stream,)).fetchone() == (1000,)


def test_pgqueuers_tables_are_those_of_the_version_that_runs() -> None:
    from pgqueuer.adapters.persistence.schema_ddl import render_install

    text = (sql_root() / "migrations" / "0005_pgqueuer.sql").read_text()
    made = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    wanted = "\n".join(
        line for line in render_install(maintenance.names()).splitlines() if not line.startswith("--")
    ).strip()
    assert made == wanted


@pytest.mark.parametrize(
    ("every_s", "expected"), [(1, "* * * * * */1"), (5, "* * * * * */5"), (60, "*/1 * * * *"), (600, "*/10 * * * *")]
)
def test_intervals_become_schedules(every_s: int, expected: str) -> None:
    import croniter

    assert cron(every_s) == expected
    assert croniter.croniter.is_valid(expected)


def test_coordinators_run_the_jobs_each_run_by_one_of_them(database_url: str, db: psycopg.Connection) -> None:
    owned(db)
    put_state(db, 100, "1 minute")
    often = {"JEET_TTL_SWEEP_S": "1", "JEET_MAINTENANCE_S": "1"}
    with coordinator(database_url, **often) as first, coordinator(database_url, **often) as second:
        wait_for(lambda: keys(db) == 0, "the sweep has run")
        wait_for(
            lambda: db.execute("select count(*) from jeet_internal.checkpoint_history").fetchone() == (1,),
            "history is kept",
        )
        ran = [line for each in (first, second) for line in each.lines("maintenance job=state_ttl")]
        assert [line["rows"] for line in ran] == ["100"]
        last = db.execute("select max(last_run) from jeet_pgqueuer.pgqueuer_schedules").fetchone()
        wait_for(
            lambda: db.execute("select max(last_run) from jeet_pgqueuer.pgqueuer_schedules").fetchone() != last,
            "jobs run again",
        )
        assert db.execute("select count(*) from jeet_pgqueuer.pgqueuer_schedules").fetchone() == (
            len(jobs(Settings())),
        )


def test_a_task_that_nobody_owns_for_less_than_a_minute_ages_as_usual(db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    hold = "select jeet_internal.ttl_hold_now(t, t.unowned_since + %s::interval) from jeet_internal.task t"
    assert db.execute(hold, ("59 seconds",)).fetchone() == (timedelta(0),)
    assert db.execute(hold, ("90 seconds",)).fetchone() == (timedelta(seconds=30),)


def test_a_coordinator_that_is_told_to_stop_does_not_wait_for_a_long_sweep(
    database_url: str, db: psycopg.Connection
) -> None:
    owned(db)
    put_state(db, 100 * SLICE, "1 minute")
    with coordinator(database_url, JEET_TTL_SWEEP_S="1") as leader:
        left = wait_for(lambda: (found := keys(db)) < 100 * SLICE and found, "the sweep has begun")
        leader.signal(signal.SIGTERM)
        assert leader.process.wait(10) == 0
        assert 0 < keys(db) <= left
