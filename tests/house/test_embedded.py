"""The embedded server: found by a query, safe against crashes of whoever started it, never open to other users."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from jeet import embedded, embedded_install
from jeet.db.migrate import migrate
from jeet.errors import UsageError
from jeet.settings import ROOT_HOME

HOLD = """
import signal, sys
from pathlib import Path
from jeet import embedded
server = embedded.start(Path(sys.argv[1]))
print(server.process.pid, flush=True)
signal.pause()
"""


def new_home() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="jeet-home-"))
    folder.chmod(0o755)
    return folder


@pytest.fixture
def empty_home() -> Iterator[Path]:
    """A folder of our own with a short path, which the server's user can reach."""
    folder = new_home()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def used_home() -> Iterator[Path]:
    folder = new_home()
    with embedded.start(folder):
        pass
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(empty_home: Path, used_home: Path) -> Path:
    """A home whose server ran before: a copy, which takes less time than initdb."""
    subprocess.run(["cp", "-a", f"{used_home}/.", str(empty_home)], check=True)
    return empty_home


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.01)


def hold(home: Path) -> tuple[subprocess.Popen[str], int]:
    """Another process that started the server of this home, and the server's pid."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_server_is_found_while_it_runs_and_keeps_its_data(empty_home: Path) -> None:
    assert embedded.find(empty_home) is None
    with embedded.start(empty_home) as server:
        assert embedded.find(empty_home) == server.url
        with psycopg.connect(server.url) as db:
            db.execute("create table kept (x int)")
    assert embedded.find(empty_home) is None
    with embedded.start(empty_home) as server, psycopg.connect(server.url) as db:
        assert db.execute("table kept").fetchall() == []


def test_the_server_ends_with_the_process_that_started_it_even_by_kill_9(home: Path) -> None:
    holder, server_pid = hold(home)
    with psycopg.connect(embedded.place(home).url(), autocommit=True) as db:
        db.execute("create table kept as select 42 as x")
    holder.kill()
    holder.wait()
    wait_until_gone(server_pid)
    with embedded.start(home) as server, psycopg.connect(server.url) as db:
        assert db.execute("table kept").fetchone() == (42,)


def test_a_server_killed_by_kill_9_recovers_at_the_next_start(home: Path) -> None:
    server = embedded.start(home)
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("create table kept as select 42 as x")
        server.process.kill()
    server.process.wait()
    with embedded.start(home) as again, psycopg.connect(again.url) as db:
        assert db.execute("table kept").fetchone() == (42,)


def test_a_pid_file_that_names_some_other_process_stops_nothing(home: Path) -> None:
    with embedded.start(home):
        pass
    pid_file = embedded.place(home).data / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{embedded.place(home).data}\n1\n5432\n\n\n  0 0\nready\n")
    assert embedded.find(home) is None
    with embedded.start(home) as server:
        assert embedded.find(home) == server.url


def test_an_initdb_that_was_cut_off_is_done_again(empty_home: Path) -> None:
    unfinished = embedded.place(empty_home).folder / "postgres.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with embedded.start(empty_home) as server:
        assert embedded.find(empty_home) == server.url
    assert not unfinished.exists()


def test_a_data_directory_of_another_version_is_refused_and_left_alone(home: Path) -> None:
    with embedded.start(home):
        pass
    version = embedded.place(home).data / "PG_VERSION"
    version.write_text("15\n")
    with pytest.raises(UsageError, match="made by Postgres 15"):
        embedded.start(home)
    assert version.read_text() == "15\n"


def test_a_second_start_of_the_same_home_is_refused(home: Path) -> None:
    with embedded.start(home) as server:
        with pytest.raises(UsageError, match="running already"):
            embedded.start(home)
        assert embedded.find(home) == server.url


def test_a_home_whose_path_is_too_long_for_a_socket_works(empty_home: Path) -> None:
    deep = empty_home / ("x" * 90) / ("y" * 90)
    with embedded.start(deep) as server:
        assert embedded.find(deep) == server.url
    assert not embedded.place(deep).socket_folder.exists()


def test_only_the_owner_and_root_may_connect_and_nothing_is_opened_to_the_world(home: Path) -> None:
    home.chmod(0o755)
    before = [(part, part.stat().st_mode) for part in (home, *home.parents)]
    with embedded.start(home) as server:
        where = embedded.place(home)
        assert where.socket_folder.stat().st_mode & 0o077 == 0
        assert where.data.stat().st_mode & 0o077 == 0
        with psycopg.connect(server.url) as db:
            assert db.execute("show listen_addresses").fetchone() == ("",)
            assert int((db.execute("show max_locks_per_transaction").fetchone() or ("0",))[0]) >= 512
            assert int((db.execute("show max_connections").fetchone() or ("0",))[0]) >= 200
    assert [(part, part.stat().st_mode) for part in (home, *home.parents)] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_as_root_a_home_that_others_cannot_reach_stays_closed(empty_home: Path) -> None:
    empty_home.chmod(0o700)
    inner = empty_home / "jeet"
    with embedded.start(inner) as server:
        assert Path(f"/proc/{server.process.pid}").stat().st_uid != 0
        assert ROOT_HOME in server.place.folder.parents
        assert embedded.find(inner) == server.url
    assert empty_home.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(server.place.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_the_servers_user_is_made_where_path_lacks_the_administrators_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_install, "_SYSTEM_USER", "jeet_test_user")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as cron has it
    try:
        embedded_install.ensure_system_user()
        assert embedded_install.user_exists()
    finally:
        subprocess.run(["/usr/sbin/userdel", "jeet_test_user"], check=False)


def test_databases_of_a_new_cluster_may_be_migrated_at_once(empty_home: Path) -> None:
    with embedded.start(empty_home) as server:
        urls = [server.place.url(f"d{number}") for number in range(4)]
        with psycopg.connect(server.url, autocommit=True) as db:
            for number in range(4):
                db.execute(f"create database d{number}".encode())
        errors: list[BaseException] = []

        def run(url: str) -> None:
            try:
                migrate(url)
            except BaseException as error:  # noqa: BLE001 - told below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(url,)) for url in urls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


def test_roles_that_may_not_be_made_are_warned_of_and_made_up_for_later(empty_home: Path) -> None:
    with embedded.start(empty_home) as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("create role owner login")
            admin.execute("create database d owner owner")
        as_owner = server.place.url("d").replace("postgres@", "owner@")
        warnings = migrate(as_owner).warnings
        assert [role for role in ("jeet_reader", "jeet_producer", "jeet_worker") if role in " ".join(warnings)] == [
            "jeet_reader",
            "jeet_producer",
            "jeet_worker",
        ]
        assert all("run jeet migrate again" in warning for warning in warnings)
        with psycopg.connect(server.place.url("d"), autocommit=True) as admin:
            for role in ("jeet_reader", "jeet_producer", "jeet_worker"):
                admin.execute(f"create role {role}".encode())
            assert migrate(as_owner).warnings == ()
            admin.execute("set role jeet_reader")
            assert admin.execute("table jeet.functions").fetchall() == []


def test_a_crash_in_the_middle_of_a_start_leaves_a_home_that_starts(empty_home: Path) -> None:
    for wait_s in (0.05, 0.2, 0.4):
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(empty_home)], stdout=subprocess.DEVNULL)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
    with embedded.start(empty_home) as server:
        assert embedded.find(empty_home) == server.url
