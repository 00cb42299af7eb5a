"""A function that logs without end: the log is bounded by the minute and says so."""

from __future__ import annotations

import json

from jeet.limits import DEFAULTS
from observe.conftest import Clinic


def test_what_is_cut_of_a_functions_log_is_told_in_it(clinic: Clinic) -> None:
    clinic.deploy(
        "export const config = { source: 'chatty_in', key: 'k' };"
        " stream.map(event => { console.log('at', event.n); if (event.n === 2) console.error('look'); });",
        "chatty",
    )
    clinic.publish("chatty_in", *(json.dumps({"k": "a", "n": n}) for n in range(DEFAULTS["log_lines_per_minute"] + 50)))
    clinic.cluster.drain("chatty")
    shown = clinic.cluster.jeet("logs", "chatty", "--limit=5000", "--json").stdout.splitlines()
    lines = [json.loads(line) for line in shown]
    assert len(lines) == DEFAULTS["log_lines_per_minute"] + 1
    assert (lines[0]["message"], lines[0]["offset"], lines[0]["version"]) == ("at 0", 0, 1)
    assert "what follows in this minute is cut" in lines[-1]["message"]
    (error,) = clinic.cluster.jeet("logs", "chatty", "--level=error", "--since=5m", "--json").stdout.splitlines()
    assert json.loads(error)["message"] == "look"
    clinic.delete("chatty")
