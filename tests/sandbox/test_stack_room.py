"""Guests have the stack that they count on: deep recursion is their own error, whatever limits the process has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, threading
from pathlib import Path
from jeet.sandbox.engine import Engine, make_room_for_guests
from jeet.sandbox.limits import Limits
from jeet.testing import LocalFunction

DEEP = '''
const nest = (n) => n === 0 ? 0 : 1 + [n].map(nest.bind(null, n - 1))[0];
stream.map(() => {
  try { return nest(1e6); } catch (error) { return error.name; }
});
'''

def run():
    patient = Limits(event_cpu_ms=5000, event_wall_ms=60000)
    with LocalFunction(DEEP, plugin=plugin, limits=patient) as function:
        print(function.feed([{}]).values()[0])

engine = Engine(Path(sys.argv[1]))
make_room_for_guests()
thread = threading.Thread(target=lambda: globals().update(plugin=engine.load_plugin()))
thread.start()
thread.join()
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("limit", ["unlimited", "1024", "8192"])
def test_recursion_in_a_thread_is_an_error_of_the_guest(limit: str, tmp_path: Path) -> None:
    script = tmp_path / "deep.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [
            "bash",
            "-c",
            f'ulimit -S -s {limit} && exec "$@"',
            "bash",
            sys.executable,
            str(script),
            str(tmp_path / "kept"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "RangeError"), ran.stderr
