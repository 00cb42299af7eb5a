"""publish, tail, streams and create_stream as they are typed: what they print, and what they say when it goes wrong."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from logtools import MakeStream

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "JEET_DATABASE_URL": database_url, "HOME": str(tmp_path)}


@pytest.fixture
def jeet(environment: dict[str, str]) -> Run:
    """Run a command: `jeet("publish", "orders", "-", stdin=b"…", code=1)`."""

    def run(*args: str, stdin: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jeet.cli", *args]
        done = subprocess.run(command, env=environment, input=stdin, capture_output=True, timeout=120, check=False)
        found = subprocess.CompletedProcess(args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert found.returncode == code, found
        return found

    return run


def test_publish_says_how_many_and_tail_prints_them_as_they_were(
    jeet: Run, tmp_path: Path, make_stream: MakeStream
) -> None:
    make_stream("1e5", 4, key="k")
    texts = ['{"k":"a", "n":1.10}', '{"k":"b","n":"\\u00e9 é 🌍"}', '{"k":3,"big":"9007199254740993"}']
    path = tmp_path / "events.ndjson"
    path.write_text("\n".join(texts))
    done = jeet("publish", "1e5", str(path))
    assert (done.stdout, done.stderr) == ("published 3 events to 1e5\n", "")
    assert sorted(jeet("tail", "1e5").stdout.splitlines()) == sorted(texts)
    rows = [json.loads(line) for line in jeet("tail", "1e5", "--json", "--limit=2").stdout.splitlines()]
    assert len(rows) == 2
    assert all(set(row) == {"stream", "partition", "offset", "key", "timestamp", "headers", "value"} for row in rows)
    row = rows[0]
    one = ("tail", "1e5", f"--partition={row['partition']}", f"--start={row['offset']}", "--limit=1", "--json")
    assert json.loads(jeet(*one).stdout) == row
    assert "no partition 99" in jeet("tail", "1e5", "--partition=99", code=1).stderr
    assert jeet("tail", "1e5", "--start=latest").stdout == ""
    assert jeet("tail", "1e5", "--start=99").stdout == ""
    piped = jeet("publish", "1e5", stdin=jeet("tail", "1e5").stdout.encode())
    assert piped.stdout == "published 3 events to 1e5\n"
    assert "1e5" in jeet("streams").stdout


def test_publish_reports_each_bad_line_and_exits_with_1(jeet: Run, make_stream: MakeStream) -> None:
    make_stream("orders", 2, key="k")
    lines = [b'{"k":1}', b'{"k":', b"", b"{}", b'{"k":2}\r', b'{"k":"\xc3"}']
    done = jeet("publish", "orders", "-", stdin=b"\n".join(lines), code=1)
    assert done.stdout == "published 2 events to orders\n"
    told = done.stderr.splitlines()
    assert [line.split(":")[0] for line in told[:-1]] == ["line 2", "line 4", "line 6"]
    assert "not JSON" in told[0]
    assert '"k"' in told[1]
    assert "UTF-8" in told[2]
    assert told[-1] == "jeet: 3 lines were refused; all others are in orders"
    again = jeet("publish", "orders", "-", "--json", stdin=b"{}\n" + b'{"k":1}\n', code=1)
    assert json.loads(again.stdout) == {"stream": "orders", "published": 1, "repeated": 0, "refused": 1, "lines": 2}
    many = jeet("publish", "orders", "-", stdin=b"{}\n" * 5000, code=1).stderr.splitlines()
    assert len(many) == 102
    assert many[-1] == "jeet: 5,000 lines were refused; nothing is in orders of this input"
    assert "5,000 lines" in many[-1]


def test_publish_twice_with_an_id_field_says_what_was_there(jeet: Run, make_stream: MakeStream) -> None:
    make_stream("orders", 2, key="k")
    data = b'{"k":1,"id":"a"}\n{"k":1,"id":"b"}\n'
    jeet("publish", "orders", "-", "--id_field=id", stdin=data)
    done = jeet("publish", "orders", "-", "--id_field=id", stdin=data + b'{"k":1,"id":"c"}')
    assert done.stdout == "published 1 event to orders; 2 events had been published before\n"
    again = jeet("publish", "orders", "-", "--id_field=id", "--json", stdin=data)
    assert json.loads(again.stdout) == {"stream": "orders", "published": 0, "repeated": 2, "refused": 0, "lines": 2}
    assert len(jeet("tail", "orders").stdout.splitlines()) == 3


def test_what_cannot_be_published_is_one_line_that_says_what_to_do(
    jeet: Run, tmp_path: Path, db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 2, key="k")
    for args, stdin, said in [
        (["nope", "-"], b"{}", "jeet create_stream"),
        (["orders", str(tmp_path / "none.ndjson")], b"", "cannot read"),
        (["orders", "-", "--key=other"], b"{}", 'has the key "k"'),
        (["orders", "-", "--id_field=a..b"], b"{}", "not a path"),
        (["order", "-"], b"{}", "did you mean orders?"),
        (["orders", "-"], '{"k":1}\n'.encode("utf-16"), "iconv"),
        (["orders", "-"], gzip.compress(b'{"k":1}\n'), "gzip -dc"),
        (["orders", str(tmp_path)], b"", f"cannot read {tmp_path}: Is a directory"),
    ]:
        done = jeet("publish", *args, stdin=stdin, code=1)
        assert done.stdout == ""
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    db.execute("update jeet_internal.stream set max_lag = 3, over_lag = true")
    full = jeet("publish", "orders", "-", "--no_wait", stdin=b'{"k":1}', code=1)
    assert "more than 3 events behind" in full.stderr
    assert "no stream" in jeet("tail", "nope", code=1).stderr
    assert "did you mean orders?" in jeet("tail", "order", code=1).stderr
    assert "--start" in jeet("tail", "orders", "--start=soon", code=1).stderr


def test_create_stream_makes_what_is_asked_or_says_what_differs(jeet: Run, db: psycopg.Connection) -> None:
    jeet("create_stream", "None", "--partitions=3", "--key=user.id", "--retention=12h", "--max_lag=1000")
    row = db.execute("select name, partitions, key, retention::text, max_lag from jeet.streams").fetchone()
    assert row == ("None", 3, "user.id", "12:00:00", 1000)
    again = jeet("create_stream", "None", "--partitions=3", "--key=user.id", "--retention=12h", "--max_lag=1000")
    assert "exists" in again.stdout
    assert again.stderr == ""
    assert "it has no key" in jeet("create_stream", "loose", "--partitions=1").stderr
    assert "other settings" in jeet("create_stream", "None", code=1).stderr
    assert "not allowed" in jeet("create_stream", "a b", code=1).stderr
    assert "duration" in jeet("create_stream", "x", "--retention=soon", code=1).stderr
    assert "4096" in jeet("create_stream", "x", "--partitions=5000", code=1).stderr
    names = [row["name"] for row in json.loads(jeet("streams", "--json").stdout)]
    assert names == ["None", "loose"]


def test_following_prints_what_comes_until_its_limit_or_ctrl_c(
    environment: dict[str, str], db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 4)
    db.execute("select jeet.publish('orders', '{\"n\":0}')")
    command = [sys.executable, "-m", "jeet.cli", "tail", "orders", "--follow"]
    limited = subprocess.Popen([*command, "--limit=4"], env=environment, stdout=subprocess.PIPE, text=True)
    endless = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores Ctrl-C, and so would what that starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert limited.stdout is not None
    assert endless.stdout is not None
    assert limited.stdout.readline() == endless.stdout.readline() == '{"n":0}\n'
    for number in range(1, 4):
        db.execute("select jeet.publish('orders', %s::text)", (json.dumps({"n": number}),))
        assert limited.stdout.readline() == endless.stdout.readline() == f'{{"n": {number}}}\n'
    assert limited.wait(30) == 0
    endless.send_signal(signal.SIGINT)
    assert endless.wait(30) == 130


@pytest.mark.parametrize("words", ["status", "streams", "tail orders", "publish orders", "workers"])
@pytest.mark.parametrize("place", ["/nowhere?host={socket}", "/jeet?host=127.0.0.1&port=9"])
def test_a_database_that_is_not_there_is_told_with_what_to_check(
    words: str, place: str, environment: dict[str, str], database_url: str
) -> None:
    socket = psycopg.conninfo.conninfo_to_dict(database_url)["host"]
    environment["JEET_DATABASE_URL"] = "postgresql://postgres@" + place.format(socket=socket)
    command = [sys.executable, "-m", "jeet.cli", *words.split()]
    done = subprocess.run(command, env=environment, input=b"{}", capture_output=True, check=False)
    told = done.stderr.decode()
    assert (done.returncode, told.count("\n")) == (1, 1)
    assert "check JEET_DATABASE_URL" in told
    assert "Errno" not in told
    assert f"jeet {words.split()[0]}" not in told


def test_ctrl_c_while_waiting_for_input_ends_at_once_and_keeps_what_is_in(
    environment: dict[str, str], db: psycopg.Connection, make_stream: MakeStream, tmp_path: Path
) -> None:
    make_stream("orders", 1)
    os.mkfifo(pipe := tmp_path / "pipe")
    for number, file in enumerate(["-", str(pipe)], 1):
        publisher = subprocess.Popen(
            [sys.executable, "-m", "jeet.cli", "publish", "orders", file],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert publisher.stdin is not None
        with publisher.stdin if file == "-" else pipe.open("wb") as lines:
            lines.write(b'{"n":1}\n')
            lines.flush()
            deadline = time.monotonic() + 60
            while db.execute("select head from jeet.streams").fetchone() != (number,):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            publisher.send_signal(signal.SIGINT)
            # The input is still open: only the signal can end it.
            assert publisher.wait(30) == 130
        assert publisher.stderr is not None
        told = publisher.stderr.read().decode()
        assert told == "stopped: lines up to 1 are in; those just being sent may be\n"


@pytest.mark.parametrize("words", ["streams", "streams --json", "tail orders", "--help"])
def test_a_full_disk_below_standard_output_is_one_line(
    words: str, environment: dict[str, str], db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 1)
    db.execute("select jeet.publish('orders', '{}')")
    command = f"{sys.executable} -m jeet.cli {words}"
    full = subprocess.run(f"{command} >/dev/full", shell=True, env=environment, capture_output=True, check=False)
    said = "jeet: cannot write the results to standard output: No space left on device\n"
    assert (full.returncode, full.stderr.decode()) == (1, said)
    closed = subprocess.run(f"{command} >&-", shell=True, env=environment, capture_output=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_psql_takes_its_own_flags(jeet: Run) -> None:
    assert jeet("psql", "-At", "-c", "select 1 + 1").stdout == "2\n"
    assert jeet("psql", "--", "-At", "-c", "select 1 + 2").stdout == "3\n"


def test_a_slow_pipe_is_published_as_it_comes(
    environment: dict[str, str], db: psycopg.Connection, make_stream: MakeStream
) -> None:
    make_stream("orders", 1)
    command = [sys.executable, "-m", "jeet.cli", "publish", "orders"]
    publisher = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert publisher.stdin is not None
    deadline = time.monotonic() + 60
    for number in range(1, 4):
        publisher.stdin.write(b"%d\n" % number)
        publisher.stdin.flush()
        while db.execute("select head from jeet.streams").fetchone() != (number,):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    publisher.stdin.close()
    assert publisher.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-c default_transaction_read_only=on", "the database takes no writes: cannot execute"),
        ("-c statement_timeout=1", "the database cancelled a statement: canceling statement due to statement timeout"),
    ],
)
def test_what_the_database_refuses_is_told_in_a_sentence_with_a_remedy(
    environment: dict[str, str], jeet: Run, options: str, said: str
) -> None:
    environment["PGOPTIONS"] = options
    told = jeet("create_stream", "orders", "--partitions=4000", code=1).stderr
    assert told.startswith(f"jeet: {said}")
    assert told.count("\n") == 1
    assert "CONTEXT" not in told
    assert "; run it again" in told or "; let JEET_DATABASE_URL name the primary" in told


def test_a_file_without_end_is_refused_by_its_limit(jeet: Run) -> None:
    told = jeet("deploy", "/dev/zero", "--name=f", code=1).stderr
    assert told == "jeet: /dev/zero has more than 16777216 bytes (file_bytes); that is no function\n"
