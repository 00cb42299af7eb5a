"""What operators rely on: lost workers are seen, their tasks go to others, and the log says so, with any leader."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import psycopg

from control.actors import HandWorker, coordinator, make_function, owners, shares, wait_for, workers


def test_tasks_are_shared_out_evenly_and_only_the_moved_ones_pause_when_a_worker_joins(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 8)
    with coordinator(database_url), workers(database_url, 2) as team:
        wait_for(lambda: shares(db) == [4, 4], "four tasks each")
        before = dict(db.execute("select id, epoch from jeet_internal.task").fetchall())
        team.append(HandWorker(database_url))
        wait_for(lambda: shares(db) == [2, 3, 3], "a fair share for the third")
        after = dict(db.execute("select id, epoch from jeet_internal.task").fetchall())
        assert sum(after[task] != before[task] for task in before) == 2


def test_a_worker_whose_session_is_gone_is_reported_and_its_tasks_move(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 8)
    with coordinator(database_url) as leader, workers(database_url, 2) as team:
        wait_for(lambda: shares(db) == [4, 4], "four tasks each")
        team[0].crash()
        gone = leader.wait_for("worker disconnected")
        assert (gone["worker"], gone["reason"], gone["host"]) == (str(team[0].id), "crashed", "testhost")
        done = leader.wait_for("Partition Redistribution Successful")
        assert (done["worker"], done["partitions"], done["moved"]) == (str(team[0].id), "4", "4")
        assert float(done["elapsed_ms"]) <= float(done["since_heartbeat_ms"])
        assert set(owners(db).values()) == {team[1].id}
        assert db.execute("select status from jeet_internal.worker where id = %s", (team[0].id,)).fetchone() == (
            "lost",
        )


def test_success_is_reported_only_when_the_new_owner_holds_every_lease(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 4)
    with coordinator(database_url) as leader, workers(database_url, 2) as team:
        wait_for(lambda: shares(db) == [2, 2], "two tasks each")
        team[1].obedient = False
        team[0].crash()
        leader.wait_for("worker disconnected")
        leader.wait_for("takeover takes long")
        assert leader.lines("Partition Redistribution Successful") == []
        team[1].obedient = True
        assert leader.wait_for("Partition Redistribution Successful")["moved"] == "2"


def test_a_frozen_worker_loses_its_lease_session_and_its_tasks(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 4)
    quick = {"JEET_HEARTBEAT_S": "0.2", "JEET_HEARTBEAT_TIMEOUT_S": "0.8"}
    with coordinator(database_url, **quick) as leader, workers(database_url, 2) as team:
        wait_for(lambda: shares(db) == [2, 2], "two tasks each")
        team[0].freeze()
        gone = leader.wait_for("worker disconnected")
        assert (gone["worker"], gone["reason"]) == (str(team[0].id), "frozen")
        assert leader.wait_for("Partition Redistribution Successful")["moved"] == "2"
        wait_for(lambda: _ended(team[0].lease), "its lease session ends")
        assert team[1].beating
        assert set(owners(db).values()) == {team[1].id}


def _ended(session: psycopg.Connection) -> bool:
    try:
        session.execute("select 1")
    except psycopg.OperationalError:
        return True
    return False


def test_with_no_worker_left_the_log_says_so_and_the_next_worker_gets_everything(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 4)
    with coordinator(database_url) as leader, workers(database_url, 2) as team:
        wait_for(lambda: shares(db) == [2, 2], "two tasks each")
        for each in team:
            each.crash()
        leader.wait_for("worker disconnected", count=2)
        leader.wait_for("waiting for workers")
        assert leader.lines("Partition Redistribution Successful") == []
        team.append(HandWorker(database_url))
        leader.wait_for("Partition Redistribution Successful", count=2)
        assert {line["worker"] for line in leader.lines("Partition Redistribution Successful")} == {
            str(team[0].id),
            str(team[1].id),
        }
        assert set(owners(db).values()) == {team[2].id}


def test_a_worker_that_leaves_in_good_order_is_not_called_disconnected(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 4)
    with coordinator(database_url) as leader, workers(database_url, 2) as team:
        wait_for(lambda: shares(db) == [2, 2], "two tasks each")
        team[0].leave()
        done = leader.wait_for("Partition Redistribution Successful")
        assert (done["worker"], done["moved"], done["reason"]) == (str(team[0].id), "2", "left")
        assert leader.lines("worker disconnected") == []
        assert set(owners(db).values()) == {team[1].id}


def test_a_standby_takes_over_from_a_leader_that_dies_and_from_one_that_is_frozen(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 4)
    quick = {"JEET_HEARTBEAT_S": "0.2", "JEET_HEARTBEAT_TIMEOUT_S": "0.8"}
    with coordinator(database_url, **quick) as first:
        first.wait_for("leading")
        with coordinator(database_url, **quick) as second:
            second.wait_for("standing by")
            first.signal(signal.SIGKILL)
            second.wait_for("leading")
            with coordinator(database_url, **quick) as third, workers(database_url, 2) as team:
                third.wait_for("standing by")
                wait_for(lambda: shares(db) == [2, 2], "two tasks each")
                second.signal(signal.SIGSTOP)
                third.wait_for("leader is silent")
                third.wait_for("leading")
                team[0].crash()
                assert third.wait_for("Partition Redistribution Successful")["moved"] == "2"
                # The old leader wakes up and stands by; it does no harm meanwhile.
                second.signal(signal.SIGCONT)
                second.wait_for("standing by", count=2)
                assert second.lines("worker disconnected") == []


def test_a_new_leader_finishes_the_redistribution_that_the_old_one_began(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 2)
    with workers(database_url, 1) as team:
        with coordinator(database_url) as first:
            wait_for(lambda: set(owners(db).values()) == {team[0].id}, "both tasks run")
            team[0].crash()
            first.wait_for("waiting for workers")
            first.signal(signal.SIGKILL)
        with coordinator(database_url) as second:
            second.wait_for("waiting for workers")
            team.append(HandWorker(database_url))
            assert second.wait_for("Partition Redistribution Successful")["moved"] == "2"


def test_two_leaders_at_once_do_no_harm(database_url: str, db: psycopg.Connection) -> None:
    """Whatever lets two believe that they lead: both write the same hints, and leases stay where they are."""
    import asyncio

    from jeet.control.coordinator import Coordinator
    from jeet.control.leadership import LeadershipLost, session
    from jeet.settings import Settings

    async def second_leader(stop: asyncio.Event) -> None:
        async with session(database_url, "second leader") as connection:
            await Coordinator(connection, Settings()).lead(stop)

    make_function(db, "f", 6)
    with coordinator(database_url), workers(database_url, 3):
        wait_for(lambda: shares(db) == [2, 2, 2], "two tasks each")
        before = db.execute("select id, epoch, worker_id from jeet_internal.task order by id").fetchall()
        with suppress(LeadershipLost):  # it finds out at its first heartbeat
            asyncio.run(asyncio.wait_for(second_leader(asyncio.Event()), 10))
        assert db.execute("select id, epoch, worker_id from jeet_internal.task order by id").fetchall() == before


def test_running_leases_stay_when_no_coordinator_is_there_and_when_one_comes_back(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 4)
    with workers(database_url, 2):
        with coordinator(database_url):
            wait_for(lambda: shares(db) == [2, 2], "two tasks each")
        before = db.execute("select id, epoch, worker_id from jeet_internal.task order by id").fetchall()
        with coordinator(database_url) as leader:
            leader.wait_for("worker found", count=2)
            time.sleep(0.3)  # several looks
            assert db.execute("select id, epoch, worker_id from jeet_internal.task order by id").fetchall() == before
            assert leader.lines("assigned partitions") == []


def test_paused_and_halted_tasks_are_assigned_to_nobody(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 2)
    make_function(db, "g", 2)
    with coordinator(database_url), workers(database_url, 1) as team:
        wait_for(lambda: set(owners(db).values()) == {team[0].id}, "all tasks run")
        db.execute("update jeet_internal.function set status = 'paused' where name = 'f'")
        db.execute("notify jeet_control, 'function 1'")
        wait_for(
            lambda: (
                db.execute(
                    "select count(*) from jeet_internal.assignment a join jeet_internal.task t on t.id = a.task_id"
                    " join jeet_internal.function f on f.id = t.function_id where f.name = 'f'"
                ).fetchone()
                == (0,)
            ),
            "nobody is told to run the paused function",
        )


def test_the_coordinator_survives_the_end_of_its_sessions_and_stops_cleanly(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "f", 2)
    with coordinator(database_url) as leader, workers(database_url, 1) as team:
        wait_for(lambda: set(owners(db).values()) == {team[0].id}, "all tasks run")
        db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'jeet-coordinator%'"
        )
        leader.wait_for("leading", count=2)
        leader.signal(signal.SIGTERM)
        assert leader.process.wait(10) == 0
        assert set(owners(db).values()) == {team[0].id}


def test_a_stream_is_over_its_lag_limit_while_its_slowest_reader_is_too_far_behind(
    database_url: str, db: psycopg.Connection
) -> None:
    make_function(db, "slow", 1)
    db.execute("update jeet_internal.stream set max_lag = 10 where name = 'slow-in'")
    db.execute("insert into jeet_internal.stream (name, partitions, max_lag) values ('unread', 1, 1)")
    db.execute("update jeet_internal.head set head = 11")
    flag = "select over_lag from jeet_internal.stream where name = 'slow-in'"
    with coordinator(database_url):
        wait_for(lambda: db.execute(flag).fetchone() == (True,), "the flag is raised")
        db.execute("update jeet_internal.checkpoint set next_offset = 1")
        wait_for(lambda: db.execute(flag).fetchone() == (False,), "the flag is taken back")
        assert db.execute("select over_lag from jeet_internal.stream where name = 'unread'").fetchone() == (False,)


def test_a_function_with_a_halted_task_has_failed_until_none_is(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 2)
    status = "select status from jeet_internal.function"
    with coordinator(database_url):
        db.execute("update jeet_internal.task set status = 'halted' where partition = 1")
        wait_for(lambda: db.execute(status).fetchone() == ("failed",), "failed")
        db.execute("update jeet_internal.task set status = 'running'")
        wait_for(lambda: db.execute(status).fetchone() == ("running",), "running again")
