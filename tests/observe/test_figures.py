"""Figures tell what was planted: a real worker and coordinator on a real database, one cluster for all of this file."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from psycopg.rows import dict_row
from tests.torture.cluster import Cluster, wait_for

SUMS = """
export const config = { source: 'orders', sink: 'sums', key: 'k' };
stream.map(event => {
  if (event.n < 0) throw new Error('no');
  for (let i = 0; i < (event.spin || 0); i++);
  return { k: event.k, sum: state.sums[event.k] = (state.sums[event.k] || 0) + event.n };
});
"""
EVENTS = 20_000
SPIN = 8_000_000
"""rounds of a loop that take far longer than a tick of the engine's clock"""
LABELS = {"function", "stage", "partition", "stream", "statement", "status", "table", "collection", "version", "plugin"}


@pytest.fixture(scope="module")
def cluster(module_database_url: str) -> Iterator[Cluster]:
    # No event is too slow here: one is, on purpose, and the machine may be.
    patient = {"JEET_EVENT_CPU_MS": "20000", "JEET_EVENT_WALL_MS": "60000", "JEET_METRICS_PORT": "0"}
    with Cluster(module_database_url, workers=1, environment=patient) as cluster:
        cluster.deploy(SUMS, "sums", "--partitions=2")
        keys = ["hot" if n % 10 else f"k{n % 997}" for n in range(EVENTS)]
        publish(cluster, [{"k": key, "n": n} for n, key in enumerate(keys)])
        publish(cluster, [{"k": "bad", "n": -1}, {"k": "slow", "n": 1, "spin": SPIN}])
        cluster.drain("sums")
        wait_for(lambda: total(cluster, "events") == EVENTS + 2, "figures of all events")
        yield cluster


def publish(cluster: Cluster, events: list[dict[str, Any]]) -> None:
    texts = [json.dumps(event) for event in events]
    cluster.sql("select count(*) from jeet.publish_texts('orders', %s::text[], null::text[], null::text[])", texts)


def total(cluster: Cluster, name: str) -> int:
    return int(cluster.value(f"select coalesce(sum({name}), 0) from jeet_internal.task_figures"))


def all_of(cluster: Cluster, query: str) -> list[dict[str, Any]]:
    with cluster.db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query).fetchall()


def scrape(cluster: Cluster, kind: str) -> dict[str, Metric]:
    address = wait_for(lambda: re.search(r"address=\"?(http://127\S+/metrics)", cluster.log_of(kind)), "an address")[1]
    with urllib.request.urlopen(address, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def summed(family: Metric) -> float:
    return sum(sample.value for sample in family.samples if not sample.name.endswith("_created"))


def test_what_was_processed_is_counted_once(cluster: Cluster) -> None:
    assert total(cluster, "events") == EVENTS + 2
    assert total(cluster, "outputs") == EVENTS + 1
    assert total(cluster, "dead_letters") == 1
    assert total(cluster, "bytes") == cluster.value(
        "select sum(length(value::text)) from jeet.stream_events where stream = 'orders'"
    )
    assert total(cluster, "instances") == 2
    # Each key once; the guest may have foreseen that of the bad event, too.
    assert total(cluster, "state_misses") - cluster.value("select count(*) from jeet.state") in (0, 1)
    assert 0 < total(cluster, "batches") <= EVENTS


def test_the_hot_key_is_named_with_its_share_within_the_stated_error(cluster: Cluster) -> None:
    found = {row["key"]: row for row in all_of(cluster, "select * from jeet.hot_keys")}
    assert set(found) <= {"hot", "slow"}  # the latter by its share of the time, which depends on the machine
    hot = found["hot"]
    (true,) = all_of(
        cluster,
        "select partition, avg((key = 'hot')::int)::float8 as share from jeet.stream_events"
        " where stream = 'orders' group by 1 order by 2 desc limit 1",
    )
    assert (hot["function"], hot["stream"], hot["key"], hot["partition"]) == (
        "sums",
        "orders",
        "hot",
        true["partition"],
    )
    assert abs(hot["share"] - true["share"]) <= hot["error"] < 0.1
    assert hot["share_of_stage"] == pytest.approx(0.9, abs=0.1)


def test_the_slow_event_is_named_by_its_place(cluster: Cluster) -> None:
    slowest = all_of(cluster, "select * from jeet.slowest_events order by cpu_ms desc")[0]
    (place,) = all_of(
        cluster,
        "select partition, \"offset\" from jeet.stream_events where stream = 'orders' and key = 'slow'",
    )
    assert (slowest["stream"], slowest["partition"], slowest["offset"]) == ("orders", *place.values())
    assert slowest["cpu_ms"] >= 20


def test_rates_and_history_are_there_once_a_coordinator_has_looked(cluster: Cluster) -> None:
    wait_for(
        lambda: cluster.value("select count(*) from jeet.history where lag is not null") > 0, "a note of positions"
    )
    rates = all_of(cluster, "select * from jeet.rates order by partition")
    assert [row["lag"] for row in rates] == [0, 0]
    assert all(row["share_sandbox"] > 0 and row["share_database"] > 0 for row in rates)
    assert sum(row["events"] for row in all_of(cluster, "select * from jeet.history")) == EVENTS + 2


def test_the_command_line_tells_the_same(cluster: Cluster) -> None:
    (told,) = [json.loads(line) for line in cluster.jeet("figures", "sums", "--json").stdout.splitlines()]
    (rates,) = told["rates"]
    assert (rates["function"], rates["stream"], rates["lag"]) == ("sums", "orders", 0)
    assert "hot" in {row["key"] for row in told["hot_keys"]}
    assert told["slowest_events"][0]["cpu_ms"] >= 20
    assert {row["reason"] for row in told["lease_changes"]} == {"deployed"}
    by_partition = json.loads(cluster.jeet("figures", "--partitions", "--json").stdout)
    assert [row["partition"] for row in by_partition["rates"]] == [0, 1]
    assert b"arrival_per_s" in cluster.jeet("figures").stdout


@pytest.mark.parametrize("kind", ["worker", "coordinator"])
def test_metrics_are_named_as_prometheus_has_it(cluster: Cluster, kind: str) -> None:
    families = scrape(cluster, kind)
    assert len(families) > 10
    for name, family in families.items():
        assert name.startswith("jeet_"), name
        assert re.fullmatch("[a-z][a-z0-9_]*", name), name
        assert family.documentation, name
        # The parser takes _total and _info off the name; what is no counter must not have it.
        assert not name.endswith(("_total", "_count", "_sum", "_ms", "_us", "_mb", "_percent")), name
        assert ("_second" in name or "_byte" in name) == bool(re.search("seconds$|bytes$", name)), name
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, name
            assert family.type != "counter" or sample.name.endswith("_total"), name


def test_metrics_tell_what_was_processed(cluster: Cluster) -> None:
    worker = scrape(cluster, "worker")
    assert summed(worker["jeet_processed_events"]) == EVENTS + 2
    assert summed(worker["jeet_output_events"]) == EVENTS + 1
    assert summed(worker["jeet_dead_letters"]) == 1
    assert {sample.labels["partition"] for sample in worker["jeet_processed_events"].samples} == {"0", "1"}
    assert summed(worker["jeet_guest_cpu_seconds"]) > 0.02
    assert summed(worker["jeet_tasks"]) == 2
    whole = scrape(cluster, "coordinator")
    assert summed(whole["jeet_database_up"]) == 1
    assert summed(whole["jeet_lag_events"]) == 0
    streams = {sample.labels["stream"]: sample.value for sample in whole["jeet_stream_events"].samples}
    assert streams == {"orders": EVENTS + 2, "sums": EVENTS + 1}
    assert summed(whole["jeet_open_dead_letters"]) == 1


def test_a_lost_worker_is_told_with_the_time_that_it_cost(cluster: Cluster) -> None:
    """Last, as it takes the worker away."""
    cluster.start("worker")
    wait_for(lambda: cluster.value("select count(*) from jeet.workers where status = 'running'") == 2, "two workers")
    cluster.wait_balanced("sums", 2)
    (lost, held) = cluster.sql(
        "select worker, partition from jeet.leases l join jeet.workers w on w.id = l.worker where w.pid = %s",
        cluster.workers()[0].pid,
    )[0]
    cluster.workers()[0].kill()
    changes = wait_for(
        lambda: cluster.sql(
            "select partition, reason, elapsed_ms from jeet.lease_changes where from_worker = %s and reason = 'lost'",
            lost,
        ),
        "the change",
    )
    assert [(partition, reason) for partition, reason, _ in changes] == [(held, "lost")]
    assert 0 < changes[0][2] < 30_000
