"""Guarantee 2: events of a key are processed in offset order and outputs keep that order, whatever fails."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import publish

CHAIN_JS = """export const config = { source: 'numbers', sink: 'chain', key: 'k' };
stream.map(event => {
  if (event.bad === 'throw') throw new Error('bad');
  if (event.bad === 'trap') for (;;) {}
  const before = state.last[event.k] ?? -1;
  state.last[event.k] = event.n;
  return { k: event.k, n: event.n, before };
});
"""


@pytest.mark.parametrize("disturbance", ["kills", "traps"])
def test_each_event_of_a_key_sees_the_one_before_it(database_url: str, disturbance: str) -> None:
    keys, rounds = [f"k{number}" for number in range(6)], 300
    bad = {n: ("trap" if n % 2 else "throw") for n in range(50, rounds, 97)} if disturbance == "traps" else {}
    events = [{"k": key, "n": n, "bad": bad.get(n)} for n in range(rounds) for key in keys]
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(CHAIN_JS, "chain", "--partitions=2")
        for start in range(0, len(events), 300):
            publish(cluster.db, "numbers", events[start : start + 300])
            if disturbance == "kills":
                wait_for(
                    lambda: cluster.value("select count(*) from jeet.leases where worker is not null") == 2, "owners"
                )
                os.kill(cluster.workers()[0].pid, signal.SIGKILL)
                cluster.start("worker")
        cluster.drain("chain")
        good = [n for n in range(rounds) if n not in bad]
        seen: dict[str, list[tuple[int, int]]] = {key: [] for key in keys}
        rows = cluster.sql(
            "select value::text from jeet.stream_events where stream = 'chain' order by partition, \"offset\""
        )
        for (text,) in rows:
            output = json.loads(text)
            seen[output["k"]].append((output["before"], output["n"]))
        wanted = list(zip([-1, *good], good, strict=False))
        assert all(seen[key] == wanted for key in keys)
        dead = cluster.sql('select count(*), count(distinct (partition, "offset")) from jeet.dead_letters')
        assert dead == [(len(bad) * len(keys), len(bad) * len(keys))]
