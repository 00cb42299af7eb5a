"""State that is refreshed at the edge of its TTL while it is swept all the time, and owners change."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from .cluster import Cluster, wait_for
from .figures import Figures
from .storm import FUNCTION

pytestmark = pytest.mark.torture

KEYS = 40
TTL_S = 0.5
# An entry expires a TTL after its batch was read, and the clock that a function sees may be a tick late.
MARGIN_S = 0.2
# Each key counts its own events, and says when it did.
SOURCE = """export const config = { source: 'events', sink: 'counts', key: 'k', state: { seen: { ttl: '500ms' } } };
stream.map(event => {
  state.seen[event.k] = (state.seen[event.k] || 0) + 1;
  return { k: event.k, n: state.seen[event.k], at: Date.now() };
});
"""


def test_no_refresh_is_lost_and_nothing_expired_is_seen(database_url: str, rounds: int, figures: Figures) -> None:
    stop = threading.Event()
    sweeps, longest_s = 0, 0.0

    def sweep() -> None:
        nonlocal sweeps, longest_s
        with psycopg.connect(database_url, autocommit=True) as db:
            while not stop.wait(0.05):
                began = time.monotonic()
                db.execute("select jeet_internal.sweep_state(id, 1000, interval '0') from jeet_internal.task")
                longest_s = max(longest_s, time.monotonic() - began)
                sweeps += 1

    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(SOURCE, FUNCTION, "--partitions=4")
        cluster.wait_balanced(FUNCTION, 2)
        sweeper = threading.Thread(target=sweep)
        sweeper.start()
        events = 0
        for number in range(20 * rounds):
            # Half of the keys come every tenth of a second or so, the others at the very edge of the TTL.
            due = [k for k in range(KEYS) if k % 2 or number % 5 == 0]
            cluster.db.execute(
                "select jeet.publish('events', json_build_object('k', 'k' || k)) from unnest(%s::int[]) k", (due,)
            )
            events += len(due)
            if number % 20 == 10:
                victim = wait_for(cluster.workers, "a worker")[0]
                victim.kill()
                victim.wait()
                cluster.start("worker")
            time.sleep(0.1)
        cluster.drain(FUNCTION)
        stop.set()
        sweeper.join()
        outputs = cluster.sql(
            "select value->>'k', (value->>'n')::int, (value->>'at')::float8 / 1000 from jeet.stream_events"
            " where stream = 'counts' order by partition, \"offset\""
        )
        assert len(outputs) == events
        assert cluster.value("select count(*) from jeet.dead_letters") == 0
    last: dict[str, tuple[int, float]] = {}
    kept = expired = 0
    for key, count, at in outputs:
        if key in last:
            before, then = last[key]
            if at - then < TTL_S - MARGIN_S:
                assert count == before + 1, f"a refresh of {key} was lost"
                kept += 1
            elif at - then > TTL_S + MARGIN_S:
                assert count == 1, f"{key} saw what had expired"
                expired += 1
        last[key] = count, at
    assert min(kept, expired) > events // 20
    figures.add("state swept at its edge", sweeps, events=events, note=f"longest sweep {1000 * longest_s:.0f} ms")
