"""Postgres, as far as control needs it: sessions that can be ended, advisory locks, row locks of tasks, a clock.

Statements are told by their text in sql/: a text that is not known here fails the simulation, so that this model cannot
quietly fall behind. `test_simulation.py` runs the same statements here and on a real server and compares the answers.
Beside the tables it keeps its own books of who was granted which epoch and what was committed, and raises Broken when a
commit contradicts them; the fence itself is not what it judges by.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from control.simulation.schedule import Loop
from jeet.db.keys import TASK_CLASS, WORKER_CLASS
from jeet.db.sql import query
from jeet.db.sqlstates import CHECKPOINT_MOVED, LEASE_LOST

if TYPE_CHECKING:
    from control.simulation.network import Connection

COMMIT = "commit one batch: task, epoch, start, end, seconds that it takes"
FENCE = "a control change: bump the epoch of each task"
ACQUIRE = "select * from jeet_internal.acquire_tasks($1, $2, $3)"
RELEASE = "select jeet_internal.release_tasks($1, $2)"
LEAVE = "delete from jeet_internal.worker where id = %s"
LISTEN = "listen jeet_control"

Row = dict[str, Any]
Answer = list[Row]
Steps = Generator[tuple[str, float], None, Answer]
"""a statement that takes time: it asks for row locks and for time, and changes something only at its end"""


class Broken(AssertionError):
    """A promise is broken."""


class LeaseLost(asyncpg.PostgresError):
    sqlstate = LEASE_LOST


class CheckpointMoved(asyncpg.PostgresError):
    sqlstate = CHECKPOINT_MOVED


@dataclass
class Worker:
    id: int
    process: str
    host: str
    pid: int
    plugin_hash: str | None
    backend_pid: int
    backend_start: float
    heartbeat_at: float
    status: str = "running"


@dataclass
class Task:
    id: int
    epoch: int = 0
    worker_id: int | None = None
    backend_pid: int | None = None
    next_offset: int = 0
    released: bool = True
    crashes: int = 0


@dataclass(eq=False)
class Session:
    """A backend and what it holds."""

    pid: int
    started: float
    application: str
    client: Connection | None
    lock_timeout_s: float
    advisory: Counter[tuple[int, int]] = field(default_factory=Counter)
    listening: bool = False
    alive: bool = True
    running: Running | None = None


@dataclass(eq=False)
class Running:
    """A statement, or a transaction, that is under way."""

    session: Session
    steps: Steps
    answer: Callable[[Answer | Exception], None]
    locks: set[int] = field(default_factory=set)
    waits_for: int | None = None
    limit: asyncio.Handle | None = None


class Postgres:
    """One server and one database."""

    def __init__(self, loop: Loop, tasks: int) -> None:
        self.loop = loop
        self.actor = loop.actor("postgres")
        self.clock_offset_s = 1_000_000.0
        self.up = True
        self.tasks = {task_id: Task(task_id) for task_id in range(1, tasks + 1)}
        self.workers: dict[int, Worker] = {}
        self.assignment: dict[int, int] = {}
        self.leader: Row | None = None
        self.assigned_at_s = 0.0
        """when the assignment last changed, in simulated time"""
        self.led_at_s = -1.0
        """when a leader last said that it leads, in simulated time"""
        self.sessions: dict[int, Session] = {}
        self._advisory: dict[tuple[int, int], Session] = {}
        self._row_owner: dict[int, Running] = {}
        self._row_queue: dict[int, deque[Running]] = defaultdict(deque)
        self._next_pid = 100
        self._next_worker = 1
        # Our own books.
        self.granted: dict[int, int] = dict.fromkeys(self.tasks, 0)
        """the newest epoch of each task, whoever has it"""
        self._holder: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = dict.fromkeys(self.tasks, 0)
        self.last_commit: dict[int, tuple[float, str]] = {}
        """when, and by which process"""
        self.commits = 0
        self._process_of: dict[int, str] = {}
        self._statements: dict[str, Callable[..., Answer | Steps]] = {
            query("register_worker"): self._register_worker,
            query("heartbeat"): self._heartbeat,
            query("lock_tasks"): self._lock_tasks,
            query("unlock_tasks"): self._unlock_tasks,
            query("my_tasks"): self._my_tasks,
            query("read_suspects"): lambda _session, _tasks: [],
            query("end_blockers"): self._end_blockers,
            query("coordinator_lead"): self._lead,
            query("coordinator_beat"): self._beat,
            query("coordinator_leader"): self._leader_row,
            query("coordinator_end_leader"): self._end_leader,
            query("coordinator_unfinished"): self._unfinished,
            query("coordinator_end_worker"): self._end_worker,
            query("coordinator_watch"): self._watch,
            query("coordinator_mark_lost"): self._mark_lost,
            query("coordinator_held"): self._held,
            query("coordinator_tasks"): self._list_tasks,
            query("coordinator_assign"): self._assign,
            query("coordinator_owners"): self._owners,
            query("coordinator_urge"): self._urge,
            query("coordinator_over_lag"): lambda _session, _most: [],
            query("sample_positions"): lambda _session: [],
            query("coordinator_roll_up"): lambda _session: [],
            ACQUIRE: self._acquire,
            RELEASE: self._release,
            LEAVE: self._leave,
            LISTEN: self._listen,
            COMMIT: self._commit,
            FENCE: self._fence,
        }

    def now(self) -> float:
        return self.loop.time() + self.clock_offset_s

    # ---- sessions ----

    def connect(self, client: Connection | None, application: str, lock_timeout_s: float = 1e9) -> Session:
        if not self.up:
            raise ConnectionRefusedError("the server is down")
        self._next_pid += 1
        session = Session(self._next_pid, self.now(), application, client, lock_timeout_s)
        self.sessions[session.pid] = session
        return session

    def execute(
        self, session: Session, text: str, values: Sequence[Any], answer: Callable[[Answer | Exception], None]
    ) -> None:
        """Run a statement; `answer` is called when it is over, unless the session ends first."""
        if not session.alive:
            return
        try:
            result = self._statements[text](session, *values)
        except asyncpg.PostgresError as error:
            answer(error)
            return
        if isinstance(result, list):
            answer(result)
            return
        session.running = Running(session, result, answer)
        self._advance(session.running)

    def cancel(self, session: Session) -> None:
        if session.running is not None:
            running, session.running = session.running, None
            self._stop(running)
            running.answer(asyncpg.QueryCanceledError("canceling statement due to user request"))

    def end(self, session: Session) -> bool:
        """The backend goes: what it runs is rolled back, what it holds is free, its client finds out."""
        if not session.alive:
            return False
        session.alive = False
        del self.sessions[session.pid]
        if session.running is not None:
            self._stop(session.running)
        for key in list(session.advisory):
            del self._advisory[key]
        session.advisory.clear()
        if session.client is not None:
            session.client.ended_by_server()
        return True

    def restart(self, down_s: float) -> None:
        self.up = False
        for session in list(self.sessions.values()):
            self.end(session)
        self.loop.at(self.loop.time() + down_s, self.actor, self._came_up)

    def _came_up(self) -> None:
        self.up = True

    def sit_on(self, tasks: Iterable[int], application: str, seconds: float) -> None:
        """A transaction of some process that has frozen: it holds task rows until it is ended or wakes up."""

        def steps() -> Steps:
            for task in sorted(tasks):
                yield "row", task
            yield "time", seconds
            return []

        if self.up:
            session = self.connect(None, application)
            session.running = Running(session, steps(), lambda _answer: self.end(session) and None)
            self._advance(session.running)

    def bump_all(self) -> None:
        """A deploy, a pause and a resume, a reset: a control change."""
        if self.up:
            session = self.connect(None, "jeet deploy", 5.0)
            self.execute(session, FENCE, (), lambda _answer: self.end(session) and None)

    # ---- statements that take time ----

    def _advance(self, running: Running) -> None:
        while True:
            try:
                kind, value = next(running.steps)
            except StopIteration as stop:
                self._finish(running, stop.value)
                return
            except asyncpg.PostgresError as error:
                self._finish(running, error)
                return
            if kind == "time":
                self.loop.at(self.loop.time() + value, self.actor, self._resume, running)
                return
            task = int(value)
            owner = self._row_owner.get(task)
            if owner is not None and owner is not running:
                running.waits_for = task
                self._row_queue[task].append(running)
                limit_s = running.session.lock_timeout_s
                if limit_s < 1e6:
                    running.limit = self.loop.at(self.loop.time() + limit_s, self.actor, self._waited_enough, running)
                return
            self._row_owner[task] = running
            running.locks.add(task)

    def _resume(self, running: Running) -> None:
        if running.session.running is running:
            self._advance(running)

    def _waited_enough(self, running: Running) -> None:
        if running.waits_for is not None and running.session.running is running:
            self._finish(running, asyncpg.LockNotAvailableError("canceling statement due to lock timeout"))

    def _finish(self, running: Running, answer: Answer | Exception) -> None:
        running.session.running = None
        self._stop(running)
        running.answer(answer)

    def _stop(self, running: Running) -> None:
        running.steps.close()
        if running.waits_for is not None:
            self._row_queue[running.waits_for].remove(running)
            running.waits_for = None
        if running.limit is not None:
            running.limit.cancel()
        for task in sorted(running.locks):
            del self._row_owner[task]
            if self._row_queue[task]:
                heir = self._row_queue[task].popleft()
                heir.waits_for = None
                if heir.limit is not None:
                    heir.limit.cancel()
                self._row_owner[task] = heir
                heir.locks.add(task)
                self.loop.at(self.loop.time(), self.actor, self._resume, heir)
        running.locks.clear()

    def _notify(self, payload: str) -> None:
        for session in self.sessions.values():
            if session.listening and session.client is not None:
                session.client.notified(payload)

    # ---- advisory locks ----

    def _lock(self, session: Session, key: tuple[int, int]) -> bool:
        if self._advisory.setdefault(key, session) is not session:
            return False
        session.advisory[key] += 1
        return True

    def _unlock(self, session: Session, key: tuple[int, int]) -> None:
        if session.advisory[key] <= 1:
            session.advisory.pop(key, None)
            if self._advisory.get(key) is session:
                del self._advisory[key]
        else:
            session.advisory[key] -= 1

    # ---- a worker's statements ----

    def _register_worker(self, session: Session, values: Mapping[str, Any]) -> Answer:
        number, self._next_worker = self._next_worker, self._next_worker + 1
        self.workers[number] = Worker(
            number,
            str(values["process"]),
            values["host"],
            values["pid"],
            values["plugin_hash"],
            session.pid,
            session.started,
            self.now(),
        )
        self._lock(session, (values["worker_class"], number))
        self._process_of[number] = session.client.process.name if session.client else "?"
        return [{"id": number, "pg_backend_pid": session.pid}]

    def _heartbeat(self, _session: Session, values: Mapping[str, Any]) -> Answer:
        worker = self.workers.get(values["worker"])
        if worker is None or worker.status == "lost":
            return []
        worker.heartbeat_at = self.now()
        worker.status = "draining" if values["draining"] else worker.status
        return [{"id": worker.id}]

    def _lock_tasks(self, session: Session, values: Mapping[str, Any]) -> Answer:
        return [{"id": task_id} for task_id in values["tasks"] if self._lock(session, (values["task_class"], task_id))]

    def _unlock_tasks(self, session: Session, values: Mapping[str, Any]) -> Answer:
        for task_id in values["tasks"]:
            self._unlock(session, (values["task_class"], task_id))
            self._notify(f"released {task_id}")
        return []

    def _listen(self, session: Session) -> Answer:
        session.listening = True
        return []

    def _leave(self, _session: Session, worker: int) -> Answer:
        if self.workers.pop(worker, None) is not None:
            self._assignment_is({task: who for task, who in self.assignment.items() if who != worker})
        return []

    def _my_tasks(self, _session: Session, worker: int, _stage_lag: int) -> Answer:
        return [
            {
                "task_id": task_id,
                "epoch": self.tasks[task_id].epoch,
                "worker_id": self.tasks[task_id].worker_id,
                "has_inbox": False,
                "sink_full": False,
            }
            for task_id, who in sorted(self.assignment.items())
            if who == worker
        ]

    def _acquire(self, _session: Session, worker: int, backend_pid: int, tasks: Sequence[int]) -> Steps:
        taken = []
        for task_id in sorted(tasks):
            yield "row", task_id
            if self.assignment.get(task_id) == worker:
                taken.append(task_id)
        answer = []
        for task_id in taken:
            task = self.tasks[task_id]
            before, here = self.workers.get(task.worker_id or 0), self.workers.get(worker)
            died = not task.released and task.worker_id != worker
            if died and not (before and here and before.process == here.process):
                task.crashes += 1
            task.epoch += 1
            task.worker_id, task.backend_pid, task.released = worker, backend_pid, False
            self._grant(task_id, task.epoch, worker)
            answer.append(
                {
                    "task_id": task_id,
                    "function_id": 1,
                    "function_name": "f",
                    "stage": 0,
                    "partition": task_id - 1,
                    "epoch": task.epoch,
                    "version": 1,
                    "crashes": task.crashes,
                    "ttl_hold_ms": 0.0,
                    "on_error": '"dead-letter"',
                    "inputs": [1],
                    "next_offsets": [task.next_offset],
                    "outputs": [None],
                    "clock_ms": None,
                    "watermarks_ms": [None],
                    "draining": False,
                    "stops": [None],
                    "muted": [],
                    "clock_limit_ms": None,
                }
            )
        return answer

    def _release(self, _session: Session, worker: int, tasks: Sequence[int]) -> Steps:
        for task_id in sorted(tasks):
            yield "row", task_id
        for task_id in tasks:
            if self.tasks[task_id].worker_id == worker:
                self.tasks[task_id].worker_id = self.tasks[task_id].backend_pid = None
                self.tasks[task_id].released = True
        return []

    def _commit(self, session: Session, task_id: int, epoch: int, start: int, end: int, takes_s: float) -> Steps:
        yield "row", task_id
        task = self.tasks[task_id]
        if task.epoch != epoch:
            raise LeaseLost("task was taken over or changed")
        if task.next_offset != start:
            raise CheckpointMoved("checkpoint is not where the batch began")
        yield "time", takes_s
        self._book(session, task_id, epoch, start, end)
        task.next_offset, task.crashes = end, 0
        return []

    def _fence(self, _session: Session) -> Steps:
        for task_id in sorted(self.tasks):
            yield "row", task_id
        for task_id, task in self.tasks.items():
            task.epoch += 1
            task.worker_id = task.backend_pid = None
            task.released = True
            self._grant(task_id, task.epoch, None)
        self._notify("function 1")
        return []

    def _end_blockers(self, _session: Session, pid: int, others_too: bool, never: int) -> Answer:
        waiting = self.sessions.get(pid)
        if waiting is None or waiting.running is None or waiting.running.waits_for is None:
            return []
        session = self._row_owner[waiting.running.waits_for].session
        if session.pid == never or not (others_too or session.application.startswith("jeet-worker")):
            return []
        self.end(session)
        return [{"pid": session.pid, "application_name": session.application, "ended": True}]

    # ---- our own books ----

    def _grant(self, task: int, epoch: int, worker: int | None) -> None:
        if epoch <= self.granted[task]:
            raise Broken(f"task {task}: epoch {epoch} was given out again, {self.granted[task]} is the newest")
        self.granted[task] = epoch
        if worker is not None:
            self._holder[task, epoch] = self._process_of[worker]

    def _book(self, session: Session, task: int, epoch: int, start: int, end: int) -> None:
        process = session.client.process.name if session.client else "?"
        if self._holder.get((task, epoch)) != process:
            raise Broken(f"task {task}: {process} committed in epoch {epoch}, which it was never given")
        if epoch != self.granted[task]:
            raise Broken(f"task {task}: {process} committed in epoch {epoch}, but {self.granted[task]} is the newest")
        if start != self.committed[task] or end <= start:
            raise Broken(f"task {task}: {process} committed [{start}, {end}) after {self.committed[task]}")
        self.committed[task] = end
        self.commits += 1
        self.last_commit[task] = (self.loop.time(), process)

    # ---- a coordinator's statements ----

    def _lead(self, session: Session, lock_class: int, lock_id: int, host: str, pid: int) -> Answer:
        if not self._lock(session, (lock_class, lock_id)):
            return []
        self.leader = {
            "host": host,
            "pid": pid,
            "backend_pid": session.pid,
            "backend_start": session.started,
            "heartbeat_at": self.now(),
        }
        return [{"backend_pid": session.pid}]

    def _beat(self, session: Session) -> Answer:
        if self.leader is None or self.leader["backend_pid"] != session.pid:
            return []
        self.leader["heartbeat_at"] = self.now()
        self.led_at_s = self.loop.time()
        return [{"?column?": True}]

    def _leader_row(self, _session: Session, timeout_s: float) -> Answer:
        leader = self.leader
        if leader is None or not self._is_there(leader):
            return []
        return [leader | {"silent": leader["heartbeat_at"] < self.now() - timeout_s}]

    def _end_leader(self, _session: Session, pid: int, start: float, heartbeat_at: float) -> Answer:
        leader = self.leader
        if (
            leader is not None
            and (leader["backend_pid"], leader["backend_start"], leader["heartbeat_at"]) == (pid, start, heartbeat_at)
            and self._is_there(leader)
        ):
            self.end(self.sessions[pid])
        return []

    def _is_there(self, row: Mapping[str, Any]) -> bool:
        session = self.sessions.get(row["backend_pid"])
        return session is not None and session.started == row["backend_start"]

    def _unfinished(self, _session: Session) -> Answer:
        return [
            {"id": worker.id, "tasks": tasks, "silent_s": self.now() - worker.heartbeat_at}
            for worker in self.workers.values()
            if worker.status == "lost"
            and (tasks := [task.id for task in self.tasks.values() if task.worker_id == worker.id])
        ]

    def _end_worker(self, _session: Session, number: int) -> Answer:
        worker = self.workers.get(number)
        ended = 0
        if worker is not None and worker.status == "lost" and self._is_there(vars(worker)):
            ended = int(self.end(self.sessions[worker.backend_pid]))
        return [{"ended": ended}]

    def _watch(self, _session: Session, worker_class: int) -> Answer:
        return [
            {
                "id": worker.id,
                "host": worker.host,
                "pid": worker.pid,
                "status": worker.status,
                "heartbeat_at": worker.heartbeat_at,
                "plugin_hash": worker.plugin_hash,
                "silent_s": self.now() - worker.heartbeat_at,
                "gone": (worker_class, worker.id) not in self._advisory,
            }
            for worker in self.workers.values()
            if worker.status != "lost"
        ]

    def _mark_lost(
        self, _session: Session, ids: Sequence[int], heartbeats: Sequence[float], crashed: Sequence[bool]
    ) -> Answer:
        marked = []
        for number, heartbeat_at, gone in zip(ids, heartbeats, crashed, strict=True):
            worker = self.workers.get(number)
            if worker and worker.status != "lost" and (gone or worker.heartbeat_at == heartbeat_at):
                worker.status = "lost"
                marked.append({"id": number})
        return marked

    def _held(self, _session: Session, worker: int) -> Answer:
        held = {task.id for task in self.tasks.values() if task.worker_id == worker}
        held |= {task for task, who in self.assignment.items() if who == worker}
        return [{"id": task} for task in sorted(held)]

    def _list_tasks(self, _session: Session) -> Answer:
        return [
            {
                "id": task.id,
                "function_id": 1,
                "assigned": self.assignment.get(task.id),
                "plugin": None,
                "position": task.next_offset,
            }
            for task in self.tasks.values()
        ]

    def _assign(self, _session: Session, tasks: Sequence[int], workers: Sequence[int]) -> Answer:
        wanted = {
            task: worker
            for task, worker in zip(tasks, workers, strict=True)
            if task in self.tasks and worker in self.workers and self.workers[worker].status == "running"
        }
        kept = {task: worker for task, worker in self.assignment.items() if task in set(tasks)}
        removed = len(self.assignment) - len(kept)
        changed = sum(1 for task, worker in wanted.items() if kept.get(task) != worker)
        self._assignment_is(kept | wanted)
        if removed + changed:
            self._notify("assign")
        return [{"removed": removed, "changed": changed}]

    def _assignment_is(self, assignment: dict[int, int]) -> None:
        if assignment != self.assignment:
            self.assignment = assignment
            self.assigned_at_s = self.loop.time()

    def _owners(self, _session: Session, tasks: Sequence[int]) -> Answer:
        answer = []
        for task_id in tasks:
            if (task := self.tasks.get(task_id)) is not None:
                worker = self.workers.get(task.worker_id or 0)
                answer.append({"id": task_id, "owner": worker.id if worker and worker.status == "running" else None})
        return answer

    def _urge(self, _session: Session, task_class: int, tasks: Sequence[int]) -> Answer:
        living = {worker.backend_pid for worker in self.workers.values() if worker.status != "lost"}
        strays = {
            session.pid
            for task in tasks
            if (session := self._advisory.get((task_class, task))) is not None and session.pid not in living
        }
        for pid in sorted(strays):
            self.end(self.sessions[pid])
        self._notify("assign")
        return [{"ended": len(strays), "pg_notify": ""}]

    # ---- what tests look at ----

    def owner_of(self, task: int) -> Worker | None:
        """The worker that holds the task's lease: lock, row and liveness agree."""
        session = self._advisory.get((TASK_CLASS, task))
        worker = self.workers.get(self.tasks[task].worker_id or 0)
        if session is None or worker is None or worker.backend_pid != session.pid or worker.status == "lost":
            return None
        return worker if (WORKER_CLASS, worker.id) in self._advisory else None
