"""What comes faster than it is processed waits with whoever sends it: nothing is shed, nothing grows without bound."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from tests.torture.cluster import JEET, Cluster, wait_for

MAX_LAG = 500
A_SECOND = 2000
"""events that are sent in a second"""

SLOW_JS = """export const config = { source: 'narrow', sink: 'done', key: 'k' };
stream.map(event => {
  for (let n = 0; n < event.work; n++) event.x = (event.x || 0) + n;
  return { id: event.id };
});
"""
STAGES_JS = """export const config = { source: 'wide', sink: 'far', key: 'k' };
stream.keyBy(e => e.j).map(event => {
  for (let n = 0; n < event.work; n++) event.x = (event.x || 0) + n;
  return { id: event.id };
});
"""


@pytest.fixture
def cluster(database_url: str) -> Iterator[Cluster]:
    environment = {"JEET_STAGE_LAG": str(MAX_LAG), "JEET_EVENT_CPU_MS": "60000", "JEET_EVENT_WALL_MS": "60000"}
    with Cluster(database_url, workers=1, environment=environment) as cluster:
        yield cluster


class Sender:
    """`jeet publish` from a pipe, fed at a steady rate as long as it takes what it is given."""

    def __init__(self, cluster: Cluster, stream: str, events: list[str]) -> None:
        self.process = subprocess.Popen(
            [JEET, "publish", stream, "-"], env=cluster.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._events = events
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        assert self.process.stdin is not None
        began = time.monotonic()
        with self.process.stdin as pipe:
            for at in range(0, len(self._events), 100):
                time.sleep(
                    max(0.0, began + at / A_SECOND - time.monotonic())
                )  # the rate is what is given, not waited for
                pipe.write("".join(self._events[at : at + 100]).encode())
                pipe.flush()

    @property
    def is_sending(self) -> bool:
        return self.process.poll() is None


def held_back(cluster: Cluster, events: list[str], within_s: float) -> None:
    """Send events that are slow to process, and look at what it does to the sender, the log and the worker."""
    cluster.jeet("create_stream", "narrow", "--partitions=4", f"--max_lag={MAX_LAG}", "--key=k")
    cluster.deploy(SLOW_JS, "slow")
    cluster.wait_balanced("slow", 1)
    worker = psutil.Process(cluster.workers()[0].pid)
    before = worker.memory_info().rss
    sender = Sender(cluster, "narrow", events)
    largest = let_through = 0
    shut_at: int | None = None
    held = False
    while sender.is_sending:
        over, head = cluster.sql("select over_lag, head from jeet.streams where name = 'narrow'")[0]
        held = held or (over and head < len(events))
        shut_at = (head if shut_at is None else shut_at) if over else None
        let_through = max(let_through, 0 if shut_at is None else head - shut_at)
        largest = max(largest, worker.memory_info().rss)
    assert held, "the publisher was held back"
    # No more than a publisher has begun, or what came while the stream was open for a moment that nobody saw here.
    assert let_through <= 2 * A_SECOND
    assert largest < before + 150 * 2**20
    cluster.drain("slow", within_s)
    ids = cluster.sql("select (value ->> 'id')::int from jeet.stream_events where stream = 'done' order by 1")
    assert [number for (number,) in ids] == list(range(len(events)))
    wait_for(lambda: not cluster.value("select over_lag from jeet.streams where name = 'narrow'"), "open again")


def event(number: int, work: int, key: str | None = None) -> str:
    return json.dumps({"id": number, "k": key or f"k{number % 50}", "j": number, "work": work}) + "\n"


def test_a_publisher_is_held_back_by_a_slow_function_and_nothing_is_lost(cluster: Cluster) -> None:
    # The first takes some seconds; the others, behind it in one partition, show that it recovers.
    held_back(cluster, [event(n, 20_000_000 if n == 0 else 0, key="k") for n in range(3 * A_SECOND)], 60)


@pytest.mark.torture
def test_a_publisher_ten_times_too_fast_is_held_back_for_as_long_as_it_takes(cluster: Cluster) -> None:
    held_back(cluster, [event(n, 30_000) for n in range(5 * A_SECOND)], 600)


def test_a_stage_waits_for_the_next_one_and_goes_on_though_no_coordinator_leads(cluster: Cluster) -> None:
    cluster.deploy(STAGES_JS, "stages", "--partitions=4")
    cluster.deploy(
        "export const config = { source: 'marks' }; stream.map(e => { state.s.n = e.n; });", "marks", "--partitions=1"
    )
    cluster.wait_balanced("stages", 1)
    sent = [event(n, 20_000_000 if n == 0 else 0) for n in range(6000)]
    cluster.jeet("publish", "wide", stdin="".join(sent[:3000]).encode())
    wait_for(
        lambda: cluster.value("select bool_or(over_lag) from jeet_internal.stream where internal"), "a full stream"
    )
    (coordinator,) = cluster.running("coordinator")
    coordinator.kill()
    coordinator.wait()
    flag = "update jeet_internal.stream set over_lag = %s where internal"
    cluster.db.execute(flag, [False])
    cluster.jeet("publish", "wide", stdin="".join(sent[3000:]).encode())
    marks = iter(range(1_000_000))

    def stands() -> bool:
        """Whether the worker goes on with other work, and the earlier stage has some and does not move."""
        before = first_stage(cluster)
        for _ in range(3):
            cluster.sql("select jeet.publish('marks', %s)", json.dumps({"n": next(marks)}))
            cluster.drain("marks")
        return before == first_stage(cluster) and before[0] > 0

    wait_for(stands, "the earlier stage waits")
    cluster.db.execute(flag, [True])
    cluster.drain("stages")
    ids = cluster.sql("select (value ->> 'id')::int from jeet.stream_events where stream = 'far' order by 1")
    assert [number for (number,) in ids] == list(range(len(sent)))


def first_stage(cluster: Cluster) -> tuple[int, int]:
    """Its lag, and how far it has come."""
    lag, place = cluster.sql(
        "select sum(lag)::int, sum(next_offset)::int from jeet.lag where function = 'stages' and stage = 0"
    )[0]
    return lag, place
