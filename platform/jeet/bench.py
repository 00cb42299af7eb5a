"""`jeet bench`: throughput, latency and failover of this machine, on the running total per user.

The figures are of everything together: Postgres, coordinator, workers and this process share the machine. Each run is
checked: as many outputs as events, and the totals in state equal to those in the log.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from pathlib import Path

import psycopg

from jeet.cli.output import Output, Record
from jeet.errors import UsageError
from jeet.trial import Trial, TrialFailed

FUNCTION = """
export const config = { source: 'bench', sink: 'bench_totals', key: 'userId', name: 'bench' };
stream.map(event => {
  state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
  return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
});
"""
PACED_EVERY_S = 0.01


def run(out: Output, events: int, users: int, workers: int, rate: int, kills: int) -> Record:
    """Measure, and check that nothing was lost or doubled meanwhile."""
    for name, value, least in [("events", events, 1), ("users", users, 1), ("rate", rate, 100), ("kills", kills, 0)]:
        if value < least:
            raise UsageError(f"--{name} must be at least {least}, not {value}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Trial(workers) as trial:
        folder = Path(trial.folder)
        (folder / "bench.js").write_text(FUNCTION)
        backlog = folder / "backlog.ndjson"
        with backlog.open("w") as file:
            for n in range(events):
                file.write(json.dumps({"id": f"b-{n}", "userId": f"user{n * 7919 % users}", "amount": n % 100}) + "\n")
        trial.jeet("create_stream", "bench", "--key=userId", "--partitions=8")
        began = time.monotonic()
        trial.jeet("publish", "bench", str(backlog))
        published_s = time.monotonic() - began
        out.note(f"publish: {events / published_s:,.0f} events/s")
        drained = _drain(trial, events)
        out.note(f"process: {drained:,.0f} events/s, outputs, state and checkpoints committed")
        with _Paced(trial.url, rate) as paced:
            _until_processed(trial, events + 2 * rate)
            figures = trial.rows("bench_latency")[0]
            failovers = [_failover(trial) for _ in range(kills)]
        out.note(f"latency at {rate:,} events/s: p50 {figures[1]:.1f} ms, p99 {figures[2]:.1f} ms")
        if failovers:
            out.note(f"failover: median {statistics.median(failovers):.0f} ms, longest {max(failovers):.0f} ms")
        _until_processed(trial, events + paced.published)
        counts = trial.rows("bench_check")[0]
        if counts[0] != counts[1] or counts[2] != counts[3] or counts[0] != events + paced.published:
            raise TrialFailed(f"events, outputs, sum in the log, sum in state: {counts}; they must be equal in pairs")
    return Record(
        {
            "events": int(counts[0]),
            "users": users,
            "workers": workers,
            "publish_per_s": round(events / published_s),
            "process_per_s": round(drained),
            "latency_rate_per_s": rate,
            "latency_p50_ms": round(figures[1], 2),
            "latency_p99_ms": round(figures[2], 2),
            "kills": kills,
            "failover_median_ms": round(statistics.median(failovers)) if failovers else None,
            "failover_max_ms": round(max(failovers)) if failovers else None,
            "lost_or_doubled": 0,
        }
    )


def _drain(trial: Trial, events: int) -> float:
    """Deploy on the backlog, and the events per second from the first commit seen to the last."""
    trial.jeet("deploy", str(trial.folder / "bench.js"))
    began, before = time.monotonic(), trial.processed("bench")
    _until_processed(trial, events)
    return (events - before) / (time.monotonic() - began)


def _until_processed(trial: Trial, count: int) -> None:
    trial.until(
        f"{count:,} events are processed", lambda: trial.processed("bench") >= count, lambda: trial.processed("bench")
    )


def _failover(trial: Trial) -> float:
    """Kill one worker under load; the milliseconds until others held its partitions, by the coordinator's log."""
    trial.until("all workers hold partitions", lambda: len(trial.holders()) == trial.workers)
    victim = trial.holders()[0]
    os.kill(victim.pid, signal.SIGKILL)
    return trial.redistribution(victim).elapsed_ms


class _Paced:
    """Publishes at a steady rate from a thread of its own while the block runs."""

    def __init__(self, url: str, rate: int) -> None:
        self._url = url
        self._batch = max(1, round(rate * PACED_EVERY_S))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paced", daemon=True)
        self._error: BaseException | None = None
        self.published = 0

    def __enter__(self) -> _Paced:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and error[0] is None:
            raise self._error

    def _run(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as db:
                due = time.monotonic()
                while not self._stop.is_set():
                    events = [
                        json.dumps({"id": f"paced-{n}", "userId": f"user{n % 997}", "amount": 1})
                        for n in range(self.published, self.published + self._batch)
                    ]
                    db.execute("select * from jeet.publish_many('bench', %s::json[])", (events,))
                    self.published += len(events)
                    due += PACED_EVERY_S
                    self._stop.wait(max(0.0, due - time.monotonic()))
        except psycopg.Error as error:
            self._error = error
