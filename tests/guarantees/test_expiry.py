"""Guarantee 7: a function never sees expired state, whether or not cleanup has run; its clock can rest."""

from __future__ import annotations

import json

from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import publish

COUNT_JS = """export const config = {
  source: 'events', sink: 'counts', key: 'k', state: { seen: { ttl: '%s', refresh: '%s' }, kept: {} },
};
stream.map(event => {
  if (event.read) return { k: event.k, seen: state.seen[event.k] ?? null, kept: state.kept[event.k] ?? null };
  state.seen[event.k] = (state.seen[event.k] || 0) + 1;
  state.kept[event.k] = (state.kept[event.k] || 0) + 1;
  return { k: event.k, seen: state.seen[event.k], kept: state.kept[event.k] };
});
"""
NO_SWEEP = {"JEET_TTL_SWEEP_S": "3600"}


def seen(cluster: Cluster) -> list[tuple[int | None, int | None]]:
    rows = cluster.sql(
        "select value::text from jeet.stream_events where stream = 'counts' order by partition, \"offset\""
    )
    return [(value["seen"], value["kept"]) for value in (json.loads(row[0]) for row in rows)]


def step(cluster: Cluster, **event: object) -> tuple[int | None, int | None]:
    """Publish one event and wait for what the function made of it."""
    before = len(seen(cluster))
    publish(cluster.db, "events", [{"k": "a", **event}])
    wait_for(lambda: len(seen(cluster)) > before, "its output")
    return seen(cluster)[-1]


def wait_until_expired(cluster: Cluster) -> None:
    wait_for(
        lambda: cluster.value(
            "select bool_and(s.expires_at + t.ttl_hold <= clock_timestamp()) from jeet_internal.state s"
            " join jeet_internal.task t on t.id = s.task_id where s.expires_at is not null"
        ),
        "it has expired",
    )


def test_expired_state_is_gone_for_a_warm_function_and_for_a_new_instance_alike(database_url: str) -> None:
    with Cluster(database_url, workers=1, environment=NO_SWEEP) as cluster:
        cluster.deploy(COUNT_JS % ("2s", "write"), "counts", "--partitions=1")
        assert step(cluster) == (1, 1)
        assert step(cluster) == (2, 2)
        wait_until_expired(cluster)
        assert step(cluster) == (1, 3)  # warm: the entry was in the instance's cache
        wait_until_expired(cluster)
        cluster.workers()[0].kill()
        cluster.start("worker")
        assert step(cluster) == (1, 4)  # new: the row is still in the table
        assert cluster.value("select count(*) from jeet_internal.state") == 2
        wait_until_expired(cluster)
        assert cluster.sql("select collection, value::text from jeet.state") == [("kept", "4")]


def test_reading_refreshes_only_where_that_was_asked_for(database_url: str) -> None:
    with Cluster(database_url, workers=1, environment=NO_SWEEP) as cluster:
        expiry = "select max(expires_at) from jeet_internal.state"
        for refresh in ("write", "access"):
            cluster.deploy(COUNT_JS % ("3s", refresh), "counts", "--partitions=1")
            step(cluster)
            before = cluster.value(expiry)
            # Later than a tenth of the TTL: sooner, an access is not worth a write.
            wait_for(lambda before=before: cluster.sql("select %s < clock_timestamp() + '2.5s'", before)[0][0], "time")
            step(cluster, read=True)
            moved = cluster.value(expiry) > before
            assert moved == (refresh == "access")


def test_the_clock_of_state_rests_beyond_the_first_minute_without_an_owner(database_url: str) -> None:
    with Cluster(database_url, workers=1, environment=NO_SWEEP) as cluster:
        cluster.deploy(COUNT_JS % ("30s", "write"), "counts", "--partitions=1")
        assert step(cluster) == (1, 1)
        cluster.jeet("pause", "counts")
        wait_for(lambda: cluster.value("select unowned_since is not null from jeet_internal.task"), "given back")
        # As if that had been two minutes ago, and the entry written just before.
        cluster.db.execute("update jeet_internal.task set unowned_since = unowned_since - interval '2 minutes'")
        cluster.db.execute("update jeet_internal.state set expires_at = expires_at - interval '2 minutes'")
        assert cluster.value("select count(*) from jeet.state where collection = 'seen'") == 0
        cluster.jeet("resume", "counts")
        wait_for(lambda: cluster.value("select ttl_hold >= interval '1 minute' from jeet_internal.task"), "the hold")
        # One minute of the two counted: 30 s - 60 s is past.
        assert step(cluster) == (1, 2)
        stored = cluster.value(
            "select extract(epoch from expires_at - clock_timestamp()) from jeet_internal.state"
            " where expires_at is not null"
        )
        assert -60 < stored < -20  # less by the hold, so that expires_at + ttl_hold is 30 s ahead
        assert (
            cluster.value(
                "select extract(epoch from expires_at - clock_timestamp()) from jeet.state where collection = 'seen'"
            )
            > 0
        )
        cluster.jeet("pause", "counts")
        wait_for(lambda: cluster.value("select unowned_since is not null from jeet_internal.task"), "given back")
        cluster.db.execute("update jeet_internal.task set unowned_since = unowned_since - interval '10 minutes'")
        cluster.db.execute("update jeet_internal.state set expires_at = expires_at - interval '9 minutes'")
        cluster.jeet("resume", "counts")
        assert step(cluster) == (2, 3)  # ten minutes passed, nine of them beyond the first: one did not expire it
