"""Changes under load: versions swapped and rolled back, paused, resumed, migrated again; each event is done once."""

from __future__ import annotations

import pytest

from .figures import Figures
from .oracle import MIXED_JS
from .storm import FUNCTION, Storm

pytestmark = pytest.mark.torture


def test_versions_change_under_load_and_each_event_runs_once(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    changes = 0
    with Storm(database_url, seed) as storm:
        cluster = storm.cluster
        for number in range(1, rounds + 1):
            storm.until_all_move()
            cluster.deploy(f"// {number}\n{MIXED_JS}", FUNCTION)
            storm.until_all_move()
            cluster.jeet("rollback", FUNCTION)
            storm.until_all_move()
            cluster.jeet("pause", FUNCTION)
            before = storm.positions()
            storm.pause(0.5, 1.0)
            assert storm.positions() == before, "a paused function commits nothing"
            cluster.jeet("resume", FUNCTION)
            storm.until_all_move()
            cluster.jeet("migrate")
            changes += 5
        versions = cluster.sql("select distinct version from jeet.checkpoints where function = %s", FUNCTION)
        assert len(versions) == 1
    storm.tell(figures, "deploy, rollback, pause, resume, migrate", changes)
