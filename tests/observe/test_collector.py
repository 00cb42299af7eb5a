"""What cannot be told waits, and is told once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager

import psycopg
import pytest
from asyncpg import Connection

from house.deployed import deploy
from jeet.clock import SYSTEM_CLOCK
from jeet.errors import RetryLater
from jeet.ids import FunctionId, Offset, Partition, StreamId, TaskId, WorkerId
from jeet.observe.collector import Collector, Look
from jeet.observe.figures import Figures, TaskFigures, TaskName
from jeet.observe.metrics import WorkerMetrics


class Way:
    """To the database, as long as it is open."""

    def __init__(self, db: Connection) -> None:
        self.is_open = True
        self.meanwhile: Callable[[], object] = lambda: None
        self.used = 0
        self._db = db

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        if not self.is_open:
            raise RetryLater("closed")
        self.used += 1
        yield self._db
        self.meanwhile()


@pytest.fixture
def way(data: Connection) -> Way:
    return Way(data)


@pytest.fixture
def figures(db: psycopg.Connection) -> Figures:
    deploy(db, n=2)
    return Figures()


@pytest.fixture
def task(figures: Figures) -> TaskFigures:
    return figures.of(TaskId(1), FunctionId(1), TaskName("totals", 0, Partition(0)), SYSTEM_CLOCK.monotonic())


def collector(figures: Figures, way: Way, *held: int) -> Collector:
    return collector_of(figures, way, {TaskId(each) for each in held})


def collector_of(figures: Figures, way: Way, held: Set[TaskId]) -> Collector:
    """`held` may change as time goes on."""

    def look() -> Look:
        return Look(frozenset(held), guest_bytes=0, instances=1, lanes=1, busy_s=0.0)

    return Collector(figures, WorkerId(1), look, way.use, SYSTEM_CLOCK)


def told(db: psycopg.Connection, what: str) -> object:
    row = db.execute(f"select sum({what}) from jeet_internal.task_figures").fetchone()
    assert row is not None
    return row[0]


async def test_what_could_not_be_told_is_told_later_and_once(
    db: psycopg.Connection, figures: Figures, task: TaskFigures, way: Way
) -> None:
    teller = collector(figures, way, 1)
    task.events, task.batches = 10, 1
    task.slow(0.5, StreamId(1), Offset(3))
    way.is_open = False
    assert not await teller.tell()
    task.events, task.batches = 15, 2
    way.is_open = True
    assert await teller.tell()
    assert await teller.tell()
    assert (told(db, "events"), told(db, "batches"), told(db, "slowest_offset")) == (15, 2, 3)
    task.events, task.batches = 16, 3
    assert await teller.tell()
    assert told(db, "events") == 16


async def test_an_idle_worker_writes_nothing(figures: Figures, task: TaskFigures, way: Way) -> None:
    teller = collector(figures, way, 1)
    assert await teller.tell()  # how it is
    for _ in range(3):
        task.fetch_s += 1.0  # looking for events that are not there is nothing to tell
        assert await teller.tell()
    assert way.used == 1


async def test_tasks_that_went_elsewhere_are_forgotten_once_they_are_told(
    db: psycopg.Connection, figures: Figures, task: TaskFigures, way: Way
) -> None:
    teller = collector(figures, way)
    task.events, task.batches = 10, 1
    way.is_open = False
    await teller.tell()
    assert figures.tasks
    way.is_open = True
    await teller.tell()
    assert not figures.tasks
    assert told(db, "events") == 10


async def test_a_task_that_comes_back_or_does_more_while_it_is_told_of_is_kept(
    db: psycopg.Connection, figures: Figures, task: TaskFigures, way: Way
) -> None:
    held: set[TaskId] = set()
    teller = collector_of(figures, way, held)

    def goes_on() -> None:
        task.events, task.batches = 15, 2

    task.events, task.batches = 10, 1
    way.meanwhile = goes_on  # its last batch is committed while the ones before are told of
    await teller.tell()
    way.meanwhile = lambda: held.add(task.task_id)
    await teller.tell()
    assert figures.tasks[task.task_id] is task
    assert told(db, "events") == 15


async def test_a_task_that_never_did_anything_is_forgotten(figures: Figures, task: TaskFigures, way: Way) -> None:
    await collector(figures, way).tell()
    assert not figures.tasks


def test_a_function_that_was_deleted_and_deployed_again_has_each_series_once(figures: Figures) -> None:
    for number in (1, 2):
        name = TaskName("totals", 0, Partition(0))
        figures.of(TaskId(number), FunctionId(number), name, SYSTEM_CLOCK.monotonic()).events = number
    look = Look((), guest_bytes=0, instances=0, lanes=1, busy_s=0.0)
    families = {family.name: family for family in WorkerMetrics(figures, lambda: look, "0", "x").collect()}
    for family in families.values():
        labels = [(sample.name, *sample.labels.items()) for sample in family.samples]
        assert len(labels) == len(set(labels))
    assert families["jeet_processed_events"].samples[0].value == 3


async def test_no_error_of_figures_reaches_the_worker(figures: Figures, task: TaskFigures, way: Way) -> None:
    teller = collector(figures, way, 1)
    task.batches = 1
    task.slowest = "no such thing"  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        await teller.tell()
    await teller.tell_if_possible()
