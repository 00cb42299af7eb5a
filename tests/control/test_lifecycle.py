"""A control change is true when it returns: what ran before cannot commit, whoever sits on the rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from control.actors import HandWorker, coordinator, make_function, shares, wait_for, workers
from control.conftest import SEED_JS, Deploy
from jeet.control import change, lifecycle
from jeet.errors import RetryLater

COMMIT = """
select jeet_internal.commit_tasks(array[%s], array[%s::bigint], '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 0,
    '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', null, null, '{}', '{}', false)
"""


def test_what_began_before_a_change_cannot_commit_after_it(
    database_url: str, db: psycopg.Connection, deploy_source: Deploy
) -> None:
    second = SEED_JS + "//2\n"
    changes: dict[str, Callable[[str], object]] = {
        "deploy": lambda name: deploy_source(SEED_JS + "//3\n", source="events", name=name),
        "rollback": lambda name: lifecycle.rollback(db, name, wait_s=0),
        "resume": lambda name: lifecycle.resume(db, name, wait_s=0),
        "pause": lambda name: lifecycle.pause(db, name),
        "delete": lambda name: lifecycle.delete(db, name),
    }
    for name in changes:
        deploy_source(source="events", name=name, partitions=1)
        deploy_source(second, source="events", name=name)
    with coordinator(database_url), workers(database_url, 1):
        wait_for(lambda: shares(db) == [len(changes)], "all tasks run")
        for name, change_it in changes.items():
            task, epoch = db.execute(
                "select t.id, t.epoch from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id"
                " where f.name = %s",
                (name,),
            ).fetchone()  # type: ignore[misc]
            db.execute(COMMIT, (task, epoch))
            if name == "resume":
                db.execute("update jeet_internal.function set status = 'failed' where name = 'resume'")
            change_it(name)
            with pytest.raises(psycopg.Error) as caught:
                db.execute(COMMIT, (task, epoch))
            assert caught.value.sqlstate == "JT001", name


def test_deploy_waits_until_each_task_runs_the_new_version(
    database_url: str, db: psycopg.Connection, deploy_source: Deploy
) -> None:
    with coordinator(database_url), workers(database_url, 2):
        wait_for(lambda: db.execute("select count(*) from jeet_internal.worker").fetchone() == (2,), "workers")
        first = deploy_source(source="events", name="f", partitions=4, wait_s=20)
        assert first.progress.complete
        second = deploy_source(SEED_JS + "//2\n", source="events", name="f", wait_s=20)
        assert second.progress.complete
        assert db.execute("select distinct version from jeet_internal.task").fetchall() == [(2,)]


def test_deploy_names_the_tasks_that_do_not_run_the_new_version(
    database_url: str, db: psycopg.Connection, deploy_source: Deploy
) -> None:
    deploy_source(source="events", name="f", partitions=2)
    with coordinator(database_url), workers(database_url, 1) as team:
        wait_for(lambda: shares(db) == [2], "both tasks run")
        team[0].obedient = False
        progress = deploy_source(SEED_JS + "//2\n", source="events", name="f", wait_s=0.3).progress
        assert (progress.missing, progress.workers) == ((0, 1), 1)


def test_whoever_sits_on_a_task_in_an_open_transaction_is_ended(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 3)
    for application, change_it in (
        ("jeet-worker commit 0", lambda: lifecycle.pause(db, "f")),
        ("psql", lambda: lifecycle.resume(db, "f", wait_s=0)),
    ):
        with psycopg.connect(database_url, application_name=application) as stuck:
            stuck.execute("select from jeet_internal.task where partition = 1 for update")
            assert change_it().changed
            with pytest.raises(psycopg.OperationalError):
                stuck.execute("select 1")
    assert db.execute("select distinct epoch from jeet_internal.task").fetchall() == [(2,)]


def test_a_commit_that_is_under_way_is_let_finish_and_counts(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    with psycopg.connect(database_url, application_name="jeet-worker commit 0") as committing:
        committing.execute("update jeet_internal.task set crashes = 5")
        pausing = threading.Thread(target=lifecycle.pause, args=(db, "f"))
        pausing.start()
        with psycopg.connect(database_url, autocommit=True) as other:
            wait_for(
                lambda: (
                    other.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").fetchone()
                    != (0,)
                ),
                "the change waits",
            )
        committing.commit()
        pausing.join()
    assert db.execute("select crashes, epoch from jeet_internal.task").fetchone() == (5, 1)


def test_a_change_gives_way_to_another_one_that_does_not_end(
    database_url: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "LOCK_TIMEOUT_S", 0.3)
    from jeet.db.keys import CHANGE_LOCK

    make_function(db, "f", 1)
    with psycopg.connect(database_url) as other:
        other.execute("select pg_advisory_xact_lock(%s, %s)", CHANGE_LOCK)
        with pytest.raises(RetryLater, match="nothing was changed"):
            lifecycle.pause(db, "f")
    assert lifecycle.pause(db, "f").changed


def test_a_paused_function_is_run_by_nobody_until_it_is_resumed(
    database_url: str, db: psycopg.Connection, deploy_source: Deploy
) -> None:
    deploy_source(source="events", name="f", partitions=2)
    with coordinator(database_url), workers(database_url, 1) as team:
        wait_for(lambda: shares(db) == [2], "both tasks run")
        assert lifecycle.pause(db, "f").changed
        assert db.execute("select count(*) from jeet_internal.assignment").fetchone() == (0,)
        assert db.execute("select count(*) from jeet_internal.task where worker_id is not null").fetchone() == (0,)
        assert not lifecycle.pause(db, "f").changed
        # A new version of a paused function stays paused.
        assert deploy_source(SEED_JS + "//2\n", source="events", name="f").status == "paused"
        wait_for(lambda: not team[0].held, "the worker lets go")
        resumed = lifecycle.resume(db, "f", wait_s=20)
        assert resumed.changed
        assert resumed.progress is not None
        assert resumed.progress.complete
        assert not lifecycle.resume(db, "f").changed


def test_resume_lets_halted_tasks_try_again(db: psycopg.Connection) -> None:
    make_function(db, "f", 2)
    db.execute("update jeet_internal.task set status = 'halted', halt_reason = 'x' where partition = 1")
    db.execute("update jeet_internal.function set status = 'failed'")
    resumed = lifecycle.resume(db, "f", wait_s=0)
    assert resumed.changed
    assert resumed.notes[0] == "f had halted in partition 1: x"
    assert "halts again unless" in resumed.notes[1]
    assert lifecycle.resume(db, "f", wait_s=0).notes == ()
    assert db.execute("select distinct status, halt_reason from jeet_internal.task").fetchall() == [("running", None)]
    assert db.execute("select status from jeet_internal.function").fetchone() == ("running",)


def test_the_clock_of_state_stands_still_while_a_function_is_paused(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    worker = HandWorker(database_url)
    db.execute("insert into jeet_internal.assignment values (1, %s)", (worker.id,))
    wait_for(lambda: shares(db) == [1], "the task runs")
    db.execute("insert into jeet_internal.collection values (1, 0, 'c')")
    db.execute(
        "insert into jeet_internal.state (task_id, collection_id, key, value, expires_at)"
        " values (1, 0, 'k', '1', now() + '5 minutes')"
    )
    lifecycle.pause(db, "f")
    wait_for(lambda: not worker.held, "the worker lets go")
    # An hour goes by.
    db.execute("update jeet_internal.task set unowned_since = unowned_since - interval '1 hour'")
    db.execute("update jeet_internal.state set expires_at = expires_at - interval '1 hour'")
    left = "select expires_at - clock_timestamp() from jeet.state"
    while_paused = db.execute(left).fetchone()[0]  # type: ignore[index]
    assert timedelta(minutes=3) < while_paused <= timedelta(minutes=4)
    assert db.execute("select jeet_internal.sweep_state(1, 10, '0')").fetchone() == (0,)
    lifecycle.resume(db, "f", wait_s=0)
    db.execute("insert into jeet_internal.assignment values (1, %s)", (worker.id,))
    wait_for(lambda: shares(db) == [1], "the task runs again")
    assert timedelta(minutes=3) < db.execute(left).fetchone()[0] <= while_paused  # type: ignore[index]
    assert db.execute("select ttl_hold from jeet_internal.task").fetchone()[0] > timedelta(minutes=58)  # type: ignore[index]
    worker.crash()
