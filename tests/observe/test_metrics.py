"""Serving figures: the refusal of a port that is taken, and who gets which port."""

from __future__ import annotations

import socket

import pytest

from jeet.errors import SettingsError, UsageError
from jeet.observe.metrics import ClusterMetrics, serve
from jeet.settings import Settings
from jeet.up import _metrics


def test_a_port_that_is_taken_is_refused_by_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}.*JEET_METRICS_PORT"):
            serve(ClusterMetrics("postgresql://nowhere"), "127.0.0.1", port)


def test_without_the_database_a_scrape_says_so_and_tells_the_rest() -> None:
    families = {family.name: family for family in ClusterMetrics("postgresql://127.0.0.1:1/x").collect()}
    assert families["jeet_database_up"].samples[0].value == 0
    assert families["jeet_process_memory_bytes"].samples[0].value > 1e6
    assert families["jeet_lag_events"].samples == []


@pytest.mark.parametrize(
    ("port", "number", "given"),
    [(None, 1, {}), (9100, 0, {"JEET_METRICS_PORT": "9100"}), (9100, 2, {"JEET_METRICS_PORT": "9102"})]
    + [(0, number, {"JEET_METRICS_PORT": "0"}) for number in (0, 2)],
)
def test_each_process_of_jeet_up_has_a_port_of_its_own(port: int | None, number: int, given: dict[str, str]) -> None:
    assert _metrics(Settings(metrics_port=port), number) == given


def test_ports_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingsError, match="JEET_METRICS_PORT is 65536"):
        Settings.from_environment({"JEET_METRICS_PORT": "65536"})
    assert Settings.from_environment({"JEET_METRICS_PORT": "0"}).metrics_port == 0
