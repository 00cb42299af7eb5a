"""Guarantee: events that are moved to other partitions between stages arrive once, under the key they are to have."""

from __future__ import annotations

import json
from collections import Counter

from tests.torture.cluster import Cluster, wait_for

BY_USER_JS = """stream.map(event => {
  state.totals[event.user] = (state.totals[event.user] || 0) + event.n;
  return { user: event.user, total: state.totals[event.user] };
});
"""
JOINED_JS = """export const config = { source: 'orders', sink: 'named' };
stream.join(stream.table('customers'), { kind: 'left' },
  (order, customer) => ({ ...order, name: customer?.name ?? null }));
"""
KEYED_JS = """export const config = { source: 'orders', sink: 'by_city' };
stream.keyBy(order => order.city);
"""


def publish(cluster: Cluster, stream: str, events: list[object], keys: list[str] | None = None) -> None:
    texts = [json.dumps(event) for event in events]
    cluster.db.execute("select count(*) from jeet.publish_many(%s, %s::text[]::json[], %s)", (stream, texts, keys))


def values(cluster: Cluster, stream: str) -> list[dict[str, object]]:
    return [row[0] for row in cluster.sql("select value from jeet.stream_events where stream = %s", stream)]


def test_a_source_keyed_otherwise_is_keyed_by_the_path_that_the_function_asks_for(database_url: str) -> None:
    with Cluster(database_url, 1) as cluster:
        cluster.jeet("create_stream", "clicks", "--key=id", "--partitions=4")
        cluster.deploy(BY_USER_JS, "totals", "--source=clicks", "--sink=sums", "--key=user")
        events: list[object] = [{"id": f"c{n}", "user": f"u{n % 5}", "n": n} for n in range(200)]
        publish(cluster, "clicks", [*events, {"id": "lost", "n": 1}])
        wait_for(lambda: len(values(cluster, "sums")) == 200, "every event came through")
        expected = Counter({f"u{n}": sum(range(n, 200, 5)) for n in range(5)})
        assert dict(cluster.sql("select key, value::int from jeet.state where function = 'totals'")) == expected
        # What has no such key is a dead letter of the stage that keys, and says why.
        (letter,) = wait_for(lambda: cluster.sql("select stage, error from jeet.dead_letters"), "the dead letter")
        assert letter[0] == 0
        assert "user" in letter[1]


def test_a_table_with_other_partitions_is_copied_deletions_and_all(database_url: str) -> None:
    with Cluster(database_url, 1) as cluster:
        cluster.jeet("create_stream", "orders", "--key=customer", "--partitions=2")
        cluster.jeet("create_stream", "customers", "--partitions=3")
        names = [f"c{n}" for n in range(20)]
        publish(cluster, "customers", [{"name": name.upper()} for name in names], names)
        publish(cluster, "customers", [None, None], ["c3", "c4"])
        cluster.deploy(JOINED_JS, "named")
        copied = "select count(*) from jeet.lag where function = 'named' and stream <> 'orders' and lag > 0"
        wait_for(
            lambda: (
                cluster.value(copied) == 0
                and cluster.value("select count(*) from jeet.state where function = 'named'") == 18
            ),
            "the table is read",
        )
        publish(cluster, "orders", [{"customer": name} for name in names])
        found = wait_for(lambda: len(made := values(cluster, "named")) == 20 and made, "every order is joined")
        gone = {"c3", "c4"}
        assert {each["customer"]: each["name"] for each in found} == {
            name: None if name in gone else name.upper() for name in names
        }


def test_a_keyby_at_the_end_keys_what_goes_to_the_sink(database_url: str) -> None:
    with Cluster(database_url, 1) as cluster:
        cluster.jeet("create_stream", "orders", "--key=id", "--partitions=2")
        cluster.deploy(KEYED_JS, "cities")
        publish(cluster, "orders", [{"id": f"o{n}", "city": f"city{n % 3}"} for n in range(30)])
        rows = "select key, value ->> 'city' from jeet.stream_events where stream = 'by_city'"
        found = wait_for(lambda: len(made := cluster.sql(rows)) == 30 and made, "all orders")
        assert all(key == city for key, city in found)
