"""Counts what a turn did, once it has run and once it is committed (observe/figures.py)."""

from __future__ import annotations

from jeet.errors import StopTask
from jeet.ids import Offset
from jeet.sandbox.call import BatchResult
from jeet.task.turn import Turn


def count_run(turn: Turn) -> None:
    """The turn came back from its guest, or failed on the way there."""
    figures, run, events = turn.task.figures, turn.run, turn.events
    if figures is None:
        return
    if turn.outcome is not None and not isinstance(turn.outcome, BatchResult | StopTask):
        figures.errors += 1
    if run is None or events is None:
        return
    figures.cpu_s += run.cpu_s
    figures.sandbox_s += max(0.0, run.took_s - run.state_s)
    figures.state_s += run.state_s
    if turn.kind == "timers":
        return
    if events.batch.count == 1:
        figures.slow(run.cpu_s, events.stream, events.start)
    elif run.slowest is not None:
        index, cpu_s = run.slowest
        figures.slow(cpu_s, events.stream, Offset(events.offset(index)))
    if run.ticks and events.batch.keys and events.stream is not None:
        figures.hot_keys(events.stream).ran(events.batch.keys, run.ticks)


def count_failure(turn: Turn) -> None:
    """The turn ran, but the database would not have what it did."""
    if turn.task.figures is not None:
        turn.task.figures.errors += 1


def count_commit(turn: Turn) -> None:
    """What the turn did is in the database."""
    figures, effects = turn.task.figures, turn.effects
    if figures is None or effects is None:
        return
    figures.dead_letters += len(effects.dead_letters)
    result, events = turn.outcome, turn.events
    if events is None:
        return  # the clock moved, and nothing else
    figures.batches += 1
    processed = result.processed if isinstance(result, BatchResult) else 1
    if isinstance(result, BatchResult):
        lease = turn.task.lease
        written = [stream is not None and stream not in lease.muted for stream in lease.outputs]
        figures.outputs += sum(group.count for group in result.outputs if written[group.stream])
        figures.memory_bytes = result.memory_bytes
        figures.cut += processed < events.batch.count
    if turn.kind == "timers":
        return
    figures.events += processed
    figures.bytes_in += (len(events.batch.values) + 1) * processed // events.batch.count - processed  # no line breaks
    if events.batch.keys and events.stream is not None:
        figures.hot_keys(events.stream).saw(events.batch.keys, processed)
