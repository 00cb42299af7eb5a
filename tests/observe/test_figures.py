"""Figures tell what was planted: a real worker on a real database, one cluster for all of this file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.rows import dict_row
from tests.torture.cluster import Cluster, wait_for

SUMS = """
export const config = { source: 'orders', sink: 'sums', key: 'k' };
stream.map(event => {
  if (event.n < 0) throw new Error('no');
  if (event.spin) { const end = Date.now() + event.spin; while (Date.now() < end); }
  return { k: event.k, sum: state.sums[event.k] = (state.sums[event.k] || 0) + event.n };
});
"""
EVENTS, HOT = 4000, 0.9


@pytest.fixture(scope="module")
def cluster(module_database_url: str) -> Iterator[Cluster]:
    with Cluster(module_database_url, workers=1) as cluster:
        cluster.deploy(SUMS, "sums", "--partitions=2")
        keys = ["hot" if n % 10 else f"k{n % 997}" for n in range(EVENTS)]
        publish(cluster, [{"k": key, "n": n} for n, key in enumerate(keys)])
        publish(cluster, [{"k": "bad", "n": -1}, {"k": "slow", "n": 1, "spin": 70}])
        cluster.drain("sums")
        wait_for(lambda: total(cluster, "events") == EVENTS + 2, "figures of all events", within_s=30)
        yield cluster


def publish(cluster: Cluster, events: list[dict[str, Any]]) -> None:
    texts = [json.dumps(event) for event in events]
    cluster.sql("select count(*) from jeet.publish_texts('orders', %s::text[], null::text[], null::text[])", texts)


def total(cluster: Cluster, name: str) -> int:
    return int(one(cluster, f"select coalesce(sum({name}), 0) as n from jeet_internal.task_figures")["n"])


def all_of(cluster: Cluster, query: str) -> list[dict[str, Any]]:
    with cluster.db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query).fetchall()


def one(cluster: Cluster, query: str) -> dict[str, Any]:
    (row,) = all_of(cluster, query)
    return row


def test_what_was_processed_is_counted_once(cluster: Cluster) -> None:
    assert total(cluster, "events") == EVENTS + 2
    assert total(cluster, "outputs") == EVENTS + 1
    assert total(cluster, "dead_letters") == 1
