"""What the simulation takes for Postgres answers as Postgres does: the same statements, in the same order, to both.

Lease sessions of workers, a session for data and two coordinators do what a seed chooses; each answer is compared,
and after each step the tables. Process ids, times and the wording of errors differ by nature and are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from control.actors import make_function
from control.simulation.postgres import ACQUIRE, COMMIT, FENCE, LEAVE, RELEASE, Answer, Postgres, Session
from control.simulation.schedule import Loop
from jeet.db.connect import connect
from jeet.db.keys import COORDINATOR_LOCK, TASK_CLASS, WORKER_CLASS
from jeet.db.sql import query

TASKS = 3
STEPS = 200
_NOT_COMPARED = {
    *("pg_backend_pid", "backend_pid", "heartbeat_at", "backend_start", "silent_s", "host", "pid", "position"),
    *("function_id", "function_name", "inputs", "ttl_hold_ms", "pg_notify", "pg_advisory_lock", "application_name"),
    *("plugin_hash", "on_error"),
}


class Client:
    """One session on either side; psycopg where the worker uses psycopg, asyncpg elsewhere."""

    def __init__(self, name: str, real: Any, model: Session) -> None:
        self.name = name
        self.real = real
        self.model = model
        self.worker: int | None = None
        self.buried = False

    @property
    def backend_pid(self) -> int:
        is_psycopg = isinstance(self.real, psycopg.Connection)
        return int(self.real.info.backend_pid if is_psycopg else self.real.get_server_pid())


class Both:
    def __init__(self, url: str, db: psycopg.Connection) -> None:
        self.url = url
        self.db = db
        self.clients: list[Client] = []
        self.loop = Loop(Random(0), hesitation=0.0)
        self.model = Postgres(self.loop, TASKS)
        self.stream: int = db.execute("select min(stream_id) from jeet_internal.checkpoint").fetchone()[0]  # type: ignore[index]
        self.first: int = db.execute("select min(id) from jeet_internal.task").fetchone()[0]  # type: ignore[index]
        assert self.first == 1

    def lease_session(self, name: str) -> Client:
        real = psycopg.connect(self.url, autocommit=True)
        self.clients.append(Client(name, real, self.model.connect(None, "jeet-worker lease")))
        return self.clients[-1]

    async def session(self, name: str) -> Client:
        return Client(name, await connect(self.url, name), self.model.connect(None, name))

    async def ask(self, client: Client, text: str, *values: Any) -> tuple[Any, Any]:
        """What each side answers: rows that can be compared, or the SQLSTATE of a refusal."""
        return _comparable(await self._real(client, text, values)), _comparable(self._simulated(client, text, values))

    async def _real(self, client: Client, text: str, values: tuple[Any, ...]) -> Any:
        if isinstance(client.real, psycopg.Connection):
            cursor = client.real.execute(text, values[0] if isinstance(values[0], dict) else values)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()] if names else []
        try:
            if text == COMMIT:
                await self._commit(client.real, *values)
                return []
            if text == FENCE:
                await client.real.fetch("select jeet_internal.fence_tasks(1)")
                return []
            rows = [dict(row) for row in await client.real.fetch(text, *values)]
        except asyncpg.PostgresError as error:
            return error.sqlstate
        return [] if text == RELEASE else rows

    async def _commit(self, db: Any, task: int, epoch: int, start: int, end: int, _takes_s: float) -> None:
        empty: list[Any] = []
        arrays = [empty] * 5 + [0] + [empty] * 10
        values = [[task], [epoch], [task], [self.stream], [start], [end], *arrays, None, None, empty, empty, False]
        places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        await db.fetch(f"select jeet_internal.commit_tasks({places})", *values)

    def _simulated(self, client: Client, text: str, values: tuple[Any, ...]) -> Any:
        answers: list[Answer | Exception] = []
        self.model.execute(client.model, text, values, answers.append)
        self.loop.run(self.loop.time() + 0.001)
        assert self.loop.errors == []
        (answer,) = answers
        if isinstance(answer, asyncpg.PostgresError):
            return answer.sqlstate
        return answer

    def end(self, client: Client) -> None:
        """Its backend is ended."""
        self.model.end(client.model)
        self._bury()

    def _bury(self) -> None:
        """Wait until the backends that one of the statements ended are gone, with their locks."""
        for client in self.clients:
            if not client.model.alive and not client.buried:
                self.db.execute("select pg_terminate_backend(%s, 10000)", (client.backend_pid,))
                client.buried = True

    def tables(self) -> tuple[Any, Any]:
        self._bury()

        def fetch(text: str) -> list[Any]:
            return self.db.execute(text.encode()).fetchall()

        real = {
            "tasks": fetch(
                "select t.id, t.epoch, t.worker_id, t.unowned_since is not null, t.crashes, c.next_offset"
                " from jeet_internal.task t join jeet_internal.checkpoint c on c.task_id = t.id order by 1"
            ),
            "workers": fetch("select id, status from jeet_internal.worker order by 1"),
            "assignment": fetch("select task_id, worker_id from jeet_internal.assignment order by 1"),
            "locks": fetch(
                "select classid::bigint, objid::bigint from pg_locks where locktype = 'advisory' and granted"
                " and database = (select oid from pg_database where datname = current_database()) order by 1, 2"
            ),
        }
        model = self.model
        simulated = {
            "tasks": [
                (task.id, task.epoch, task.worker_id, task.released, task.crashes, task.next_offset)
                for task in model.tasks.values()
            ],
            "workers": [(worker.id, worker.status) for worker in model.workers.values()],
            "assignment": sorted(model.assignment.items()),
            "locks": sorted(model._advisory),
        }
        return real, simulated


def _comparable(answer: Any) -> Any:
    if not isinstance(answer, list):
        return answer
    rows = [{name: value for name, value in row.items() if name not in _NOT_COMPARED} for row in answer]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("seed", range(3))
async def test_both_answer_alike(database_url: str, db: psycopg.Connection, seed: int) -> None:
    make_function(db, "f", TASKS)
    random = Random(seed)
    both = Both(database_url, db)
    processes = [UUID(int=1), UUID(int=2)]
    leases: list[Client] = []
    data = await both.session("data")
    coordinators = [await both.session(f"coordinator {number}") for number in range(2)]
    known: list[int] = []

    async def compare(client: Client, text: str, *values: Any) -> Any:
        real, simulated = await both.ask(client, text, *values)
        assert real == simulated, (step, client.name, text, values)
        return real

    async def join() -> None:
        client = both.lease_session(f"lease {len(known)}")
        values = {
            "process": random.choice(processes),
            "host": "h",
            "pid": 1,
            "version": "0",
            "plugin_hash": None,
            "worker_class": WORKER_CLASS,
        }
        (row,) = await compare(client, query("register_worker"), values)
        client.worker = row["id"]
        leases.append(client)
        known.append(row["id"])

    async def crash() -> None:
        client = leases.pop(random.randrange(len(leases)))
        both.end(client)
        client.real.close()

    async def judge() -> None:
        seen = await coordinator.real.fetch(query("coordinator_watch"), WORKER_CLASS)
        await compare(coordinator, query("coordinator_watch"), WORKER_CLASS)
        lost = [row["id"] for row in seen if row["gone"]]
        # Real and simulated heartbeats are different values: "gone" needs none.
        beats = [None] * len(lost)
        await compare(coordinator, query("coordinator_mark_lost"), lost, beats, [True] * len(lost))
        for worker in lost:
            await compare(coordinator, query("coordinator_end_worker"), worker)

    async def assign() -> None:
        tasks = list(range(1, TASKS + 1)) if random.random() < 0.7 else some()
        workers = [each.worker for each in leases] if random.random() < 0.7 else known
        await compare(coordinator, query("coordinator_assign"), tasks, [random.choice(workers) for _ in tasks])

    async def acquire() -> None:
        owner = random.choice(leases)
        pid = owner.real.info.backend_pid
        await compare(data, ACQUIRE, owner.worker, pid, list(range(1, TASKS + 1)))

    async def commit() -> None:
        task = both.model.tasks[random.randint(1, TASKS)]
        start = task.next_offset + random.choice([0, 0, 0, 1])
        epoch = task.epoch - random.choice([0, 0, 0, 1])
        both.model._holder[task.id, epoch] = "?"  # the books are not what is compared here
        await compare(data, COMMIT, task.id, epoch, start, start + 2, 0.0)

    def some() -> list[int]:
        return sorted(random.sample(range(1, TASKS + 1), random.randint(1, TASKS)))

    def beat(draining: bool) -> dict[str, Any]:
        return {"worker": client.worker, "draining": draining}

    acts: list[Callable[[], Any]] = [
        *([join, assign, assign, *[acquire] * 6, commit, commit, commit, judge]),
        crash,
        lambda: compare(client, query("heartbeat"), beat(random.random() < 0.1)),
        lambda: compare(client, query("lock_tasks"), {"tasks": some(), "task_class": TASK_CLASS}),
        lambda: compare(client, query("lock_tasks"), {"tasks": some(), "task_class": TASK_CLASS}),
        lambda: compare(data, query("my_tasks"), random.choice(known), 200_000),
        lambda: compare(data, RELEASE, random.choice(known), some()),
        lambda: compare(data, query("read_suspects"), some()),
        lambda: compare(data, FENCE),
        lambda: compare(client, LEAVE, client.worker),
        lambda: compare(coordinator, query("coordinator_lead"), *COORDINATOR_LOCK, "h", 1),
        lambda: compare(coordinator, query("coordinator_beat")),
        lambda: compare(coordinator, query("coordinator_leader"), 1000.0),
        lambda: compare(coordinator, query("coordinator_unfinished")),
        lambda: compare(coordinator, query("coordinator_held"), random.choice(known)),
        lambda: compare(coordinator, query("coordinator_tasks")),
        lambda: compare(coordinator, query("coordinator_owners"), some()),
        lambda: compare(coordinator, query("coordinator_urge"), TASK_CLASS, some()),
    ]
    step = -1
    try:
        await join()
        for step in range(STEPS):
            coordinator = random.choice(coordinators)
            act = random.choice(acts)
            leases = [each for each in leases if each.model.alive]
            if not leases:
                act = join
            client = random.choice(leases) if leases else data
            await act()
            real, simulated = both.tables()
            assert real == simulated, step
    finally:
        for each in leases:
            each.real.close()
        for session in (data, *coordinators):
            session.real.terminate()
    assert both.model.commits >= 5
    assert sum(task.epoch for task in both.model.tasks.values()) > STEPS / 20
