"""What `jeet up` runs: the embedded Postgres (or the given database), one coordinator, some workers.

Promise: one `jeet up` a home; when it says that it is up, the schema is in place and the processes are started.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from jeet import embedded
from jeet.db.connect import checked_address
from jeet.db.migrate import migrate
from jeet.errors import UsageError
from jeet.settings import Settings
from jeet.supervisor import ChildSpec, LinePrinter, Supervisor, jeet_process
from jeet.telemetry import configure, logger

log = logger(__name__)

MOST_WORKERS = 64


def run(settings: Settings, workers: int, *, as_json: bool = False) -> None:
    """Start everything, keep it running, and return after SIGTERM or Ctrl-C stopped it."""
    if not 0 <= workers <= MOST_WORKERS:
        raise UsageError(f"--workers must be 0 to {MOST_WORKERS}, not {workers}")
    with _only_one(settings):
        names = ["postgres", "coordinator", *(f"worker-{number}" for number in range(1, workers + 1))]
        printer = LinePrinter(sys.stdout, as_json=as_json, names=["jeet", *names])
        form = "json" if as_json else settings.log_format
        configure(log_format=form, level=settings.log_level, stream=_Lines(printer))
        try:
            asyncio.run(_supervise(settings, workers, printer, as_json))
            log.info("down")
        finally:
            printer.close()


async def _supervise(settings: Settings, workers: int, printer: LinePrinter, as_json: bool) -> None:
    async with Supervisor(printer) as supervisor:
        url = settings.database_url and checked_address(settings.database_url)
        if not url:
            supervisor.add(ChildSpec("postgres", _start_postgres(settings.home), signal.SIGINT, 60.0, rank=2))
            url = embedded.place(settings.home).url()
        migrated = await asyncio.to_thread(migrate, url)
        for warning in migrated.warnings:
            log.warning(warning)
        environment = os.environ | {"JEET_DATABASE_URL": url, "JEET_HOME": str(settings.home)}
        if as_json:
            environment["JEET_LOG_FORMAT"] = "json"
        start = jeet_process(["coordinator"], environment | _metrics(settings, 0))
        supervisor.add(ChildSpec("coordinator", start, rank=1))
        drain_s = settings.drain_s + 5.0
        for number in range(1, workers + 1):
            start = jeet_process(["worker"], environment | _metrics(settings, number))
            supervisor.add(ChildSpec(f"worker-{number}", start, stop_wait_s=drain_s, rank=0))
        log.info("up", database=url, workers=workers, migrations=len(migrated.applied), pid=os.getpid())
        if not as_json:
            printer.line("jeet", "try in another terminal: jeet status    (Ctrl-C here stops everything)")
        await supervisor.until_told()


def _metrics(settings: Settings, number: int) -> dict[str, str]:
    """Where the process of this number answers Prometheus: each on a port of its own."""
    port = settings.metrics_port
    return {} if port is None else {"JEET_METRICS_PORT": str(port + number if port else 0)}


def _start_postgres(home: Path) -> Callable[[int], subprocess.Popen[bytes]]:
    """Starts the server and waits until it answers: what comes after may count on it."""
    return lambda output: embedded.start(home, output=output).process


class _Lines:
    """The supervisor's own log lines, among those of its children."""

    def __init__(self, printer: LinePrinter) -> None:
        self._printer = printer

    def write(self, text: str) -> int:
        if text.strip():
            self._printer.line("jeet", text.rstrip("\n"))
        return len(text)

    def flush(self) -> None:
        """Lines leave as they come."""


@contextlib.contextmanager
def _only_one(settings: Settings) -> Iterator[None]:
    """Hold the home's lock; it ends with this process, however that ends."""
    folder = settings.home if settings.database_url else embedded.prepare(settings.home).folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "up.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise UsageError(f"jeet is already up for {settings.home} (pid {pid}); try: jeet status") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
