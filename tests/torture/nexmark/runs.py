"""The generator's events for the queries, and when a query is done with them and right."""

from __future__ import annotations

from bench import nexmark
from bench.nexmark import Workload
from tests.torture.cluster import Cluster
from tests.torture.nexmark import oracle
from tests.torture.rows import settled

PARTITIONS = 4
HOUR_S = 3600


def settings(events: int, rate: float) -> Workload:
    """They begin in the third part of the day and, at this rate, end in the fourth (q14)."""
    starts_ms = nexmark.START_MS + int((20 * HOUR_S - events / rate / 2) * 1000)
    return Workload(events, seed=17, rate=rate, start_ms=starts_ms, disorder_ms=oracle.DISORDER_MS)


class Settled:
    """Whether a query has done with all events before the closing ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        closing = cluster.sql(
            "select max((value ->> 'dateTime')::bigint) / 1000, extract(epoch from max(ts))::bigint"
            " from jeet.stream_events where stream = %s and ts is not null",
            oracle.STREAM,
        )
        self._event_s, self._published_s = closing[0]

    def __call__(self, query: str) -> bool:
        before_s = (self._published_s if query == "q12" else self._event_s) - HOUR_S
        return settled(self._cluster.db, query, before_s)


def wrong(cluster: Cluster, query: str) -> list[object]:
    """What is not as it must be: events that were late or failed, rows that differ, or that there are none at all."""
    letters = cluster.sql("select error, event from jeet.dead_letters where function = %s limit 3", query)
    some = cluster.value(f"select exists (select from jeet.stream_events where stream = 'nexmark_{query}')")
    return [*letters, *oracle.differences(cluster.db, query), *([] if some else ["no output"])]
