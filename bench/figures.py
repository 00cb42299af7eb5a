"""What counting costs: CPU per event of a worker and its Postgres sessions, with all figures and with JEET_FIGURES=off.

The running total per user, as in `jeet bench`, drained from a backlog by one worker process on a server of its own.
The two of a pair run at the same time, each on its own server, so that what else the machine does meets both alike;
they change servers from pair to pair. Told is the mean of the pairs' ratios with its 95 % interval (Student's t). The
end of each run waits for the figures to be told, so that this is in it too.

Run it as `.venv/bin/python bench/figures.py --pairs=12`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jeet.observe.collector import FLUSH_S
from jeet.trial import Trial

FUNCTION = """
export const config = {{ source: 'events', sink: 'totals', key: 'userId', name: '{name}' }};
stream.map(event => {{
  state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
  return {{ userId: event.userId, currentTotal: state.totals[event.userId] }};
}});
"""
_T95 = {9: 2.262, 11: 2.201, 13: 2.160, 15: 2.131, 19: 2.093, 23: 2.069, 29: 2.045}
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def run(trial: Trial, name: str, figures: str, events: int) -> float:
    """Microseconds of CPU per event."""
    environment = os.environ | {
        "JEET_HOME": str(trial.folder),
        "JEET_DATABASE_URL": trial.url,
        "JEET_FIGURES": figures,
    }
    worker = subprocess.Popen([sys.executable, "-m", "jeet.cli", "worker"], env=environment, stderr=subprocess.DEVNULL)
    try:
        trial.until("the worker has joined", lambda: worker.pid in {int(row[1]) for row in trial.rows("trial_workers")})
        path = trial.folder / f"{name}.js"
        path.write_text(FUNCTION.format(name=name))
        before = cpu_s(worker.pid)
        trial.jeet("deploy", str(path))
        trial.until("all is processed", lambda: trial.processed(name) == events, lambda: trial.processed(name))
        time.sleep(FLUSH_S + 1.0)
        sessions = trial.db.execute(
            "select pid from pg_stat_activity"
            " where datname = current_database() and application_name like 'jeet-worker%'"
        ).fetchall()
        return (cpu_s(worker.pid) - before + sum(cpu_s(pid) for (pid,) in sessions)) / events * 1e6
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()
        trial.jeet("delete", name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--users", type=int, default=10_000)
    options = parser.parse_args()
    told: dict[str, list[float]] = {"on": [], "off": []}
    with Trial(0) as one, Trial(0) as other, ThreadPoolExecutor(2) as threads:
        for trial in (one, other):
            fill(trial, options.events, options.users)
        for pair in range(-1, options.pairs):
            turns = ("on", "off") if pair % 2 else ("off", "on")
            running = [
                threads.submit(run, trial, f"pair{pair + 1}", figures, options.events)
                for trial, figures in zip((one, other), turns, strict=True)
            ]
            found = {figures: each.result() for figures, each in zip(turns, running, strict=True)}
            if pair < 0:
                continue  # the first one warms up
            for figures, cost_us in found.items():
                told[figures].append(cost_us)
            print(f"pair {pair + 1}: {found['off']:.2f} us without, {found['on']:.2f} with", flush=True)
    ratios = [on / off for on, off in zip(told["on"], told["off"], strict=True)]
    half = _T95.get(len(ratios) - 1, 2.3) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    cost = statistics.mean(ratios) - 1
    print(
        f"{statistics.mean(told['off']):.2f} us an event without, {statistics.mean(told['on']):.2f} with;"
        f" cost {cost:+.1%} (95 %: {cost - half:+.1%} to {cost + half:+.1%}), {len(ratios)} pairs"
    )


def fill(trial: Trial, events: int, users: int) -> None:
    """Publish the backlog."""
    backlog = trial.folder / "backlog.ndjson"
    with backlog.open("w") as file:
        for n in range(events):
            file.write(json.dumps({"userId": f"user{n * 7919 % users}", "amount": n % 100}) + "\n")
    trial.jeet("create_stream", "events", "--key=userId", "--partitions=8")
    trial.jeet("publish", "events", str(backlog))


if __name__ == "__main__":
    main()
