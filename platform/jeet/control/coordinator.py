"""The coordinator decides who should run what: it sees workers come, go and fail, and writes assignments.

Promise: a worker whose session is gone is seen within detect_s, a frozen one when heartbeat_timeout_s has passed; its
tasks are assigned anew at once, and `Partition Redistribution Successful` is logged when others hold all the leases.
Nothing here is needed for correctness, and running tasks go on without it: an assignment is a hint, the lease decides.
On a failure (connection lost, statement refused) the session is closed, which gives leadership up, and all starts over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import asyncpg

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.control.assignment import Runnable, able, assign_by_plugin, moves
from jeet.control.leadership import ANSWER_S, beat, wait_for
from jeet.control.load import LoadMeter
from jeet.control.redistribution import Redistribution, tasks_of
from jeet.control.watch import Lost, Reason, Seen, Stillness, judge
from jeet.db.keys import TASK_CLASS, WORKER_CLASS
from jeet.db.sql import query
from jeet.ids import FunctionId, TaskId, WorkerId
from jeet.telemetry import REDISTRIBUTED, WAITING_FOR_WORKERS, WORKER_DISCONNECTED, logger

if TYPE_CHECKING:
    from jeet.settings import Settings

log = logger(__name__)

PLAN_S = 1.0
"""the assignment is looked at this often even if nothing told of a change"""
FOLLOW_S = 0.02
"""how often leases are looked at while a redistribution is under way"""
URGE_S = 1.0
"""a takeover that takes longer is helped along"""


class Coordinator:
    """The leader's work, on the session that holds the leader's lock."""

    def __init__(self, db: asyncpg.Connection, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._db = db
        self._settings = settings
        self._monotonic = clock.monotonic
        self._stillness = Stillness(gap_s=settings.heartbeat_timeout_s / 2)
        self._load = LoadMeter()
        self._wake = asyncio.Event()
        self._workers: dict[WorkerId, Seen] = {}
        self._looked = False
        self._assignment: dict[TaskId, WorkerId] = {}
        self._pending: list[Redistribution] = []
        self._waiting_for_workers = False
        self._beat_at_s = 0.0
        self._plan_at_s = 0.0

    async def lead(self, stop: asyncio.Event) -> None:
        """Run until `stop`; raise LeadershipLost, or the driver's error, when this session can no longer lead."""
        await self._db.add_listener("jeet_control", self._heard)
        await self._adopt()
        while not stop.is_set():
            async with asyncio.timeout(ANSWER_S):
                await self._look()
            # Poll closely only while somebody waits for leases.
            close = self._pending and not self._waiting_for_workers
            await wait_for(self._wake, FOLLOW_S if close else self._settings.detect_s)

    def _heard(self, _db: object, _pid: int, _channel: str, payload: object) -> None:
        # `assign` and `released` are for workers; what changes the set of tasks concerns this one.
        if str(payload).partition(" ")[0] in ("function", "task"):
            self._plan_at_s = 0.0
            self._wake.set()

    async def _look(self) -> None:
        self._wake.clear()
        now_s = self._monotonic()
        if now_s - self._beat_at_s >= self._settings.heartbeat_s:
            await beat(self._db)
            self._beat_at_s = now_s
        changed = await self._watch()
        if changed or self._monotonic() - self._plan_at_s >= PLAN_S:
            await self._plan()
        if self._pending:
            await self._follow()

    async def _adopt(self) -> None:
        """Finish what an earlier leader began: end lost workers' sessions, follow their tasks."""
        for row in await self._db.fetch(query("coordinator_unfinished")):
            await self._db.fetchval(query("coordinator_end_worker"), row["id"])
            self._expect(WorkerId(row["id"]), "crashed", frozenset(row["tasks"]), row["silent_s"])

    async def _watch(self) -> bool:
        """Look at all workers; true if the set of those that can take tasks has changed."""
        rows = await self._db.fetch(query("coordinator_watch"), WORKER_CLASS)
        seen = [
            Seen(
                WorkerId(row["id"]),
                row["host"],
                row["pid"],
                row["status"],
                row["heartbeat_at"],
                row["silent_s"],
                row["gone"],
                row["plugin_hash"],
            )
            for row in rows
        ]
        before = self._workers
        still_s = self._stillness.seen(self._monotonic(), {each.worker: each.heartbeat_at for each in seen})
        lost = judge(seen, still_s, self._settings.heartbeat_timeout_s, needed_s=2 * self._settings.heartbeat_s)
        lost_ids = await self._mark_lost(lost) if lost else set()
        self._workers = {each.worker: each for each in seen if each.worker not in lost_ids and not each.gone}
        now = {each.worker for each in self._workers.values() if each.status == "running"}
        then = {each.worker for each in before.values() if each.status == "running"}
        for worker in sorted(now - then):
            each = self._workers[worker]
            log.info("worker joined" if self._looked else "worker found", worker=worker, host=each.host, pid=each.pid)
        self._looked = True
        for worker in sorted(then - now - lost_ids):
            await self._left(before[worker])
        return bool(lost_ids) or now != then

    async def _mark_lost(self, lost: Sequence[Lost]) -> set[WorkerId]:
        """Write down which workers are lost, say so, end what is left of them."""
        now_s = self._monotonic()
        rows = await self._db.fetch(
            query("coordinator_mark_lost"),
            [each.seen.worker for each in lost],
            [each.seen.heartbeat_at for each in lost],
            [each.seen.gone for each in lost],
        )
        marked = {WorkerId(row["id"]) for row in rows}
        for each in lost:
            if (worker := each.seen.worker) not in marked:
                continue  # it left by itself, or came back to life, between two statements
            held = frozenset(TaskId(row["id"]) for row in await self._db.fetch(query("coordinator_held"), worker))
            log.warning(
                WORKER_DISCONNECTED,
                worker=worker,
                host=each.seen.host,
                pid=each.seen.pid,
                reason=each.reason,
                partitions=len(held),
                silent_ms=round(each.seen.silent_s * 1000, 1),
            )
            if each.reason == "frozen":
                await self._db.fetchval(query("coordinator_end_worker"), worker)
            self._expect(worker, each.reason, held, each.seen.silent_s, now_s)
        return marked

    async def _left(self, seen: Seen) -> None:
        """A worker goes in good order: it drains, or is gone already. Its assignments may have gone with its row."""
        held = {TaskId(row["id"]) for row in await self._db.fetch(query("coordinator_held"), seen.worker)}
        held |= {task for task, worker in self._assignment.items() if worker == seen.worker}
        log.info("worker left", worker=seen.worker, host=seen.host, pid=seen.pid, partitions=len(held))
        self._expect(seen.worker, "left", frozenset(held), seen.silent_s)

    def _expect(
        self,
        worker: WorkerId,
        reason: Reason,
        tasks: frozenset[TaskId],
        silent_s: float,
        seen_at_s: float | None = None,
    ) -> None:
        now_s = self._monotonic()
        self._pending.append(Redistribution(worker, reason, tasks, seen_at_s or now_s, silent_s, urged_at_s=now_s))

    async def _plan(self) -> None:
        """Compute the assignment and write what differs from the one in the database."""
        self._plan_at_s = self._monotonic()
        rows = await self._db.fetch(query("coordinator_tasks"))
        workers = {each.worker: each.plugin for each in self._workers.values() if each.status == "running"}
        written = {TaskId(row["id"]): WorkerId(row["assigned"]) for row in rows if row["assigned"] is not None}
        look_at_load = self._load.due(self._plan_at_s)
        if look_at_load:
            self._load.observe(self._plan_at_s, {TaskId(row["id"]): row["position"] for row in rows})
        tasks = [
            Runnable(
                TaskId(row["id"]), FunctionId(row["function_id"]), self._load.weight(TaskId(row["id"])), row["plugin"]
            )
            for row in rows
        ]
        wanted = assign_by_plugin(tasks, workers, written)
        # An exchange may be between any two workers, so it has to wait until all of them can run the same tasks.
        alike = len({able(task, workers) for task in tasks}) < 2
        if look_at_load and alike and not self._pending and (better := self._load.relief(tasks, wanted, workers)):
            log.info("moving partitions to even out load", moved=len(moves(wanted, better)))
            wanted = better
        self._say_whether_waiting(bool(rows) and not workers)
        removed = self._assignment.keys() - wanted.keys()
        if wanted != written or removed:
            await self._write(wanted, len(workers))
        self._assignment = wanted

    async def _write(self, wanted: Mapping[TaskId, WorkerId], workers: int) -> None:
        try:
            result = await self._db.fetchrow(query("coordinator_assign"), list(wanted), list(wanted.values()))
        except (
            asyncpg.ForeignKeyViolationError,
            asyncpg.DeadlockDetectedError,
            asyncpg.LockNotAvailableError,
        ) as error:
            # A worker or a function went at this moment. Look again at once, at what is there now.
            self._plan_at_s = 0.0
            log.debug("assignment will be written again", error=str(error))
            return
        if result["changed"]:
            log.info("assigned partitions", workers=workers, partitions=len(wanted), changed=result["changed"])

    def _say_whether_waiting(self, waiting: bool) -> None:
        if waiting and not self._waiting_for_workers:
            log.warning(WAITING_FOR_WORKERS)
        self._waiting_for_workers = waiting

    async def _follow(self) -> None:
        """See how far takeovers have come; report those that are over, help those that hang."""
        rows = await self._db.fetch(query("coordinator_owners"), tasks_of(self._pending))
        owners = {TaskId(row["id"]): row["owner"] for row in rows}
        now_s = self._monotonic()
        still: list[Redistribution] = []
        for each in self._pending:
            open_tasks = each.open_tasks(owners)
            if not open_tasks:
                log.info(
                    REDISTRIBUTED,
                    worker=each.worker,
                    partitions=len(each.tasks),
                    moved=each.moved(owners),
                    elapsed_ms=each.elapsed_ms(now_s),
                    since_heartbeat_ms=each.since_heartbeat_ms(now_s),
                    reason=each.reason,
                )
                continue
            still.append(each)
            if self._waiting_for_workers:
                each.urged_at_s = now_s  # nobody is there who could be slow
            elif now_s - each.urged_at_s >= URGE_S:
                each.urged_at_s = now_s
                ended = await self._db.fetchval(query("coordinator_urge"), TASK_CLASS, sorted(open_tasks))
                log.warning(
                    "takeover takes long",
                    worker=each.worker,
                    open=len(open_tasks),
                    elapsed_ms=each.elapsed_ms(now_s),
                    ended=ended,
                )
        self._pending = still
