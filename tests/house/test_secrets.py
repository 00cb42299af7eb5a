"""A password of a database address is never told: not in logs, errors or JSON, not by `ps`, whatever fails."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

JEET = [sys.executable, "-m", "jeet.cli"]
MARK = "Xyzzy"
"""part of every password here, on both sides of what makes an address hard to read"""
PASSWORD = f"{MARK}9{MARK}"


class Server:
    """Listens and disappoints: `garbage` answers what no Postgres says, `wrong password` asks and refuses."""

    def __init__(self, how: str) -> None:
        self._how = how
        self.asked = 0
        self.twice = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with client:
                client.settimeout(10)
                with suppress(OSError):
                    self._disappoint(client)
            self.asked += 1
            if self.asked > 1:
                self.twice.set()

    def _disappoint(self, client: socket.socket) -> None:
        if self._how == "garbage":
            client.recv(1024)
            client.sendall(b"HTTP/1.0 400 no\r\n\r\n")
            return
        while True:
            (length,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
            code = client.recv(length - 4, socket.MSG_WAITALL)[:4]
            if code not in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
                break
            client.sendall(b"N")  # neither TLS nor GSS
        client.sendall(b"R" + struct.pack("!II", 8, 3))  # a password in clear, please
        client.recv(1024)
        text = b'SFATAL\0C28P01\0Mpassword authentication failed for user "u"\0\0'
        client.sendall(b"E" + struct.pack("!I", 4 + len(text)) + text)


@contextmanager
def disappointing(how: str) -> Iterator[Server]:
    server = Server(how)
    if how == "nobody":
        server.socket.close()
    try:
        yield server
    finally:
        server.socket.close()


FORMS = {
    "url": f"postgresql://u:{PASSWORD}@127.0.0.1:PORT/d",
    "url parameter": f"postgresql://127.0.0.1:PORT/d?user=u&password={PASSWORD}",
    "keywords": f"host=127.0.0.1 port=PORT user=u dbname=d password={PASSWORD}",
    "quoted": f"host=127.0.0.1 port=PORT user=u dbname=d password = '{MARK} \\' {MARK}'",
    "encoded": f"postgres://u:{MARK}%40%2F{MARK}@127.0.0.1:PORT/d",
}
MALFORMED = {
    "@": f"postgresql://u:{MARK}@{MARK}@127.0.0.1:PORT/d",
    "/": f"postgresql://u:{MARK}/{MARK}@127.0.0.1:PORT/d",
    "?": f"postgresql://u:{MARK}?{MARK}@127.0.0.1:PORT/d",
    "#": f"postgresql://u:{MARK}#{MARK}@127.0.0.1:PORT/d",
    "%": f"postgresql://u:{MARK}%zz{MARK}@127.0.0.1:PORT/d",
    "space": f"postgresql://u:{MARK} {MARK}@127.0.0.1:PORT/d",
    "port": f"postgresql://u:{PASSWORD}@127.0.0.1:{MARK}/d",
    "unterminated": f"host=127.0.0.1 port=PORT password='{PASSWORD}",
    "unknown option": f"host=127.0.0.1 port=PORT password={PASSWORD} {MARK}=1",
    "no option": PASSWORD,
    "line break": f"postgresql://u:{MARK}\n{MARK}@127.0.0.1:PORT/d",
}


def environment(tmp_path: Path, url: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "JEET_"))}
    return kept | {"JEET_DATABASE_URL": url, "JEET_HOME": str(tmp_path / "home"), "JEET_LOG_LEVEL": "debug"} | more


def run(tmp_path: Path, url: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*JEET, *words], env=environment(tmp_path, url, **more), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    return done


@pytest.mark.parametrize("how", ["nobody", "garbage", "wrong password"])
def test_no_command_tells_a_password_when_the_server_disappoints(tmp_path: Path, how: str) -> None:
    with disappointing(how) as server:
        for number, form in enumerate(FORMS.values()):
            command = [["status", "--json"], ["migrate"], ["streams"]][number % 3]
            done = run(tmp_path, form.replace("PORT", str(server.port)), *command)
            assert MARK not in done.stdout + done.stderr
            assert done.stderr.strip() != ""
        done = run(tmp_path, f"host=127.0.0.1 port={server.port} user=u", "status", PGPASSWORD=PASSWORD)
        assert MARK not in done.stdout + done.stderr


@pytest.mark.parametrize("form", MALFORMED.values(), ids=MALFORMED)
def test_an_address_that_cannot_be_understood_is_not_quoted(form: str) -> None:
    from jeet.cli.group import Group
    from jeet.cli.main import _unexpected
    from jeet.cli.output import Output
    from jeet.db.connect import asyncpg_address
    from jeet.errors import JeetError
    from jeet.settings import Settings

    with disappointing("nobody") as server:
        group = Group(Output())
        group.settings = Settings(database_url=form.replace("PORT", str(server.port)))
        try:
            asyncpg_address(group.url)
            _ = group.db
        except JeetError as error:
            told = "".join(traceback.format_exception(error))
        except Exception as error:  # noqa: BLE001 - as the command line tells what it did not expect
            told = _unexpected(error)
        assert MARK not in told


@pytest.mark.parametrize("process", ["worker", "coordinator"])
@pytest.mark.parametrize("how", ["garbage", "wrong password"])
def test_a_process_that_tries_again_and_again_never_tells_its_password(tmp_path: Path, process: str, how: str) -> None:
    log = tmp_path / "log"
    with disappointing(how) as server, log.open("wb") as out:
        url = FORMS["encoded" if how == "garbage" else "quoted"].replace("PORT", str(server.port))
        running = subprocess.Popen(
            [*JEET, process], env=environment(tmp_path, url), stdout=out, stderr=subprocess.STDOUT
        )
        try:
            assert server.twice.wait(120)
            shown = Path(f"/proc/{running.pid}/cmdline").read_bytes() + Path(f"/proc/{running.pid}/comm").read_bytes()
            mode = os.stat(f"/proc/{running.pid}/environ").st_mode
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(60)
    assert MARK.encode() not in shown
    assert mode & 0o077 == 0, "the environment, which holds the address, is the owner's to read"
    assert MARK not in log.read_text()
    assert log.read_text() != ""
