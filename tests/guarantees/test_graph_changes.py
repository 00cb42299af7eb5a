"""Guarantee: another graph takes over under load without an event lost or counted twice, whoever dies on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import threading

import psycopg
import pytest
from tests.torture.cluster import JEET, Cluster, wait_for

PIPELINE_JS = """export const config = {{ source: 'clicks', sink: 'counts', key: 'id', partitions: 3 }};
stream.filter(e => e.n >= 0)
  .keyBy({key}, {{ name: 'by_user', partitions: 2 }})
  .window({{ tumbling: '{size}', time: 'at' }}).count({{ name: 'clicks' }});
"""
BATCH = 50


class Clicks(threading.Thread):
    """Publishes until told to stop; a minute of event time goes by in ten batches."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.stopping = threading.Event()
        self.published = 0

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as db:
            while not self.stopping.is_set():
                first = self.published
                events = [
                    json.dumps({"id": f"c{n}", "user": f"u{n % 7}", "n": n, "at": 1_767_225_600_000 + n * 120})
                    for n in range(first, first + BATCH)
                ]
                db.execute("select count(*) from jeet.publish_many('clicks', %s::text[]::json[])", (events,))
                self.published += BATCH
                self.stopping.wait(0.01)


def pipeline(size: str, key: str = "'user'") -> str:
    return PIPELINE_JS.format(size=size, key=key)


def counted(cluster: Cluster) -> int:
    text = "select coalesce(sum((value ->> 'value')::int), 0) from jeet.stream_events where stream = 'counts'"
    return int(cluster.value(text))


@pytest.mark.drill
def test_a_drain_under_load_loses_nothing_and_counts_nothing_twice(database_url: str) -> None:
    with Cluster(database_url, 2) as cluster:
        cluster.deploy(pipeline("1m"), "f")
        clicks = Clicks(database_url)
        clicks.start()
        wait_for(lambda: counted(cluster) > 0, "windows close")
        cluster.deploy(pipeline("5m"), "f", "--drain")
        now = counted(cluster)
        wait_for(lambda: counted(cluster) > now, "windows of the next version close")
        # Other keys; and a worker dies while the version before uses up what is under way.
        path = cluster.folder / "f.js"
        path.write_text(pipeline("1m", "e => `k${e.n % 3}`"))
        changing = subprocess.Popen([JEET, "deploy", str(path), "--drain"], env=cluster.environment)
        wait_for(lambda: cluster.value("select draining or version = 3 from jeet_internal.function"), "it drains", 30)
        victim = cluster.workers()[0]
        victim.send_signal(signal.SIGKILL)
        cluster.start("worker")
        assert changing.wait(60) == 0
        # Who deploys dies: the old version drains on, until somebody says how it is to be.
        path.write_text(pipeline("2m"))
        dying = subprocess.Popen([JEET, "deploy", str(path), "--drain"], env=cluster.environment)
        wait_for(lambda: cluster.value("select draining or version = 4 from jeet_internal.function"), "it drains", 30)
        dying.kill()
        dying.wait()
        cluster.jeet("resume", "f")
        now = counted(cluster)
        wait_for(lambda: counted(cluster) > now, "windows close again")
        clicks.stopping.set()
        clicks.join()
        wait_for(
            lambda: cluster.value("select lag from (select sum(lag) as lag from jeet.lag where stage = 0) l") == 0,
            "all is read",
        )
        # The last one closes what is open, so that every event is in some result.
        cluster.deploy(pipeline("7m"), "f", "--drain")
        assert cluster.sql("select * from jeet.dead_letters") == []
        assert cluster.value("select sum(late) from jeet_internal.task") == 0
        assert counted(cluster) == clicks.published
