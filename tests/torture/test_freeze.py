"""Workers stopped for three heartbeat timeouts: taken over within four seconds; the woken one commits nothing."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, Load, check_exact

pytestmark = pytest.mark.torture

HEARTBEAT_TIMEOUT_S = 2.0
BUSY_JS = TOTALS_JS.replace(
    "stream.map(event => {",
    "stream.map(event => { const end = Date.now(); let n = 0; for (let i = 0; i < 20000; i++) n += i;",
)
SLOW_STATEMENT = """
create function slow_checkpoint() returns trigger language plpgsql as
  $$ begin perform pg_sleep(0.15); return new; end $$;
create trigger slow_statement before update on jeet_internal.checkpoint for each row execute function slow_checkpoint();
"""
SLOW_COMMIT = """
create function slow_checkpoint() returns trigger language plpgsql as
  $$ begin perform pg_sleep(0.15); return new; end $$;
create constraint trigger slow_commit after update on jeet_internal.checkpoint deferrable initially deferred
  for each row execute function slow_checkpoint();
"""


@pytest.mark.parametrize(
    ("where", "source", "planted"),
    [
        ("in the sandbox", BUSY_JS, ""),
        ("inside the transaction", TOTALS_JS, SLOW_STATEMENT),
        ("during COMMIT", TOTALS_JS, SLOW_COMMIT),
    ],
    ids=["sandbox", "transaction", "commit"],
)
def test_a_frozen_worker_is_taken_over_and_commits_nothing_when_it_wakes(
    database_url: str,
    rounds: int,
    record_property: Callable[[str, object], None],
    where: str,
    source: str,
    planted: str,
) -> None:
    generator, chance = Generator(seed=len(where), keys=50), random.Random(len(where))
    takeovers_s: list[float] = []
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(source, "totals", "--partitions=4")
        cluster.wait_balanced("totals", workers=2)
        if planted:
            cluster.db.execute(planted)
        with Load(database_url, generator, per_tick=5):
            for _ in range(rounds):
                victim = chance.choice(cluster.workers())
                partitions = wait_for(lambda victim=victim: cluster.leases_of(victim.pid), "leases of the victim")
                if planted:
                    _wait_until_sleeping(cluster)
                else:
                    time.sleep(chance.random() * 0.1)  # any instant will do: the guest is nearly always running
                os.kill(victim.pid, signal.SIGSTOP)
                stopped_at = time.monotonic()
                wait_for(
                    lambda victim=victim, partitions=partitions: (
                        cluster.value(
                            "select count(*) from jeet.leases l join jeet.workers w on w.id::text = l.worker::text"
                            " where l.partition = any(%s) and w.pid <> %s and w.status = 'running'",
                            partitions,
                            victim.pid,
                        )
                        == len(partitions)
                    ),
                    "the frozen worker's partitions have a new owner",
                )
                takeovers_s.append(time.monotonic() - stopped_at)
                epochs = _epochs(cluster)
                remaining = stopped_at + 3 * HEARTBEAT_TIMEOUT_S - time.monotonic()
                time.sleep(max(0.0, remaining))  # the drill: frozen for three timeouts
                os.kill(victim.pid, signal.SIGCONT)
                cluster.wait_balanced("totals", workers=2)  # it came back as a new incarnation
                assert all(epoch >= epochs[partition] for partition, epoch in _epochs(cluster).items())
        cluster.drain("totals")
        check_exact(cluster.db, generator)
    assert max(takeovers_s) < 4.0, takeovers_s
    record_property("takeover_max_s", round(max(takeovers_s), 3))
    print(f"frozen {where}: takeover s max {max(takeovers_s):.3f} of {len(takeovers_s)}")


def _epochs(cluster: Cluster) -> dict[Any, Any]:
    return dict(cluster.sql("select partition, epoch from jeet.checkpoints where function = 'totals'"))


def _wait_until_sleeping(cluster: Cluster) -> None:
    wait_for(
        lambda: cluster.value(
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        ),
        "a commit under way",
    )
