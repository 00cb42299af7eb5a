"""Guarantee 5: tasks of a worker that dies, freezes or is told to go resume elsewhere, however large their state is."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import psycopg
import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish
from tests.torture.server import OwnServer


def owners(cluster: Cluster) -> set[int]:
    return {
        row[0]
        for row in cluster.sql(
            "select w.pid from jeet.leases l join jeet.workers w on w.id::text = l.worker::text"
            " where w.status = 'running'"
        )
    }


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_tasks_of_a_worker_that_dies_or_freezes_go_on_elsewhere_with_all_their_state(
    database_url: str, how: signal.Signals
) -> None:
    generator = Generator(seed=21, keys=30)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        publish(cluster.db, "events", generator.events(500))
        cluster.drain("totals")
        # Ballast: what a takeover must not read.
        cluster.db.execute(
            "insert into jeet_internal.state (task_id, collection_id, key, value)"
            " select t.id, 0, 'ballast ' || n, '0' from jeet_internal.task t, generate_series(1, 200000) n"
        )
        cluster.db.execute("select pg_stat_reset()")
        first = cluster.workers()[0]
        second = cluster.start("worker")
        os.kill(first.pid, how)
        wait_for(lambda: owners(cluster) == {second.pid}, "the other worker has both tasks")
        publish(cluster.db, "events", generator.events(500))
        cluster.drain("totals")
        read = cluster.value(
            "select coalesce(sum(idx_tup_fetch + seq_tup_read), 0) from pg_stat_user_tables where relname = 'state'"
        )
        assert read < 10_000
        cluster.db.execute("delete from jeet_internal.state where key like 'ballast %'")
        check_exact(cluster.db, generator)


def test_sigterm_finishes_the_batch_gives_the_tasks_back_and_exits_with_zero(database_url: str) -> None:
    generator = Generator(seed=22, keys=30)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        cluster.wait_balanced("totals", workers=2)
        publish(cluster.db, "events", generator.events(5000))
        first, second = cluster.workers()
        first.terminate()
        assert first.wait(15) == 0
        assert cluster.value("select count(*) from jeet_internal.worker where pid = %s", first.pid) == 0
        cluster.drain("totals")
        assert owners(cluster) == {second.pid}
        assert cluster.value("select sum(crashes) from jeet_internal.task") == 0
        second.terminate()
        assert second.wait(15) == 0
        assert cluster.value("select count(*) from jeet_internal.task where unowned_since is null") == 0
        check_exact(cluster.db, generator)


def test_a_worker_can_be_told_to_go_while_the_database_is_away(own_server: OwnServer) -> None:
    with Cluster(own_server.url, workers=1) as cluster:
        worker = cluster.workers()[0]
        wait_for(lambda: cluster.value("select count(*) from jeet.workers"), "the worker has joined")
        own_server.stop()
        wait_for(lambda: "starts over" in cluster.log_of("worker"), "the worker has noticed")
        worker.terminate()
        assert worker.wait(15) == 0
        own_server.start()
        cluster.db = psycopg.connect(own_server.url, autocommit=True)


def test_an_outage_is_told_in_a_few_lines_and_ends_unaided(own_server: OwnServer) -> None:
    generator = Generator(seed=23, keys=30)
    with Cluster(own_server.url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        worker = cluster.workers()[0]
        own_server.stop()
        wait_for(lambda: "starts over" in cluster.log_of("worker"), "the worker has noticed")
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(3.0)  # many attempts fit in here; none of them may end it, nor say so
        told = len(re.findall("warning|error", cluster.log_of("worker")))
        own_server.start()
        cluster.db = psycopg.connect(own_server.url, autocommit=True)
        publish(cluster.db, "events", generator.events(500))
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert told <= 8


def test_pgrep_finds_workers_by_name_and_no_address_shows(database_url: str) -> None:
    with Cluster(database_url, workers=2) as cluster:
        pids = {worker.pid for worker in cluster.workers()}

        def listed() -> set[int]:
            found = subprocess.run(["pgrep", "jeet-worker"], capture_output=True, check=False)
            return {int(pid) for pid in found.stdout.split()}

        wait_for(lambda: pids <= listed(), "both are listed")
        for pid in pids:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                assert b"postgres" not in file.read()
