"""The network between a worker and Postgres spoilt: others take over, and the worker comes back by itself."""

from __future__ import annotations

import pytest

from .cluster import wait_for
from .figures import Figures
from .proxy import TO_CLIENT, TO_SERVER, Proxy
from .storm import FUNCTION, Storm

pytestmark = pytest.mark.torture

SPOILT = ["frozen", "answers lost", "requests lost", "cut", "refused"]
POOR = {
    "2 s late": {"latency_s": 2.0},
    "one byte at a time": {"piece": 1},
    "1 KB/s": {"bytes_per_s": 1024},
}


@pytest.mark.parametrize("way", SPOILT)
def test_a_worker_that_cannot_reach_postgres_is_replaced_and_comes_back(
    database_url: str, way: str, seed: int, rounds: int, figures: Figures
) -> None:
    takeovers_s: list[float] = []
    with Proxy(database_url) as proxy, Storm(database_url, seed, workers=1, rate=300) as storm:
        cut_off = storm.cluster.start("worker", url=proxy.url)
        for _ in range(rounds):
            storm.cluster.wait_balanced(FUNCTION, 2)
            partitions = wait_for(lambda: storm.cluster.leases_of(cut_off.pid), "leases of the worker behind the proxy")
            storm.pause(0.0, 0.5)
            _spoil(proxy, way)
            if way != "cut":  # a worker that is cut off may be back before anybody misses it
                wait_for(lambda: not storm.cluster.leases_of(cut_off.pid), "it has lost its leases")
            takeovers_s.append(storm.until_all_move(partitions))
            proxy.heal()
        storm.cluster.wait_balanced(FUNCTION, 2)
        assert cut_off.poll() is None, "the worker behind the proxy has come back by itself"
    storm.tell(figures, f"network {way}", rounds, takeovers_s=takeovers_s)


@pytest.mark.parametrize("way", POOR)
def test_a_poor_network_slows_its_own_worker_and_spoils_nothing(
    database_url: str, way: str, seed: int, rounds: int, figures: Figures
) -> None:
    with Proxy(database_url) as proxy, Storm(database_url, seed, workers=1, rate=200) as storm:
        storm.cluster.start("worker", url=proxy.url)
        storm.cluster.wait_balanced(FUNCTION, 2)
        for _ in range(rounds):
            proxy.slow(**POOR[way])  # type: ignore[arg-type]
            for _ in range(2):
                storm.until_all_move(within_s=180)
            proxy.heal()
            storm.cluster.wait_balanced(FUNCTION, 2)
    storm.tell(figures, f"network {way}", rounds)


def _spoil(proxy: Proxy, way: str) -> None:
    if way == "frozen":
        proxy.freeze()
    elif way == "answers lost":
        proxy.freeze(TO_CLIENT)
    elif way == "requests lost":
        proxy.freeze(TO_SERVER)
    elif way == "cut":
        proxy.cut()
    else:
        proxy.refuse()
