"""Guarantee 1: checkpoint, state, outputs and dead letters change together or not at all, whatever dies and when."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import psycopg
import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, Load, check_exact, publish
from tests.torture.server import OwnServer

SLOW_COMMIT = """
create function slow_checkpoint() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.3); return new; end $$;
create constraint trigger slow_commit after update on jeet_internal.checkpoint deferrable initially deferred
  for each row execute function slow_checkpoint();
"""
UNLUCKY = """
create sequence misfortunes;
create function unlucky() returns trigger language plpgsql as $$
declare v_codes text[] := array['40001', '40P01', '55P03', '57014', '53100', '53300', '57P01', '25006', '08006'];
begin
  if random() < 0.5 then
    raise exception 'by chance' using errcode = v_codes[1 + nextval('misfortunes') % array_length(v_codes, 1)];
  end if;
  return new;
end $$;
create trigger unlucky before update on jeet_internal.checkpoint for each row execute function unlucky();
"""


def progress(db: psycopg.Connection[Any]) -> int:
    row = db.execute("select coalesce(sum(next_offset), 0) from jeet.checkpoints").fetchone()
    assert row is not None
    return int(row[0])


def wait_for_progress(cluster: Cluster) -> None:
    before = progress(cluster.db)
    wait_for(lambda: progress(cluster.db) > before, "some commit")


def sessions(cluster: Cluster, part: str) -> list[int]:
    """Backends of workers' connections of one kind."""
    return [
        row[0]
        for row in cluster.sql(
            "select pid from pg_stat_activity where datname = current_database() and application_name like %s",
            f"jeet-worker {part}%",
        )
    ]


def test_workers_killed_at_random_neither_lose_nor_repeat_an_effect(database_url: str) -> None:
    generator, chance = Generator(seed=1, keys=40), random.Random(1)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        with Load(database_url, generator, per_tick=20):
            for _ in range(5):
                wait_for_progress(cluster)
                time.sleep(chance.random() * 0.2)  # any instant will do
                os.kill(chance.choice(cluster.workers()).pid, signal.SIGKILL)
                cluster.start("worker")
                wait_for_progress(cluster)
        cluster.drain("totals")
        check_exact(cluster.db, generator)


@pytest.mark.parametrize("how", ["kill -9", "connection cut"])
def test_a_commit_whose_outcome_is_unknown_is_settled_by_reading(database_url: str, how: str) -> None:
    generator, chance = Generator(seed=2, keys=20), random.Random(2)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.db.execute(SLOW_COMMIT)
        for _ in range(4):
            publish(cluster.db, "events", generator.events(30))
            wait_for(
                lambda: cluster.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"),
                "a commit under way",
            )
            time.sleep(chance.random() * 0.5)  # before, while and after it ends
            if how == "kill -9":
                os.kill(cluster.workers()[0].pid, signal.SIGKILL)
                cluster.start("worker")
            else:
                cluster.sql("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", sessions(cluster, "commit"))
        cluster.drain("totals")
        check_exact(cluster.db, generator)


def test_any_connection_of_a_worker_may_be_ended_at_any_time(database_url: str) -> None:
    generator = Generator(seed=3, keys=40)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        process = cluster.workers()[0].pid
        with Load(database_url, generator, per_tick=20):
            for part in ["lease", "wake", "commit", "fetch", "state", "control", ""] * 2:
                wait_for_progress(cluster)
                cluster.sql("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", sessions(cluster, part))
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert [worker.pid for worker in cluster.workers()] == [process]


def test_errors_that_are_nobodys_fault_are_tried_again_and_make_no_dead_letter(database_url: str) -> None:
    generator = Generator(seed=4, keys=40)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        cluster.db.execute(UNLUCKY)
        for _ in range(30):
            publish(cluster.db, "events", generator.events(20))
            wait_for_progress(cluster)
        cluster.db.execute("drop trigger unlucky on jeet_internal.checkpoint")
        cluster.drain("totals")
        assert cluster.value("select last_value from misfortunes") >= 9
        check_exact(cluster.db, generator)


def test_a_restart_of_postgres_is_survived_unaided(own_server: OwnServer) -> None:
    generator = Generator(seed=5, keys=40)
    with Cluster(own_server.url, workers=2) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        before = sorted(worker.pid for worker in cluster.workers())
        for mode in ("immediate", "fast"):
            publish(cluster.db, "events", generator.events(2000))
            wait_for_progress(cluster)
            own_server.restart(mode)
            cluster.db = psycopg.connect(own_server.url, autocommit=True)
            publish(cluster.db, "events", generator.events(50))
            wait_for_progress(cluster)
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert sorted(worker.pid for worker in cluster.workers()) == before
