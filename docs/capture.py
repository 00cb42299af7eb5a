"""Puts into docs/diagnosis.md what `jeet top` and `jeet doctor` really print: `make capture`; it takes two minutes.

It starts a Jeet of its own with a Postgres of its own, gives it work, plants troubles, and takes what is printed.
tests/house/test_docs.py sees to it that what was taken still looks as it would now.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from jeet import embedded

PAGE = Path(__file__).resolve().parent / "diagnosis.md"
TOTALS = """export const config = { source: 'orders', sink: 'totals', key: 'userId' };
stream.map(order => {
  state.totals[order.userId] = (state.totals[order.userId] || 0) + order.amount;
  return { userId: order.userId, total: state.totals[order.userId] };
});
"""
STRICT = """export const config = { source: 'payments', key: 'userId', state: { seen: { ttl: '1d' } } };
stream.map(payment => {
  if (payment.amount < 0) throw new RangeError(`a payment of ${payment.amount}`);
  state.seen[payment.userId] = payment.amount;
});
"""
BUSY_S = 100.0


def jeet(home: Path, *words: str, stdin: str | None = None) -> str:
    environment = {**os.environ, "JEET_HOME": str(home), "COLUMNS": "80"}
    command = [sys.executable, "-m", "jeet.cli", *words]
    return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True).stdout


def orders() -> Iterator[str]:
    """Lines of half a second's work, the most of it of one user."""
    number = 0
    while True:
        lines = [
            json.dumps({"userId": f"u{n}" if n % 10 == 0 else "shop", "amount": 1}) for n in range(number, number + 400)
        ]
        number += 400
        yield "".join(f"{line}\n" for line in lines)


def capture(home: Path) -> dict[str, str]:
    """Name of the section → what was printed."""
    environment = {key: value for key, value in os.environ.items() if key != "JEET_DATABASE_URL"}
    up = subprocess.Popen(
        [sys.executable, "-m", "jeet.cli", "up", "--workers=2"],
        env={**environment, "JEET_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (url := embedded.find(home)) or "led by" not in jeet(home, "status"):
            time.sleep(0.5)
        for name, source in (("totals", TOTALS), ("payments", STRICT)):
            path = home / f"{name}.js"
            path.write_text(source)
            jeet(home, "deploy", str(path))
        jeet(home, "publish", "payments", "-", stdin='{"userId": "u1", "amount": 5}\n{"userId": "u2", "amount": -5}\n')
        with psycopg.connect(url, application_name="report") as forgotten:
            forgotten.execute("select 1")
            ends = time.monotonic() + BUSY_S
            for lines in orders():
                jeet(home, "publish", "orders", "-", stdin=lines)
                if time.monotonic() > ends:
                    break
            return {"top": jeet(home, "top", "--once"), "doctor": jeet(home, "doctor")}
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="jeet-capture-"))
    home.chmod(0o755)
    try:
        printed = capture(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    text = PAGE.read_text()
    for name, shown in printed.items():
        block = f"<!-- {name} -->\n```text\n$ jeet {name}\n{shown.rstrip()}\n```\n<!-- /{name} -->"
        text = re.sub(rf"<!-- {name} -->\n.*?<!-- /{name} -->", lambda _, block=block: block, text, flags=re.DOTALL)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
