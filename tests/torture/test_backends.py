"""Single database sessions of workers ended: the lease's, the listener's, the writer's, any."""

from __future__ import annotations

import pytest

from .cluster import wait_for
from .figures import Figures
from .storm import Storm

pytestmark = pytest.mark.torture


@pytest.mark.parametrize("session", ["lease", "wake", "commit", "fetch", "state", "control", ""])
def test_a_session_that_is_ended_costs_a_moment_and_nothing_else(
    database_url: str, session: str, seed: int, rounds: int, figures: Figures
) -> None:
    notices_s: list[float] = []
    with Storm(database_url, seed) as storm:
        for _ in range(rounds):
            storm.pause(0.1, 0.8)
            victims = wait_for(
                lambda: storm.cluster.sql(
                    "select pid from pg_stat_activity where datname = current_database() and application_name like %s",
                    f"jeet-worker {session}%",
                ),
                f"a session {session}",
            )
            assert storm.cluster.value("select pg_terminate_backend(%s)", storm.chance.choice(victims)[0])
            notices_s.append(storm.until_all_move())
    storm.tell(figures, f"session ended ({session or 'any'})", len(notices_s), outages_s=notices_s)
