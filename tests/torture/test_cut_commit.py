"""Connections lost around COMMIT: before it arrives, while it runs, and after it took effect but before its answer."""

from __future__ import annotations

import signal

import pytest

from .cluster import wait_for
from .figures import Figures
from .proxy import TO_CLIENT, TO_SERVER, Proxy
from .storm import Storm

pytestmark = pytest.mark.torture

# A deferred trigger makes COMMIT itself take long enough to be met in the middle.
SLOW_COMMIT = """
create function slow_commit() returns trigger language plpgsql as $$ begin perform pg_sleep(0.2); return new; end $$;
create constraint trigger slow_commit after update on jeet_internal.checkpoint deferrable initially deferred
  for each row execute function slow_commit();
"""
IN_COMMIT = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"


@pytest.mark.parametrize("side", ["before it arrives", "before its answer"])
def test_a_connection_lost_around_commit_loses_and_repeats_nothing(
    database_url: str, side: str, seed: int, rounds: int, figures: Figures
) -> None:
    recoveries_s: list[float] = []
    with Proxy(database_url) as proxy, Storm(database_url, seed, workers=0, rate=100, partitions=4) as storm:
        storm.cluster.start("worker", url=proxy.url)
        storm.until_all_move()
        storm.cluster.db.execute(SLOW_COMMIT)
        for _ in range(2 * rounds):
            wait_for(lambda: storm.cluster.value(IN_COMMIT), "a commit that runs")
            if side == "before it arrives":
                # Whatever the worker sends from now on does not come through: not its next COMMIT either.
                proxy.freeze(TO_SERVER)
                wait_for(lambda: not storm.cluster.value(IN_COMMIT), "that commit is through")
                storm.pause(0.0, 0.3)
            else:
                # This one takes effect, and nobody hears of it.
                before = storm.positions()
                proxy.freeze(TO_CLIENT)
                wait_for(lambda: not storm.cluster.value(IN_COMMIT), "that commit is through")
                assert storm.positions() != before
            proxy.cut()
            proxy.heal()
            recoveries_s.append(storm.until_all_move())
        storm.cluster.db.execute("drop function slow_commit cascade")
    storm.tell(figures, f"COMMIT cut {side}", len(recoveries_s), outages_s=recoveries_s)


def test_a_worker_killed_inside_commit_loses_and_repeats_nothing(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    takeovers_s: list[float] = []
    with Storm(database_url, seed, rate=100, partitions=4) as storm:
        storm.cluster.db.execute(SLOW_COMMIT)
        for _ in range(rounds):
            wait_for(lambda: storm.cluster.value(IN_COMMIT), "a commit that runs")
            worker = storm.pick()
            takeovers_s.append(storm.kill(worker))
            assert worker.returncode == -signal.SIGKILL
            storm.cluster.start("worker")
            storm.until_balanced()
        storm.cluster.db.execute("drop function slow_commit cascade")
    storm.tell(figures, "kill -9 inside COMMIT", len(takeovers_s), takeovers_s=takeovers_s)
