"""Guarantee 3: at most one instance of a task can commit; one that slept through its replacement commits nothing."""

from __future__ import annotations

import os
import signal
from typing import Any

import psycopg
import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish
from tests.torture.proxy import Proxy

BUSY_JS = TOTALS_JS.replace(
    "stream.map(event => {", "stream.map(event => { for (let i = 0, n = 0; i < 3000; i++) n += i;"
)
SLOW_STATEMENT = """
create function slow_checkpoint() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.4); return new; end $$;
create trigger slow_statement before update on jeet_internal.checkpoint for each row execute function slow_checkpoint();
"""
SLOW_COMMIT = """
create function slow_checkpoint() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.4); return new; end $$;
create constraint trigger slow_commit after update on jeet_internal.checkpoint deferrable initially deferred
  for each row execute function slow_checkpoint();
"""
WITNESS = """
create table witness (task_id int, epoch bigint, at timestamptz default clock_timestamp());
create function witness() returns trigger language plpgsql as $$
begin insert into witness select t.id, t.epoch from jeet_internal.task t where t.id = new.task_id; return new; end $$;
create trigger witness after update on jeet_internal.checkpoint for each row execute function witness();
"""


def sleeping(cluster: Cluster) -> bool:
    return bool(
        cluster.value(
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        )
    )


@pytest.mark.parametrize(
    ("source", "planted"),
    [(BUSY_JS, ""), (TOTALS_JS, SLOW_STATEMENT), (TOTALS_JS, SLOW_COMMIT)],
    ids=["in the sandbox", "inside the transaction", "during COMMIT"],
)
def test_a_worker_that_was_stopped_and_wakes_after_its_replacement_commits_nothing(
    database_url: str, source: str, planted: str
) -> None:
    generator = Generator(seed=7, keys=20)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(source, "totals", "--partitions=2")
        cluster.db.execute(WITNESS)
        if planted:
            cluster.db.execute(planted)
        publish(cluster.db, "events", generator.events(2000))
        victim = cluster.workers()[0]
        if planted:
            wait_for(lambda: sleeping(cluster), "a commit under way")
        else:
            wait_for(lambda: cluster.value("select count(*) from witness"), "the function at work")
        os.kill(victim.pid, signal.SIGSTOP)
        old = cluster.value("select max(id) from jeet.workers where pid = %s", victim.pid)
        cluster.start("worker")
        wait_for(
            lambda: cluster.value("select count(*) from jeet.leases where worker::text <> %s", str(old)) == 2,
            "both tasks have a new owner",
        )
        epochs = dict(cluster.sql("select id, epoch from jeet_internal.task"))
        taken_at = cluster.value("select clock_timestamp()")
        os.kill(victim.pid, signal.SIGCONT)
        wait_for(
            lambda: cluster.value("select count(*) from jeet.workers where pid = %s and id > %s", victim.pid, old),
            "the woken worker came back as a new incarnation",
        )
        publish(cluster.db, "events", generator.events(100))
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        late = cluster.sql("select task_id, epoch from witness where at > %s", taken_at)
        assert all(epoch >= epochs[task] for task, epoch in late)


def test_pause_and_deploy_hold_from_the_moment_in_which_they_return_and_state_is_kept(database_url: str) -> None:
    generator = Generator(seed=8, keys=20)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(BUSY_JS, "totals", "--partitions=4")
        for version in range(2, 5):
            publish(cluster.db, "events", generator.events(2000))
            moved = positions(cluster.db)
            wait_for(lambda moved=moved: positions(cluster.db) != moved, "the function at work")
            cluster.jeet("pause", "totals")
            frozen = positions(cluster.db)
            wait_for(
                lambda: cluster.value("select count(*) from jeet.leases where worker is not null") == 0,
                "all leases are given back",
            )
            assert positions(cluster.db) == frozen
            cluster.jeet("resume", "totals")
            cluster.deploy(BUSY_JS + f"// {version}", "totals", "--partitions=4")
            assert cluster.sql("select distinct version from jeet.checkpoints") == [(version,)]
        # The lock may even be taken away behind an owner's back: the epoch alone decides.
        for _ in range(10):
            publish(cluster.db, "events", generator.events(200))
            cluster.db.execute("update jeet_internal.task set epoch = epoch + 1")
        cluster.drain("totals")
        check_exact(cluster.db, generator)


def test_a_predecessor_that_sits_on_a_task_in_an_open_transaction_is_ended(database_url: str) -> None:
    generator = Generator(seed=11, keys=20)
    with Cluster(database_url, workers=0) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        publish(cluster.db, "events", generator.events(100))
        stalled = psycopg.connect(database_url, application_name="jeet-worker commit 0")
        stalled.execute("update jeet_internal.task set epoch = epoch")
        cluster.start("worker")
        cluster.drain("totals")
        with pytest.raises(psycopg.OperationalError):
            stalled.commit()
        check_exact(cluster.db, generator)


def test_a_worker_whose_network_is_cut_stops_and_commits_nothing_when_it_is_back(database_url: str) -> None:
    generator = Generator(seed=12, keys=20)
    with Proxy(database_url) as proxy, Cluster(database_url, workers=0) as cluster:
        cut_off = cluster.start("worker", url=proxy.url)
        cluster.deploy(BUSY_JS, "totals", "--partitions=4")
        publish(cluster.db, "events", generator.events(3000))
        wait_for(lambda: sum(row[1] for row in positions(cluster.db)), "the function at work")
        proxy.freeze()
        wait_for(lambda: "no heartbeat was answered" in cluster.log_of("worker"), "the worker has given up")
        cluster.start("worker")
        cluster.drain("totals")
        proxy.thaw()
        wait_for(
            lambda: cluster.value(
                "select count(*) from jeet.workers where status = 'running' and pid = %s", cut_off.pid
            ),
            "the worker is back as a new incarnation",
        )
        publish(cluster.db, "events", generator.events(500))
        cluster.drain("totals")
        check_exact(cluster.db, generator)


def positions(db: psycopg.Connection[Any]) -> list[Any]:
    return db.execute("select task_id, next_offset from jeet_internal.checkpoint order by 1").fetchall()
