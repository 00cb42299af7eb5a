"""Dead letters are run again by the task that failed, once, or given up for good."""

from __future__ import annotations

import threading

import psycopg
import pytest

from control.actors import Process, coordinator, make_function, wait_for
from control.conftest import Deploy
from jeet.control import deadletters, lifecycle
from jeet.errors import NotFound, UsageError

COMMIT = """
select jeet_internal.commit_tasks(array[%(task)s], array[%(epoch)s::bigint], '{}', '{}', '{}', '{}', '{}', '{}',
    '{}', '{}', '{}', 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', null, null, %(good)s, %(taken)s,
    false)
"""


def fail(db: psycopg.Connection, task: int, offset: int) -> int:
    return db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", key, event, error, stack, version)'
        " values (%s, 1, %s, 'k', '{}', 'Error: no', 'f.js:1', 1) returning id",
        (task, offset),
    ).fetchone()[0]  # type: ignore[index]


def commit_redrive(db: psycopg.Connection, task: int, taken: list[int], good: list[int]) -> None:
    epoch = db.execute("select epoch from jeet_internal.task where id = %s", (task,)).fetchone()[0]  # type: ignore[index]
    db.execute(COMMIT, {"task": task, "epoch": epoch, "taken": taken, "good": good})


def test_they_are_listed_newest_first_by_function_and_status(db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    make_function(db, "g", 1)
    mine = [fail(db, 1, offset) for offset in range(3)]
    other = fail(db, 2, 0)
    assert [each.id for each in deadletters.letters(db)] == [other, *reversed(mine)]
    assert [each.id for each in deadletters.letters(db, "f", limit=2)] == [mine[2], mine[1]]
    deadletters.drop(db, number=mine[1])
    assert [each.id for each in deadletters.letters(db, "f")] == [mine[2], mine[0]]
    assert [each.id for each in deadletters.letters(db, "f", status="dropped")] == [mine[1]]
    assert len(deadletters.letters(db, "f", status=None)) == 3
    with pytest.raises(NotFound, match="no function"):
        deadletters.letters(db, "h")
    one = deadletters.letter(db, mine[0])
    assert (one.function, one.offset, one.key, one.error, one.stack, one.attempts) == (
        "f",
        0,
        "k",
        "Error: no",
        "f.js:1",
        1,
    )
    with pytest.raises(NotFound, match="no dead letter 999"):
        deadletters.letter(db, 999)


def test_a_redrive_is_queued_once_and_done_when_its_commit_is(db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    first, second = fail(db, 1, 0), fail(db, 1, 1)
    assert deadletters.redrive(db, number=first).queued == 1
    again = deadletters.redrive(db, function="f")
    assert (again.queued, again.waiting) == (1, 1)
    assert deadletters.letter(db, first).queued
    third = fail(db, 1, 2)
    assert [each.id for each in deadletters.letters(db, status="queued")] == [second, first]
    assert [each.id for each in deadletters.letters(db, status="open")] == [third, second, first]
    assert deadletters.drop(db, number=third) == 1
    commit_redrive(db, 1, [first, second], [first])
    assert [(each.id, each.status) for each in deadletters.letters(db, status=None)] == [
        (third, "dropped"),
        (second, "open"),
        (first, "redriven"),
    ]
    with pytest.raises(UsageError, match="redriven already"):
        deadletters.redrive(db, number=first)
    with pytest.raises(UsageError, match="redriven already"):
        deadletters.drop(db, number=first)
    assert deadletters.redrive(db, function="f").queued == 1


def test_a_dropped_one_cannot_be_committed_by_a_redrive_that_was_under_way(db: psycopg.Connection) -> None:
    make_function(db, "f", 2)
    number = fail(db, 1, 0)
    deadletters.redrive(db, number=number)
    epoch = db.execute("select epoch from jeet_internal.task where id = 1").fetchone()[0]  # type: ignore[index]
    assert deadletters.drop(db, number=number) == 1
    with pytest.raises(psycopg.Error) as caught:
        db.execute(COMMIT, {"task": 1, "epoch": epoch, "taken": [number], "good": [number]})
    assert caught.value.sqlstate == "JT001"
    assert deadletters.letter(db, number).status == "dropped"
    assert db.execute("select epoch from jeet_internal.task order by id").fetchall() == [(epoch + 1,), (epoch,)]
    with pytest.raises(UsageError, match="dropped already"):
        deadletters.redrive(db, number=number)


def test_many_redrives_and_commits_at_once_lose_and_double_nothing(database_url: str, db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    numbers = [fail(db, 1, offset) for offset in range(60)]
    failures: list[BaseException] = []

    def redrive() -> None:
        try:
            with psycopg.connect(database_url, autocommit=True) as own:
                for _ in range(5):
                    deadletters.redrive(own, function="f")
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=redrive) for _ in range(3)]
    for thread in threads:
        thread.start()
    done: list[int] = []
    while len(done) < len(numbers):
        waiting = [row[0] for row in db.execute("select dead_letter_id from jeet_internal.inbox limit 7").fetchall()]
        if waiting:
            commit_redrive(db, 1, waiting, waiting)
            done += waiting
        elif not any(thread.is_alive() for thread in threads):
            deadletters.redrive(db, function="f")
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(done) == numbers
    assert db.execute("select distinct status from jeet_internal.dead_letter").fetchall() == [("redriven",)]


def test_a_paused_functions_redrive_says_that_it_waits(db: psycopg.Connection) -> None:
    make_function(db, "f", 1)
    number = fail(db, 1, 0)
    lifecycle.pause(db, "f")
    assert deadletters.redrive(db, number=number).paused == ("f",)


def test_a_redrive_goes_well_with_the_version_that_mends_it(
    database_url: str, db: psycopg.Connection, deploy_source: Deploy
) -> None:
    broken = "stream.map(event => { if (event.n === 3) throw new Error('three'); return event; });\n"
    settings = {"name": "f", "source": "events", "sink": "out", "partitions": 1}
    with coordinator(database_url):
        worker = Process(database_url, "worker")
        try:
            wait_for(lambda: db.execute("select count(*) from jeet_internal.worker").fetchone() == (1,), "a worker", 60)
            assert deploy_source(broken, wait_s=30, **settings).progress.complete
            db.execute("select jeet.publish('events', json_build_object('n', n)) from generate_series(1, 5) n")
            lag = "select sum(lag) from jeet.lag"
            wait_for(lambda: db.execute(lag).fetchone() == (0,), "all events are processed")
            [letter] = deadletters.letters(db, "f")
            assert (letter.offset, letter.attempts) == (2, 1)
            assert "three" in letter.error
            deadletters.redrive(db, number=letter.id)
            wait_for(lambda: deadletters.letter(db, letter.id).attempts == 2, "it fails again")
            assert deadletters.letter(db, letter.id).status == "open"
            mended = "stream.map(event => event);\n"
            assert deploy_source(mended, wait_s=30, **settings).progress.complete
            deadletters.redrive(db, function="f")
            wait_for(lambda: deadletters.letter(db, letter.id).status == "redriven", "it goes well")
            values = "select value ->> 'n' from jeet.stream_events where stream = 'out' order by \"offset\""
            assert db.execute(values).fetchall() == [("1",), ("2",), ("4",), ("5",), ("3",)]
        except AssertionError:
            print(worker.log)
            raise
        finally:
            worker.end()
