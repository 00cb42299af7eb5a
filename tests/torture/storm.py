"""Load on a cluster while faults happen. When the block ends all that was published must have come out exactly once.

Meanwhile a watcher looks that no checkpoint and no epoch ever goes back.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

import psycopg

from .cluster import Cluster, wait_for
from .figures import Figures
from .oracle import MIXED_JS, Generator, Load, check_exact

TICKS_PER_S = 50
FUNCTION = "totals"
_POSITIONS = f"select partition, epoch, next_offset from jeet.checkpoints where function = '{FUNCTION}'"


class Storm:
    """One function, its load, and what tests do to the processes.

    `url` is the database, whatever way to it the workers are told.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        *,
        workers: int = 2,
        partitions: int = 8,
        rate: int = 500,
        keys: int = 200,
        source: str = MIXED_JS,
        environment: dict[str, str] | None = None,
        drain_s: float = 120.0,
    ) -> None:
        self.url = url
        self.partitions = partitions
        self.chance = random.Random(seed)
        self.generator = Generator(seed, keys, mixed=True)
        self.cluster = Cluster(url, workers, environment)
        self._source = source
        self._drain_s = drain_s
        self._load = Load(url, self.generator, per_tick=max(1, rate // TICKS_PER_S))
        self._watch = Watch(url)
        self._began = 0.0
        self.loaded_s = 0.0

    def __enter__(self) -> Storm:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.cluster)
            self.cluster.deploy(self._source, FUNCTION, f"--partitions={self.partitions}")
            if self.cluster.wanted_workers:
                self.cluster.wait_balanced(FUNCTION, min(self.cluster.wanted_workers, self.partitions))
            stack.enter_context(self._watch)
            stack.enter_context(self._load)
            self._began = time.monotonic()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as ending:
            ending.push(self._stack.__exit__)
            if error is not None:
                raise error
            self._load.stop()
            self.loaded_s = time.monotonic() - self._began
            self.reconnect()
            self.cluster.drain(FUNCTION, self._drain_s)
            check_exact(self.cluster.db, self.generator)

    @property
    def repeats(self) -> int:
        """How often the publisher had to ask again because a call's outcome was unknown."""
        return self._load.repeats

    def tell(self, figures: Figures, kind: str, faults: int, **more: object) -> None:
        figures.add(kind, faults, events=self.generator.made, loaded_s=self.loaded_s, **more)  # type: ignore[arg-type]

    # ---- looking ----

    def reconnect(self) -> None:
        """A new connection for looking: the old one may have ended with the server."""
        self.cluster.db.close()
        self.cluster.db = wait_for(self._connect, "Postgres answers", 60)

    def _connect(self) -> psycopg.Connection | None:
        try:
            return psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            return None

    def positions(self) -> dict[int, int]:
        """partition → next offset."""
        self._load.check()
        return {partition: offset for partition, _, offset in self.cluster.sql(_POSITIONS)}

    def until_all_move(self, partitions: Iterable[int] | None = None, within_s: float = 30.0) -> float:
        """Wait until each of the partitions has committed again; the seconds that took."""
        began, before = time.monotonic(), self.positions()
        wanted = set(before if partitions is None else partitions)
        wait_for(
            lambda: all(
                offset > before[partition] for partition, offset in self.positions().items() if partition in wanted
            ),
            f"commits of partitions {sorted(wanted)}",
            within_s,
        )
        return time.monotonic() - began

    def pick(self) -> subprocess.Popen[bytes]:
        """A worker that holds partitions."""
        return self.chance.choice([w for w in self.cluster.workers() if self.cluster.leases_of(w.pid)])

    def pause(self, least_s: float, most_s: float) -> None:
        """Let the load run for a while of random length: when a fault strikes must not be the same each time."""
        time.sleep(self.chance.uniform(least_s, most_s))

    # ---- doing ----

    def kill(self, worker: subprocess.Popen[bytes]) -> float:
        """kill -9; the seconds until all its partitions have committed again elsewhere."""
        partitions = self.cluster.leases_of(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        return self.until_all_move(partitions)

    def until_balanced(self) -> None:
        """Until all running workers share the partitions."""
        self.cluster.wait_balanced(FUNCTION, min(len(self.cluster.workers()), self.partitions))


class Watch:
    """Sees that checkpoints and epochs only go forward, and how long at most nothing at all was committed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._broken: list[str] = []
        self.longest_stall_s = 0.0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._broken == [], self._broken

    def _run(self) -> None:
        seen: dict[int, tuple[int, int]] = {}
        moved_at = time.monotonic()
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as db:
                    while not self._stop.wait(0.05):
                        for partition, epoch, offset in db.execute(_POSITIONS.encode()).fetchall():
                            before = seen.get(partition, (0, 0))
                            if epoch < before[0] or offset < before[1]:
                                self._broken.append(f"partition {partition} went from {before} to {(epoch, offset)}")
                            if offset > before[1]:
                                self.longest_stall_s = max(self.longest_stall_s, time.monotonic() - moved_at)
                                moved_at = time.monotonic()
                            seen[partition] = (epoch, offset)
            except psycopg.OperationalError:
                self._stop.wait(0.1)


def measure(act: Callable[[], object]) -> float:
    """The seconds that something takes."""
    began = time.monotonic()
    act()
    return time.monotonic() - began
