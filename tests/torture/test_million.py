"""The founding snippet over a million events and ten thousand keys: exact totals, one output per event."""

from __future__ import annotations

import random

import pytest
from tests.torture.cluster import Cluster

SNIPPET = """stream.map(event => {
  const userId = event.userId;
  const value = event.amount;
  state.totals[userId] = (state.totals[userId] || 0) + value;
  return { userId, currentTotal: state.totals[userId] };
});
"""


@pytest.mark.torture
def test_a_million_events_give_a_million_outputs_and_exact_totals(database_url: str) -> None:
    chance, events = random.Random(11), 1_000_000
    keys = [*(f"u{number}" for number in range(9_998)), "__proto__", "constructor"]
    totals = dict.fromkeys(keys, 0)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(SNIPPET, "totals", "--source=events", "--sink=user_totals", "--key=userId", "--partitions=8")
        file = cluster.folder / "events.ndjson"
        with file.open("w") as lines:
            for _ in range(events):
                key, amount = chance.choice(keys), chance.randrange(1000)
                totals[key] += amount
                lines.write(f'{{"userId":"{key}","amount":{amount}}}\n')
        cluster.jeet("publish", "events", str(file))
        cluster.drain("totals", within_s=600)
        rows = cluster.sql("select key, value::text::bigint from jeet.state where function = 'totals'")
        assert dict(rows) == {key: total for key, total in totals.items() if total}
        # Independent of the function: the running total of each key, by SQL over the log, is the set of its outputs.
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'user_totals'") == events
        wrong = cluster.value(
            """
            with wanted as (
                select key, sum((value->>'amount')::int) over (partition by key order by "offset") as total,
                       row_number() over (partition by key order by "offset") as n
                  from jeet.stream_events where stream = 'events'),
            got as (
                select value->>'userId' as key, (value->>'currentTotal')::bigint as total,
                       row_number() over (partition by key order by "offset") as n
                  from jeet.stream_events where stream = 'user_totals')
            select count(*) from wanted full join got using (key, n) where wanted.total is distinct from got.total
            """
        )
        assert wrong == 0
