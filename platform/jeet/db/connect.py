"""Opens asyncpg connections from any address that libpq understands, each named for what it does and set up for it.

Promise: no session of ours is ended by an idle timeout of the server's, and none waits for a dead peer for long. The
name in pg_stat_activity says which process and which part of it holds the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import asyncpg
import psycopg
from psycopg.conninfo import conninfo_to_dict

from jeet.errors import UsageError

if TYPE_CHECKING:
    from asyncpg import Connection

# What libpq knows and asyncpg would take for a setting of the server.
_LIBPQ_ONLY = {
    "application_name", "channel_binding", "connect_timeout", "fallback_application_name", "gssdelegation",
    "gssencmode",
    "hostaddr", "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts",
    "max_protocol_version", "min_protocol_version", "replication", "require_auth", "requirepeer", "requiressl",
    "service", "servicefile", "sslcompression", "sslsni", "tcp_user_timeout",
}  # fmt: skip

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""all that asyncpg raises when the database or the way to it fails (the third when a server ends in mid-answer)"""

_NO_ADDRESS = (
    "JEET_DATABASE_URL is no address of a database; nothing was done. Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    " with each of %, @, /, :, ?, # and space in the password as %25, %40, %2F, %3A, %3F, %23 and %20,"
    " or host=HOST port=PORT user=USER password='PASSWORD' dbname=DATABASE"
)

SESSION = {
    "idle_session_timeout": "0",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "timezone": "UTC",
    "jit": "off",
}
"""settings of every session of a worker, lease connection included"""


def checked_address(database_url: str) -> str:
    """The address as it is; UsageError if it cannot be understood.

    In words of our own: libpq quotes what it stumbles over, and where a password is not encoded that is the password.
    """
    try:
        parts = conninfo_to_dict(database_url)
    except psycopg.ProgrammingError:
        raise UsageError(_NO_ADDRESS) from None
    hosts = str(parts.get("host") or "").split(",")
    ports = str(parts.get("port") or "").split(",")
    if any("@" in host[1:] and not host.startswith("/") for host in hosts):
        raise UsageError(_NO_ADDRESS)
    if not all(port == "" or (port.isdecimal() and 0 < int(port) < 65536) for port in ports):
        raise UsageError(_NO_ADDRESS)
    return database_url


def asyncpg_address(database_url: str) -> str:
    """The same address, in the form that asyncpg takes."""
    parts = {name: str(value) for name, value in conninfo_to_dict(database_url).items() if name not in _LIBPQ_ONLY}
    if "dbname" in parts:
        parts["database"] = parts.pop("dbname")
    # No slash: an empty path would be taken for the name of the database.
    return f"postgresql://?{urlencode(parts)}"


async def connect(
    database_url: str,
    application: str,
    settings: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 10.0,
    statement_s: float | None = None,
) -> Connection:
    """A new connection of its own, never shared through a pool; raises what asyncpg raises.

    `statement_s`: after so long without an answer a statement raises TimeoutError, as the way to the server may be cut.
    """
    return await asyncpg.connect(
        asyncpg_address(database_url),
        timeout=timeout_s,
        command_timeout=statement_s,
        server_settings={"application_name": application, **SESSION, **(settings or {})},
        max_cached_statement_lifetime=0,
        statement_cache_size=256,
    )


def hang_up(db: psycopg.Connection) -> None:
    """Cut a connection that another thread may be waiting on, even for an answer that will never come."""
    if not db.closed:
        with contextlib.suppress(OSError, psycopg.Error):
            duplicate = socket.socket(fileno=os.dup(db.fileno()))
            with contextlib.closing(duplicate):
                duplicate.shutdown(socket.SHUT_RDWR)
