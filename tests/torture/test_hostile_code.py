"""The corpus of hostile scripts beside a healthy stream and between healthy events of their own function."""

from __future__ import annotations

import json
import time

import psutil
import psycopg
import pytest

from .cluster import Cluster
from .figures import Figures
from .hostile_code import SCRIPTS
from .oracle import TOTALS_JS, Generator, Load, check_exact, publish

pytestmark = pytest.mark.torture

CASES = "\n".join(f"    case {json.dumps(name)}: {{ {code}; break }}" for name, (_, code) in SCRIPTS.items())
HOSTILE_JS = f"""export const config = {{ source: 'hostile_in', sink: 'hostile_out', key: 'userId' }};
stream.map((event, context) => {{
  switch (event.script) {{
{CASES}
  }}
  state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
  if (({{}}).isAdmin || [].length !== 0 || JSON.stringify([1]) !== '[1]') throw new Error('spoilt');
  return {{ id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] }};
}});
"""


def test_hostile_scripts_are_contained_and_named(database_url: str, seed: int, rounds: int, figures: Figures) -> None:
    neighbour, own = Generator(seed, 50), Generator(seed + 1, 20)
    with Cluster(database_url, workers=1, environment={"JEET_MAX_ATTEMPTS": "3"}) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.deploy(HOSTILE_JS, "hostile", "--partitions=2")
        pid = cluster.workers()[0].pid
        largest = 0
        with Load(database_url, neighbour, per_tick=2):
            time.sleep(3.0)  # calm
            calm_until = cluster.value("select clock_timestamp()")
            for number, name in enumerate(SCRIPTS):
                publish(cluster.db, "hostile_in", own.events(3))
                evil = {"id": -1 - number, "userId": f"evil{number}", "amount": 0, "script": name}
                publish(cluster.db, "hostile_in", [evil])
                largest = max(largest, psutil.Process(pid).memory_info().rss)
            publish(cluster.db, "hostile_in", own.events(50))
            cluster.drain("hostile", 300)
        cluster.drain("totals")
        check_exact(cluster.db, neighbour)
        dead = {
            int(row[0]): row[1]
            for row in cluster.sql(
                "select event::json ->> 'id', error from jeet.dead_letters where function = 'hostile'"
            )
        }
        made = {
            int(row[0])
            for row in cluster.sql(
                "select value ->> 'id' from jeet.stream_events"
                " where stream = 'hostile_out' and value ->> 'id' is not null"
            )
        }
        for number, (name, (fate, _)) in enumerate(SCRIPTS.items()):
            event = -1 - number
            assert (event in dead) != (event in made) or fate == "either", f"{name}: {dead.get(event)}"
            assert fate != "dead" or dead[event].strip(), name
            assert fate != "fine" or event in made, f"{name}: {dead.get(event)}"
        # Nothing but the scripts failed, and what came between them is exact.
        assert all(event < 0 for event in dead), {event: error for event, error in dead.items() if event >= 0}
        cluster.db.execute("delete from jeet_internal.dead_letter")
        _check_between(cluster.db, own)
        assert [worker.pid for worker in cluster.workers()] == [pid]
        calm, stormy = _latencies(cluster.db, calm_until)
    note = f"neighbour's p99 {stormy / calm:.2f} of the calm one; at most {largest / 2**20:.0f} MB in the worker"
    figures.add("hostile scripts", len(SCRIPTS), events=neighbour.made + own.made, note=note)
    assert rounds


def _check_between(db: psycopg.Connection, own: Generator) -> None:
    got: dict[str, list[tuple[int, int]]] = {}
    for (value,) in db.execute(
        "select value from jeet.stream_events where stream = 'hostile_out' and (value ->> 'id')::int >= 0"
        ' order by partition, "offset"'
    ):
        got.setdefault(value["userId"], []).append((value["id"], value["currentTotal"]))
    assert got == own.outputs()


def _latencies(db: psycopg.Connection, until: object) -> tuple[float, float]:
    """p99 from an event's append to that of its output, in ms: before that time, and after it."""
    row = db.execute(
        """
        select percentile_cont(0.99) within group (order by ms) filter (where at < %(until)s),
               percentile_cont(0.99) within group (order by ms) filter (where at >= %(until)s)
          from (select i.published_at as at, extract(epoch from o.published_at - i.published_at)::float8 * 1000 as ms
                  from jeet.stream_events i join jeet.stream_events o on o.value ->> 'id' = i.value ->> 'id'
                 where i.stream = 'events' and o.stream = 'totals') paired
        """,
        {"until": until},
    ).fetchone()
    assert row is not None
    return row
