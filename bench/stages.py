"""What another stage costs: a count per key where the source has that key, and one where it is re-keyed first.

Both count the same backlog with one worker, in turns whose order alternates: one stage reads the events by their key;
of two stages the first gives each event on by another key, the second counts. Both throughputs are of the source's
events. Where the time goes is what the worker's figures say of each stage (docs/figures.md): for each event that it
read, CPU of the guest, and time in the sandbox, in reading events and state, and in committing.
`.venv/bin/python bench/stages.py`
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from jeet.observe.collector import FLUSH_S
from jeet.trial import Trial

ONE = """
export const config = {{ source: 'events', sink: 'counts', name: '{name}' }};
stream.count();
"""
TWO = """
export const config = {{ source: 'events', sink: 'counts', name: '{name}' }};
stream.keyBy('itemId').count();
"""
_SPENT = """
select t.stage, sum(g.events), sum(g.cpu_s), sum(g.sandbox_s), sum(g.fetch_s), sum(g.state_s), sum(g.commit_s)
  from jeet_internal.task_figures g
  join jeet_internal.task t on t.id = g.task_id
  join jeet_internal.function f on f.id = t.function_id
 where f.name = %s and g.span_s = 60
 group by t.stage order by t.stage
"""
_WHERE = ("CPU of the guest", "in the sandbox", "reading events", "reading state", "committing")


def run(trial: Trial, name: str, source: str, stages: int, events: int) -> float:
    """Seconds from the deploy until every stage has committed the last event."""
    path = trial.folder / f"{name}.js"
    path.write_text(source.format(name=name))
    began = time.monotonic()
    trial.jeet("deploy", str(path))
    trial.until("all is processed", lambda: trial.processed(name) == stages * events, lambda: trial.processed(name))
    return time.monotonic() - began


def spent(trial: Trial, name: str) -> list[tuple[float, ...]]:
    """Microseconds an event of each stage, in the order of `_WHERE`."""
    rows = trial.db.execute(_SPENT.encode(), [name]).fetchall()
    return [tuple(float(seconds) * 1e6 / float(events) for seconds in each) for _, events, *each in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1_000)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"one": [], "two": []}
    where: dict[str, list[list[tuple[float, ...]]]] = {"one": [], "two": []}
    with Trial(1) as trial:
        backlog = trial.folder / "backlog.ndjson"
        with backlog.open("w") as file:
            for n in range(options.events):
                event = {"userId": f"user{n * 7919 % options.keys}", "itemId": f"item{n * 104729 % options.keys}"}
                file.write(json.dumps(event) + "\n")
        trial.jeet("create_stream", "events", "--key=userId", "--partitions=8")
        trial.jeet("publish", "events", str(backlog))
        run(trial, "warm", TWO, 2, options.events)
        trial.jeet("delete", "warm")
        for pair in range(options.pairs):
            for kind in ("one", "two") if pair % 2 else ("two", "one"):
                name, source, stages = f"{kind}{pair}", *((ONE, 1) if kind == "one" else (TWO, 2))
                rates[kind].append(options.events / run(trial, name, source, stages, options.events))
                time.sleep(FLUSH_S + 1.0)
                where[kind].append(spent(trial, name))
                trial.jeet("delete", name)
            print(
                f"pair {pair + 1}: {rates['one'][-1]:,.0f} events/s in one stage, {rates['two'][-1]:,.0f} in two",
                flush=True,
            )
    one, two = statistics.median(rates["one"]), statistics.median(rates["two"])
    medians = f"{one:,.0f} events/s in one stage, {two:,.0f} in two: {two / one:.2f} of it"
    print(f"{medians} (medians of {options.pairs} pairs)")
    for kind, stages in (("one", 1), ("two", 2)):
        for stage in range(stages):
            told = [statistics.median(each[stage][n] for each in where[kind]) for n in range(len(_WHERE))]
            text = ", ".join(f"{what} {us:.1f}" for what, us in zip(_WHERE, told, strict=True))
            print(f"{kind}, stage {stage}, us an event: {text}")


if __name__ == "__main__":
    main()
