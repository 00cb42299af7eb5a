"""What kind of Javy plugin is this: which configuration it wants, and whether promises run on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jeet.errors import PluginError
from jeet.sandbox.frames import OP_ANSWER

# What initialize-runtime may read from stdin (Javy's own plugin does; others do not). The first that works is kept.
CONFIGURATIONS: tuple[bytes | None, ...] = (
    b'{"javy-stream-io":true,"text-encoding":true,"event-loop":true,"simd-json-builtins":false}',
    b'{"event-loop":true}',
    b"",
    None,  # already initialised: do not call it
)
_SAY = f"""
const say = (text) => {{
  const bytes = new TextEncoder().encode(text);
  const frame = new Uint8Array(8 + bytes.length);
  frame.set([0, 0x4a, {OP_ANSWER}, 0, bytes.length, 0, 0, 0]);
  frame.set(bytes, 8);
  Javy.IO.writeSync(2, frame);
}};
say('io');
"""
_JOB = _SAY + "Promise.resolve().then(() => say('job'));"

PROBES = f"{CONFIGURATIONS} {_SAY} {_JOB}"
"""all that the outcome depends on beside the plugin"""


@dataclass(frozen=True)
class Traits:
    """The outcome."""

    configuration: int
    """index into CONFIGURATIONS"""
    runs_jobs: bool


Run = Callable[[bytes | None, str], tuple[list[str], str]]
"""evaluates a module under a configuration: what it said, and what went wrong"""


def probe(run: Run) -> Traits:
    """Try the configurations in order; PluginError if none lets the plugin speak."""
    best: Traits | None = None
    reason = ""
    for index, configuration in enumerate(CONFIGURATIONS):
        said, problem = run(configuration, _SAY)
        if "io" not in said:
            reason = reason or problem
            continue
        runs_jobs = "job" in run(configuration, _JOB)[0]
        if best is None or runs_jobs:
            best = Traits(index, runs_jobs)
        if runs_jobs:
            break
    if best is None:
        raise PluginError(
            f"it cannot serve: {reason or 'it gave no sign of life'}; a Javy plugin needs Javy.IO (javy_stream_io) and"
            " TextEncoder (text_encoding)"
        )
    return best
