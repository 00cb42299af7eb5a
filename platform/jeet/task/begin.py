"""How a task begins: where its lease says that it stands, in offsets and in event time."""

from __future__ import annotations

from collections.abc import Mapping

from jeet.control.lease import Lease
from jeet.ids import Offset, StreamId
from jeet.plan import StageInput, StagePlan
from jeet.task.retry import after_crashes
from jeet.task.turn import Cursor
from jeet.task.watermark import InputTime, TaskTime


def cursors_of(
    lease: Lease, plan: StagePlan, recorded: Mapping[tuple[StreamId, Offset], int], window: int
) -> list[Cursor]:
    """Its inputs in the plan's order; `recorded`: attempts at events during which earlier owners died."""
    cursors = []
    crashes = 0 if recorded else lease.crashes
    for place, (stream, offset) in enumerate(lease.inputs):
        # A graph that was never cut has one input, of which its plan knows nothing.
        source = plan.inputs[place] if place < len(plan.inputs) else StageInput("")
        attempts = {at: count for (of, at), count in recorded.items() if of == stream}
        cursors.append(
            Cursor(
                stream,
                offset,
                offset,
                place=place,
                table=source.table,
                stopped=lease.draining and not source.internal,
                stop=lease.stops[place] if lease.stops else None,
                careful=after_crashes(offset, crashes, attempts, window),
                time=_time_of_input(lease, plan, place) if plan.timed and not source.table else None,
            )
        )
    return cursors


def _time_of_input(lease: Lease, plan: StagePlan, place: int) -> InputTime:
    internal = plan.inputs[place].internal
    watermark_ms = lease.watermarks_ms[place] if lease.watermarks_ms and not internal else None
    highest_ms = None if watermark_ms is None else watermark_ms + plan.delay_ms
    return InputTime(plan.delay_ms, internal, lease.draining and not internal, highest_ms, highest_ms)


def time_of(lease: Lease, plan: StagePlan) -> TaskTime | None:
    """The clock of a task, if it goes by event time."""
    if not plan.timed:
        return None
    # Who waits for a function to be drained sees by its last stages, too, that event time has come to its end.
    passes_on = lease.draining or any(cut.timed for cut in plan.cuts)
    return TaskTime(lease.clock_ms, lease.clock_ms, passes_on=passes_on, limit_ms=lease.clock_limit_ms)
