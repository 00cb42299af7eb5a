"""Event time: each window's result appears exactly once, when the watermark says so, whoever dies meanwhile."""

from __future__ import annotations

import json
from typing import Any

from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import publish

COUNTS_JS = """export const config = { source: 'clicks', sink: 'counts', key: 'user' };
stream.window({ tumbling: '1m', time: 'ts', idle: '10m' }).count();
"""
MINUTE = 60_000


def clicks(*events: tuple[str, float]) -> list[dict[str, Any]]:
    """Events of a user at some minute."""
    return [{"user": user, "ts": int(minute * MINUTE)} for user, minute in events]


def results(cluster: Cluster, stream: str = "counts") -> list[Any]:
    rows = cluster.sql("select value::text from jeet.stream_events where stream = %s", stream)
    return sorted((json.loads(row[0]) for row in rows), key=json.dumps)


def counted(*found: tuple[str, int, int]) -> list[Any]:
    """Results of whole minutes: key, minute, count."""
    made = [
        {"key": key, "start": minute * MINUTE, "end": (minute + 1) * MINUTE, "value": value}
        for key, minute, value in found
    ]
    return sorted(made, key=json.dumps)


def test_a_window_closes_once_the_watermark_has_passed_its_end(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(COUNTS_JS, "counts", "--partitions=1")
        publish(cluster.db, "clicks", clicks(("a", 0.1), ("b", 0.5), ("a", 0.9)))
        cluster.drain("counts")
        assert results(cluster) == []
        publish(cluster.db, "clicks", clicks(("a", 1.0)))
        wait_for(lambda: results(cluster) == counted(("a", 0, 2), ("b", 0, 1)), "the first minute's counts")
