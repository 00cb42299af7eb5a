"""Guarantee 6: memory and work of a task, a batch and a worker are bounded, and the bounds are kept."""

from __future__ import annotations

import psutil
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish

SIZES = """
create table sizes (events bigint);
create function note_size() returns trigger language plpgsql as $$
begin insert into sizes values (new.next_offset - old.next_offset); return new; end $$;
create trigger note_size after update on jeet_internal.checkpoint for each row execute function note_size();
"""


def test_no_batch_is_larger_than_the_limits_on_events_and_bytes(database_url: str) -> None:
    generator = Generator(seed=31, keys=30)
    limits = {"JEET_BATCH_EVENTS": "50", "JEET_BATCH_BYTES": "1000"}
    with Cluster(database_url, workers=1, environment=limits) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.db.execute(SIZES)
        publish(cluster.db, "events", generator.events(1000))
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        # An event takes 37 bytes and more; at most one event may pass the limit, when it is alone.
        assert cluster.value("select max(events) from sizes") <= 1000 // 37


def test_instances_beyond_the_memory_of_a_worker_are_dropped_and_results_stay_exact(database_url: str) -> None:
    generator = Generator(seed=32, keys=30)
    with Cluster(database_url, workers=1, environment={"JEET_WORKER_MEMORY_MB": "12", "JEET_LANES": "1"}) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=16")
        for _ in range(20):
            publish(cluster.db, "events", generator.events(100))
            cluster.drain("totals")
        check_exact(cluster.db, generator)


def test_a_function_that_keeps_everything_is_renewed_before_it_is_too_large(database_url: str) -> None:
    hoarding = TOTALS_JS.replace("stream.map(", "const all = [];\nstream.map(").replace(
        "  return {", "  all.push('x'.repeat(20000) + all.length);\n  return {"
    )
    generator = Generator(seed=33, keys=30)
    with Cluster(database_url, workers=1, environment={"JEET_GUEST_MEMORY_MB": "16"}) as cluster:
        cluster.deploy(hoarding, "totals", "--partitions=2")
        publish(cluster.db, "events", generator.events(4000))
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert psutil.Process(cluster.workers()[0].pid).memory_info().rss < 400 * 1024 * 1024


def test_a_task_waits_while_the_stream_it_writes_to_is_over_its_limit(database_url: str) -> None:
    generator = Generator(seed=34, keys=30)
    into, out_of = (
        TOTALS_JS.replace("sink: 'totals'", "sink: 'middle'"),
        TOTALS_JS.replace("source: 'events'", "source: 'middle'"),
    )
    with Cluster(database_url, workers=1) as cluster:
        cluster.jeet("create_stream", "middle", "--partitions=2", "--max_lag=100", "--key=userId")
        cluster.deploy(into, "first", "--partitions=2")
        cluster.deploy(out_of.replace("event.amount", "1"), "second", "--partitions=2")
        cluster.jeet("pause", "second")
        publish(cluster.db, "events", generator.events(200))
        cluster.drain("first")
        wait_for(
            lambda: cluster.value("select over_lag from jeet_internal.stream where name = 'middle'"), "over its limit"
        )
        looked = "select count(*) from jeet_internal.worker where heartbeat_at > %s + interval '1 second'"
        since = cluster.value("select clock_timestamp()")
        wait_for(lambda: cluster.value(looked, since), "the worker has looked since")
        publish(cluster.db, "events", generator.events(200))
        since = cluster.value("select clock_timestamp()")
        wait_for(lambda: cluster.value(looked, since), "time in which it could have gone on")
        assert cluster.value("select sum(lag) from jeet.lag where function = 'first'") == 200
        cluster.jeet("resume", "second")
        cluster.drain("first")
        cluster.drain("second")
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'totals'") == 400


def test_many_idle_tasks_cost_next_to_nothing(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=256")
        cluster.wait_balanced("totals", workers=1)
        calls = "select sum(xact_commit) from pg_stat_database where datname = current_database()"
        process = psutil.Process(cluster.workers()[0].pid)
        before, cpu = cluster.value(calls), sum(process.cpu_times()[:2])
        for _ in range(40):
            cluster.value("select pg_sleep(0.1)")
        # Each half second a heartbeat, a look at the tasks and one at all heads; the rest is the coordinator's.
        assert sum(process.cpu_times()[:2]) - cpu < 1.0
        assert cluster.value(calls) - before < 400
