"""The worker process: wires the parts, starts and stops them in order, and starts over when its membership is lost.

Promise: no outage of the database, no lost lease and no event ends this process; it goes on under a new incarnation,
which finds everything in the database. SIGTERM and SIGINT: stop reading, finish the batches at hand, commit, give the
tasks back, remove the worker's row, exit 0. A second signal, or the end of `drain_s`, cuts what is left; nothing half
done is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import uvloop
from setproctitle import setproctitle

from jeet.alive import alive
from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.control.lease import Owner
from jeet.control.membership import Identity, Membership
from jeet.db.connect import DRIVER_ERRORS
from jeet.db.migrate import SchemaMismatch, check_schema
from jeet.errors import StopWorker, UsageError
from jeet.observe.collector import Collector, Look
from jeet.observe.figures import Figures
from jeet.own_task import in_own_task
from jeet.sandbox.engine import Engine, make_room_for_guests
from jeet.sandbox.plugin import BUILT_IN, Plugin
from jeet.settings import Settings
from jeet.task.clocks import Clocks
from jeet.task.data import DataConnection
from jeet.task.lane import Lane
from jeet.task.lane_settings import LaneSettings
from jeet.task.loop import LoopSettings, TaskLoop
from jeet.task.pause import pause
from jeet.task.program import Programs
from jeet.task.retry import backoff_s
from jeet.task.wake import Wake
from jeet.telemetry import configure, logger

log = logger(__name__)

_EXPECTED = (StopWorker, SchemaMismatch, psycopg.Error, *DRIVER_ERRORS)
"""what ends an incarnation in the ordinary course of events"""
_STEADY_S = 10.0
"""an incarnation that lived for longer was well: what ends it is news"""
_STUCK_S = 30.0
"""an incarnation that is lost must have ended by then"""
_LAST_WORD_S = 1.0
"""how long a worker that ends may take to tell what its tasks did last"""
PROCESS_NAME = "jeet-worker"
"""what `pgrep jeet-worker` finds; no other process of Jeet's bears it"""


def main(settings: Settings, database_url: str) -> None:
    """Run until SIGTERM or SIGINT; raises UsageError if the database cannot serve a worker at all."""
    setproctitle(PROCESS_NAME)
    make_room_for_guests()
    configure(log_format=settings.log_format, level=settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, database_url))


async def _run(settings: Settings, database_url: str) -> None:
    async with alive(settings.home, "worker"):
        await Worker(settings, database_url).run()


class Worker:
    """One process; it lives through as many incarnations as it takes."""

    def __init__(
        self, settings: Settings, database_url: str, clock: Clock = SYSTEM_CLOCK, random: Random | None = None
    ) -> None:
        self._settings = settings
        self._url = database_url
        self._clock = clock
        self._random = random or Random()
        self._process = uuid4()
        self.figures = Figures() if settings.figures == "on" else None
        """of all incarnations"""
        self._lanes: Sequence[Lane] = ()
        """of this one"""
        self._stop = asyncio.Event()
        self._cut = asyncio.Event()

    async def run(self) -> None:
        """Join, work, and join again, until a signal comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        engine = await asyncio.to_thread(Engine, self._settings.sandbox_cache)
        plugin = await asyncio.to_thread(Plugin, engine, self._settings.javy_plugin or BUILT_IN)
        log.info("worker started", pid=os.getpid(), plugin=plugin.hash[:12])
        if self._settings.metrics_port is not None:
            await asyncio.to_thread(self._serve_metrics, plugin, self._settings.metrics_port)
        await self.live(plugin)
        log.info("worker stopped", pid=os.getpid())

    async def live(self, plugin: Plugin) -> None:
        """One incarnation after the other, until `stop`."""
        failures = 0
        while not self._stop.is_set():
            began = self._clock.monotonic()
            error = await self._live_once(plugin)
            if error is None:
                break
            failures = 1 if self._clock.monotonic() - began > _STEADY_S else failures + 1
            if failures == 1:  # one line a change of state: further failures in a row say the same
                log.warning("worker starts over", reason=str(error) or type(error).__name__)
            await pause(self._stop, backoff_s(failures, self._random))

    def stop(self) -> None:
        """Finish the batches at hand and give everything back; said twice: cut them."""
        (self._cut if self._stop.is_set() else self._stop).set()

    async def _live_once(self, plugin: Plugin) -> Exception | None:
        """One incarnation from joining to leaving; what ended it, or None if it left in good order."""
        try:
            await asyncio.to_thread(self._check_schema)
            await in_own_task(self._live(plugin))
        except Exception as error:  # noqa: BLE001 - whatever it is, a new incarnation finds everything in the database
            first = _first(error)
            if isinstance(first, UsageError) and not isinstance(first, SchemaMismatch):
                raise first from None
            if not isinstance(first, _EXPECTED):
                log.error("an error that nobody foresaw; nothing half done was kept", exc=first)
            return first
        return None

    def _check_schema(self) -> None:
        with psycopg.connect(self._url, autocommit=True, connect_timeout=5, application_name="jeet-worker start") as db:
            check_schema(db)

    async def _live(self, plugin: Plugin) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        lost: asyncio.Future[None] = loop.create_future()
        tasks: list[TaskLoop] = []
        stuck: list[asyncio.TimerHandle] = []

        def look_again() -> None:
            for each in tasks:
                each.look_again()

        def give_up(error: StopWorker) -> None:
            if not lost.done():
                lost.set_exception(error)
                stuck.append(loop.call_later(_STUCK_S, _end_process, error))

        membership = Membership(
            self._url,
            Identity(self._process, socket.gethostname(), os.getpid(), _version(), plugin.hash),
            heartbeat_s=settings.heartbeat_s,
            timeout_s=settings.heartbeat_timeout_s,
            on_control=lambda _payload: _soon(loop, look_again),
            on_lost=lambda error: _soon(loop, lambda: give_up(error)),
            clock=self._clock,
        )
        joined = await membership.start()
        try:
            log.info("worker joined", worker=joined.worker_id)
            owner = Owner(joined.worker_id, joined.backend_pid)
            await self._work(plugin, owner, membership, lost, tasks)
            await membership.leave()
        finally:
            for timer in stuck:
                timer.cancel()
            lost.cancel()
            await membership.abandon("the incarnation is over")

    async def _work(
        self, plugin: Plugin, owner: Owner, membership: Membership, lost: asyncio.Future[None], tasks: list[TaskLoop]
    ) -> None:
        """Run what is assigned until a signal comes, then give it all back."""
        settings = self._settings
        wake = Wake(self._url, self._clock, self._random)
        programs = Programs(plugin, self._limits(), float(settings.slice_ms))
        task_loop = TaskLoop(
            LoopSettings(self._url, settings.heartbeat_s, settings.batch_events, settings.stage_lag),
            owner,
            membership,
            programs,
            self._clock,
            self._random,
            self.figures,
        )
        task_loop.lanes = [
            Lane(str(number), self._lane_settings(), wake, task_loop.lost, clock=self._clock, random=self._random)
            for number in range(settings.lanes)
        ]
        for lane in task_loop.lanes:
            lane.peers = [peer for peer in task_loop.lanes if peer is not lane]
        clocks = Clocks(self._lane_settings(), task_loop.lanes, self._clock, self._random)
        task_loop.stir_clocks = clocks.stir
        tasks.append(task_loop)
        self._lanes = task_loop.lanes
        telling = DataConnection(self._url, "jeet-worker figures", {"statement_timeout": "10000"}, 15.0)
        collector = None
        if self.figures is not None:
            collector = Collector(self.figures, owner.worker_id, self.look, telling.use, self._clock)
        try:
            await self._run_parts(owner, membership, lost, task_loop, wake, clocks, collector)
            if collector is not None:
                await collector.tell_if_possible(_LAST_WORD_S)
        finally:
            self._lanes = ()
            telling.terminate()

    async def _run_parts(
        self,
        owner: Owner,
        membership: Membership,
        lost: asyncio.Future[None],
        task_loop: TaskLoop,
        wake: Wake,
        clocks: Clocks,
        collector: Collector | None,
    ) -> None:
        settings = self._settings
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(task_loop.run(), name="task loop")
            lanes = [group.create_task(lane.run(), name=f"lane {lane.name}") for lane in task_loop.lanes]
            beside = [
                group.create_task(wake.run(), name="wake"),
                group.create_task(clocks.run(), name="clocks"),
            ]
            if collector is not None:
                beside.append(group.create_task(collector.run(), name="figures"))
            await self._watch(membership, lost, self._stop, None)
            log.info("worker drains", worker=owner.worker_id)
            await membership.drain()
            task_loop.drain()
            done = asyncio.gather(looking, return_exceptions=True)
            await self._watch(membership, lost, self._cut, done, settings.drain_s)
            for lane in task_loop.lanes:
                lane.drain()
            await asyncio.wait(lanes)
            for each in beside:
                each.cancel()

    async def _watch(
        self,
        membership: Membership,
        lost: asyncio.Future[None],
        until: asyncio.Event,
        done: asyncio.Future[Any] | None,
        within_s: float = float("inf"),
    ) -> None:
        """Until `until` is set or `done` is; StopWorker when the membership is lost or time is over."""
        deadline = self._clock.monotonic() + within_s
        ended = asyncio.ensure_future(until.wait())
        try:
            while not (done is not None and done.done()):
                membership.check()
                signs: set[asyncio.Future[Any]] = {ended, lost, *([done] if done is not None else [])}
                await asyncio.wait(signs, timeout=self._settings.heartbeat_s / 2, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    lost.result()
                if ended.done() and done is None:
                    return
                if ended.done() or self._clock.monotonic() > deadline:
                    raise StopWorker(
                        "told to stop before the batches at hand were committed; their events run again elsewhere"
                    )
        finally:
            ended.cancel()

    def look(self) -> Look:
        """How it is now; may be called from any thread."""
        lanes = self._lanes
        tasks = {task_id: task for lane in lanes for task_id, task in list(lane.tasks.items())}
        return Look(
            tasks=tasks.keys(),
            guest_bytes=sum(task.memory_bytes for task in tasks.values()),
            instances=sum(task.instance is not None for task in tasks.values()),
            lanes=len(lanes),
            busy_s=sum(lane.busy_s for lane in lanes),
        )

    def _serve_metrics(self, plugin: Plugin, port: int) -> None:
        from jeet.observe.metrics import WorkerMetrics, serve  # a tenth of a second's worth of imports

        serve(WorkerMetrics(self.figures, self.look, _version(), plugin.hash), self._settings.metrics_host, port)

    def _lane_settings(self) -> LaneSettings:
        settings = self._settings
        return LaneSettings(
            database_url=self._url,
            batch_events=settings.batch_events,
            batch_bytes=settings.batch_bytes,
            slice_s=settings.slice_ms / 1000,
            memory_bytes=settings.worker_memory_mb * 1024 * 1024,
            max_attempts=settings.max_attempts,
            commit_timeout_s=settings.commit_timeout_s,
            lock_timeout_s=settings.lock_timeout_s,
        )

    def _limits(self) -> Mapping[str, int]:
        settings = self._settings
        return {
            "event_cpu_ms": settings.event_cpu_ms,
            "event_wall_ms": settings.event_wall_ms,
            "guest_memory_bytes": settings.guest_memory_mb * 1024 * 1024,
        }


def _first(error: Exception) -> Exception:
    """The error itself, taken out of the groups around it; the worker's own word before what followed from it."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = [_first(each) for each in error.exceptions]
    return next((each for each in inner if isinstance(each, StopWorker)), inner[0])


def _end_process(error: StopWorker) -> None:
    """The last resort when a lost incarnation does not come to its end: whoever runs workers starts another."""
    log.error("this incarnation is lost and does not end; the process exits", reason=str(error))
    os._exit(70)


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
    """Have the event loop do it, from any thread; not if it has closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(work)


def _version() -> str:
    try:
        return version("jeet")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0"
