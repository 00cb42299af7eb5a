"""Postgres restarted in each mode, and one backend killed, which restarts it too: work goes on by itself."""

from __future__ import annotations

import psycopg
import pytest

from .cluster import wait_for
from .figures import Figures
from .server import OwnServer, own_server
from .storm import Storm, measure

pytestmark = pytest.mark.torture

WAYS = ["smart", "fast", "immediate", "a backend killed"]


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_of_postgres_is_survived_without_anybody_doing_anything(
    way: str, seed: int, rounds: int, figures: Figures
) -> None:
    recoveries_s: list[float] = []
    with own_server() as server, Storm(server.url, seed, rate=300) as storm:
        workers = [worker.pid for worker in storm.cluster.workers()]
        for _ in range(rounds):
            storm.until_all_move()
            storm.pause(0.0, 0.5)
            down_s = measure(lambda: _restart(server, storm, way))
            assert down_s < 60
            storm.reconnect()
            recoveries_s.append(storm.until_all_move())
        assert [worker.pid for worker in storm.cluster.workers()] == workers
    storm.tell(figures, f"Postgres restarted ({way})", rounds, outages_s=recoveries_s)


def _restart(server: OwnServer, storm: Storm, way: str) -> None:
    if way == "a backend killed":
        victim = storm.cluster.value(
            "select pid from pg_stat_activity where application_name like 'jeet-worker commit%' order by pid limit 1"
        )
        server.crash(victim)
        wait_for(lambda: not _answers(storm), "everybody is thrown out")
    elif way == "smart":
        server.ask_to_stop("smart")  # waits for everybody to leave, which nobody does unasked
        storm.pause(0.5, 1.0)
        server.restart("fast")
    else:
        server.stop(way)  # type: ignore[arg-type]
        storm.pause(0.0, 1.5)
        server.start()


def _answers(storm: Storm) -> bool:
    try:
        storm.cluster.sql("select 1")
    except psycopg.OperationalError:
        return False
    return True
