"""One small cluster of real processes that the tests of a module share, and a doctor to call."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from tests.torture.cluster import Cluster, wait_for

from jeet.observe.doctor import Finding, examine

STEADY_JS = """export const config = { source: 'steady_in', sink: 'steady_out', key: 'userId' };
stream.map(event => {
  state.sums[event.userId] = (state.sums[event.userId] || 0) + event.n;
  return { userId: event.userId, sum: state.sums[event.userId] };
});
"""


class Clinic:
    """A running cluster and its doctor."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.began_s = time.monotonic()

    def findings(self, **thresholds: float) -> list[Finding]:
        """What the doctor finds; workers that were lost before `began_s`, less a heartbeat, are history to it."""
        thresholds.setdefault("lost_s", time.monotonic() - self.began_s + 1)
        with psycopg.connect(self.cluster.url, autocommit=True) as db:
            for name, value in thresholds.items():
                db.execute(sql.SQL("set jeet.{} = {}").format(sql.Identifier(name), sql.Literal(value)))
            return examine(db, self.cluster.url)

    def finds_only(self, rule: str, **thresholds: float) -> Finding:
        """Wait until the doctor names this and nothing else, and give what it says."""
        seen: list[Finding] = []

        def look() -> bool:
            seen[:] = self.findings(**thresholds)
            return [finding.rule for finding in seen] == [rule]

        try:
            wait_for(look, f"only {rule}")
        except AssertionError as error:
            raise AssertionError(f"{error}; seen: {seen}") from error
        return seen[0]

    def recovers(self, **thresholds: float) -> None:
        """Wait until the doctor finds nothing that goes on."""
        thresholds.setdefault("lost_s", 0)
        wait_for(lambda: not self.findings(**thresholds), "healthy again")

    def deploy(self, source: str, name: str, *flags: str) -> None:
        self.cluster.deploy(source, name, "--partitions=2", *flags)

    def delete(self, name: str) -> None:
        self.cluster.jeet("delete", name)

    def publish(self, stream: str, *events: str) -> None:
        self.cluster.db.execute("select jeet.publish(%s, e) from unnest(%s::text[]) e", (stream, list(events)))


@pytest.fixture(scope="module")
def clinic(module_database_url: str) -> Iterator[Clinic]:
    # One event may keep a guest busy for longer than a test lasts.
    environment = {"JEET_EVENT_CPU_MS": "60000", "JEET_EVENT_WALL_MS": "60000"}
    with Cluster(module_database_url, workers=2, environment=environment) as cluster:
        cluster.deploy(STEADY_JS, "steady", "--partitions=2")
        yield Clinic(cluster)
