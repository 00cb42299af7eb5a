"""What an event costs the sandbox: batches of events through a function, without Postgres.

Counted in WebAssembly instructions (wasmtime's fuel), which are the same whatever else the machine does, and in CPU
microseconds of the thread. A column of what a case costs more than a function that does nothing shows its own share.
Run it as `.venv/bin/python bench/guest.py --help`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import wasmtime
from rich.console import Console
from rich.table import Table

from jeet.plan import WHOLE
from jeet.sandbox import machine as machines
from jeet.sandbox.call import BatchInput, InstanceSpec, OutputStream
from jeet.sandbox.engine import Engine
from jeet.sandbox.limits import Limits
from jeet.testing import MemoryState, StateConfig

TOTALS = """stream.map(e => {
  state.totals[e.userId] = (state.totals[e.userId] || 0) + e.amount;
  return { id: e.id, userId: e.userId, currentTotal: state.totals[e.userId] };
});"""
OBJECTS = """stream.map(e => {
  const seen = state.seen[e.userId] || { n: 0, last: null };
  seen.n += 1;
  seen.last = e.id;
  state.seen[e.userId] = seen;
  return { id: e.id, n: seen.n };
});"""
CASES: dict[str, tuple[str, dict[str, StateConfig]]] = {
    "nothing": ("stream.map(event => null)", {}),
    "output of three fields": ("stream.map(e => ({ id: e.id, userId: e.userId, currentTotal: e.amount }))", {}),
    "running total": (TOTALS, {}),
    "running total, ttl": (TOTALS, {"totals": StateConfig(3_600_000, "write")}),
    "object in state": (OBJECTS, {}),
    "with context": ("stream.map((e, context) => ({ id: e.id, at: context.offset, key: context.key }))", {}),
    "count per key": ("stream.count()", {}),
    "one-minute windows": ("stream.window({ tumbling: '1m', emit: 'change' }).count()", {}),
    "filter and flatMap": ("stream.filter(e => e.amount % 2).flatMap(e => [{ id: e.id }, { id: e.id }])", {}),
}


@contextmanager
def counting_instructions() -> Iterator[None]:
    """Within, engines count fuel, and stores have more of it than they can use."""

    class Config(wasmtime.Config):
        def __init__(self) -> None:
            super().__init__()
            self.consume_fuel = True

    class Store(wasmtime.Store):
        def __init__(self, engine: wasmtime.Engine) -> None:
            super().__init__(engine)
            self.set_fuel(2**62)

    with mock.patch.object(wasmtime, "Config", Config), mock.patch.object(machines.wasmtime, "Store", Store):
        yield


def batches(size: int, users: int, events: int) -> Iterator[BatchInput]:
    for first in range(0, events - size + 1, size):
        made = [
            {"id": f"b-{n}", "userId": f"user{n * 7919 % users}", "amount": n % 100} for n in range(first, first + size)
        ]
        yield BatchInput(
            first_offset=first,
            count=size,
            values="\n".join(json.dumps(event) for event in made).encode(),
            keys="\n".join(json.dumps(event["userId"]) for event in made).encode(),
            timestamps="\n".join(str(1_700_000_000_000 + n) for n in range(first, first + size)).encode(),
            headers=b"",
            now_ms=0.0,
            fetched_at=0.0,
        )


def measure(engine: Engine, case: str, size: int, users: int, events: int, *, fuel: bool) -> float:
    """Instructions, or CPU microseconds, an event. Two rounds over the events: the first one warms up."""
    source, config = CASES[case]
    plugin = engine.load_plugin(None)
    state = MemoryState(config)
    spec = InstanceSpec(
        function="bench",
        version=1,
        partition=0,
        outputs=(OutputStream("sink"),),
        slice_ms=60_000,
        limits=Limits(event_cpu_ms=5_000, event_wall_ms=60_000),
        plan=replace(WHOLE, timed="window" in source),
    )
    instance = plugin.instantiate(plugin.compile(source, "bench.js"), spec, state)
    store = instance._machine.store
    try:
        for _ in range(2):
            spent, count = 0.0, 0
            for batch in batches(size, users, events):
                now = replace(
                    batch, now_ms=time.time() * 1000, fetched_at=time.monotonic(), committed_through=max(0, count)
                )
                before = store.get_fuel() if fuel else time.thread_time()
                result = instance.run(now)
                spent += before - store.get_fuel() if fuel else (time.thread_time() - before) * 1e6
                assert (result.processed, list(result.faults)) == (batch.count, [])
                state.apply(result, now.now_ms)
                count = result.sequence
        return spent / (events // size * size)
    finally:
        instance.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1000, help="events in a batch")
    parser.add_argument("--users", type=int, default=1000, help="keys")
    parser.add_argument("--events", type=int, default=20_000, help="events of each case and round")
    options = parser.parse_args()
    size, users, events = options.batch, options.users, options.events
    table = Table(title=f"batches of {size:,}, {users:,} keys", title_justify="left")
    for heading in ("case", "instructions an event", "CPU us an event"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    with tempfile.TemporaryDirectory() as folder:
        with counting_instructions():
            counted = Engine(Path(folder) / "counted")
        plain = Engine(Path(folder) / "plain")
        for case in CASES:
            with counting_instructions():
                instructions = measure(counted, case, size, users, events, fuel=True)
            cpu_us = measure(plain, case, size, users, events, fuel=False)
            table.add_row(case, f"{instructions:,.0f}", f"{cpu_us:.1f}")
        counted.close()
        plain.close()
    Console().print(table)


if __name__ == "__main__":
    main()
