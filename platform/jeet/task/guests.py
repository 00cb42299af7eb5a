"""The thread in which the guests of a lane run. Instances come along with tasks that change lanes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from jeet.clock import Clock
from jeet.sandbox.call import BatchResult
from jeet.sandbox.instance import Instance
from jeet.sandbox.machine import SLICE_PATIENCE
from jeet.task.running import RunningTask
from jeet.task.state import StateConnection
from jeet.task.turn import Run, Turn
from jeet.telemetry import logger

log = logger(__name__)


MOST_MADE_BYTES = 32 * 1024 * 1024
"""outputs and state after which no further turn begins: they are all in memory until they are committed"""


class GuestThread:
    """Runs turns one after another, beside the event loop, and reads state for them."""

    def __init__(self, name: str, state: StateConnection, *, cycle_s: float, stall_s: float, clock: Clock) -> None:
        """After `cycle_s` of CPU time no further turn begins; a call of `stall_s` waits for an answer that got lost."""
        self._state = state
        self._cycle_s = cycle_s
        self._stall_s = stall_s
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, turns: Sequence[Turn]) -> None:
        """Give each turn that has events its outcome, until the cycle has taken long enough."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._run, turns)
        while not running.done():
            _, late = await asyncio.wait([running], timeout=self._stall_s)
            if late:
                # No guest runs for so long: it waits for state, and the way to the server is cut.
                self._state.hang_up()
        running.result()

    def close_doomed(self, task: RunningTask) -> None:
        """Close the instances that a task has done with, behind whatever runs now."""
        while task.doomed:
            self._thread.submit(_close, task.doomed.pop())

    def end(self) -> None:
        """Take no more work; what runs comes to its end by itself."""
        self._thread.submit(self._state.close)
        self._thread.shutdown(wait=False)

    # ---- in the thread ----

    def _run(self, turns: Sequence[Turn]) -> None:
        ends_at = self._clock.monotonic() + self._cycle_s * SLICE_PATIENCE
        made = -1
        began_s = spent_s = time.thread_time()
        for turn in turns:
            if turn.events is None or turn.effects is not None or turn.stale:
                continue
            over = spent_s - began_s > self._cycle_s or self._clock.monotonic() > ends_at
            if made >= 0 and (over or made > MOST_MADE_BYTES):
                return
            try:
                self._call(turn)
            except Exception as error:  # noqa: BLE001 - whatever it is concerns this batch only, and `settle` judges it
                turn.outcome = error
            made = max(made, 0) + _size(turn.outcome)
            before_s, spent_s = spent_s, time.thread_time()
            turn.spent_s = spent_s - before_s

    def _call(self, turn: Turn) -> None:
        task, events = turn.task, turn.events
        assert events is not None
        if task.instance is None:
            task.instance = task.program.instantiate(task.lease, task.state)
            if task.figures is not None:
                task.figures.instances += 1
        # The guest's time and the expiry that is stored start from the same reading of the clock.
        now = self._clock.monotonic()
        batch = replace(
            events.batch,
            now_ms=events.batch.now_ms + (now - events.batch.fetched_at) * 1000,
            fetched_at=now,
            committed_through=task.committed_sequence,
        )
        turn.events = replace(events, batch=batch)
        cpu_s, waited_s = time.thread_time(), task.state.waited_s
        try:
            turn.outcome = task.instance.run(batch)
        finally:
            turn.run = Run(
                took_s=self._clock.monotonic() - now,
                cpu_s=time.thread_time() - cpu_s,
                state_s=task.state.waited_s - waited_s,
                ticks=task.instance.ticks,
                slowest=task.instance.slowest,
            )


def _size(outcome: object) -> int:
    """About how many bytes a guest's answer takes."""
    if not isinstance(outcome, BatchResult):
        return 0
    return sum(len(group.values) for group in outcome.outputs) + sum(len(writes.put_values) for writes in outcome.state)


def _close(instance: Instance) -> None:
    try:
        instance.close()
    except Exception as error:  # noqa: BLE001 - it is being thrown away
        log.warning("instance did not close cleanly", exc=error)
