"""Who should run what, as properties of a pure function over generated clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jeet.control.assignment import Runnable, assign, assign_by_plugin, moves, relieve
from jeet.control.load import PATIENCE, LoadMeter
from jeet.ids import FunctionId, TaskId, WorkerId

weights = st.sampled_from([0.0, 1.0, 5.0, 100.0, 12345.6])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Runnable], list[WorkerId], dict[TaskId, WorkerId]]:
    """Tasks, workers, and an assignment as history may have left it: partial, uneven, to workers that have gone."""
    count = draw(st.integers(0, 40))
    tasks = [Runnable(TaskId(i), FunctionId(draw(st.integers(1, 4))), draw(weights)) for i in range(count)]
    workers = [WorkerId(i) for i in draw(st.sets(st.integers(1, 12), max_size=8))]
    current = draw(st.dictionaries(st.sampled_from(range(count + 3)), st.integers(1, 12), max_size=count))
    return tasks, workers, {TaskId(task): WorkerId(worker) for task, worker in current.items()}


def counts(assignment: dict[TaskId, WorkerId], workers: list[WorkerId]) -> list[int]:
    held = Counter(assignment.values())
    return [held[worker] for worker in workers]


@given(clusters())
def test_every_task_has_a_worker_exactly_if_there_is_one(cluster) -> None:
    tasks, workers, current = cluster
    result = assign(tasks, workers, current)
    assert result.keys() == ({task.task for task in tasks} if workers else set())
    assert set(result.values()) <= set(workers)


@given(clusters())
def test_counts_differ_by_at_most_one(cluster) -> None:
    tasks, workers, current = cluster
    if workers:
        held = counts(assign(tasks, workers, current), workers)
        assert max(held) - min(held) <= 1


@given(clusters())
def test_an_answer_fed_back_changes_nothing(cluster) -> None:
    tasks, workers, current = cluster
    result = assign(tasks, workers, current)
    assert assign(tasks, workers, result) == result


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(cluster, random) -> None:
    tasks, workers, current = cluster
    shuffled, others = list(tasks), list(workers)
    random.shuffle(shuffled)
    random.shuffle(others)
    assert assign(shuffled, others, current) == assign(tasks, workers, current)


@given(clusters())
def test_no_more_tasks_move_than_evenness_asks_for(cluster) -> None:
    tasks, workers, current = cluster
    if not workers:
        return
    result = assign(tasks, workers, current)
    kept = Counter(current[task.task] for task in tasks if current.get(task.task) in workers)
    # The fewest: orphans, and what each worker has above its share, the larger shares going to those that hold most.
    low, extra = divmod(len(tasks), len(workers))
    held = sorted((kept[worker] for worker in workers), reverse=True)
    fewest = len(tasks) - sum(min(count, low + (place < extra)) for place, count in enumerate(held))
    assert sum(result[task.task] != current.get(task.task) for task in tasks) == fewest


@given(st.integers(1, 40), st.integers(1, 8))
def test_a_worker_that_joins_takes_only_its_share_and_one_that_leaves_gives_only_its_own(count: int, size: int) -> None:
    tasks = [Runnable(TaskId(i), FunctionId(1 + i % 3)) for i in range(count)]
    workers = [WorkerId(i) for i in range(1, size + 1)]
    before = assign(tasks, workers, {})
    joined = assign(tasks, [*workers, WorkerId(99)], before)
    changed = moves(before, joined)
    assert all(move.worker == 99 for move in changed)
    assert len(changed) == count // (size + 1)
    left = assign(tasks, workers, joined)
    assert all(move.previous == 99 for move in moves(joined, left))


def test_a_function_is_spread_over_the_workers() -> None:
    old = [Runnable(TaskId(i), FunctionId(1)) for i in range(8)]
    workers = [WorkerId(1), WorkerId(2), WorkerId(3), WorkerId(4)]
    current = assign(old, workers, {})
    both = [*old, *(Runnable(TaskId(100 + i), FunctionId(2)) for i in range(4))]
    result = assign(both, workers, current)
    assert Counter(result[TaskId(100 + i)] for i in range(4)) == Counter(workers)


@given(clusters(), st.data())
def test_a_task_that_needs_a_plugin_goes_to_workers_that_have_it_and_stays(cluster, data) -> None:
    tasks, workers, current = cluster
    hashes = st.sampled_from(["a", "b"])
    plugins = {worker: data.draw(hashes) for worker in workers}
    tasks = [replace(task, plugin=data.draw(st.none() | hashes)) for task in tasks]
    result = assign_by_plugin(tasks, plugins, current)
    assert result.keys() == ({task.task for task in tasks} if workers else set())
    for task in tasks:
        if task.plugin in plugins.values():
            assert plugins[result[task.task]] == task.plugin
    assert assign_by_plugin(tasks, plugins, result) == result
    if len(set(plugins.values())) == 1 and workers:
        assert result == assign(tasks, workers, current), "nothing is special among workers that are alike"


def test_heavy_tasks_without_an_owner_go_to_different_workers() -> None:
    tasks = [Runnable(TaskId(i), FunctionId(i), 1000.0 if i < 2 else 1.0) for i in range(6)]
    result = assign(tasks, [WorkerId(1), WorkerId(2)], {})
    assert result[TaskId(0)] != result[TaskId(1)]


@given(clusters())
def test_relief_lowers_the_load_of_the_busiest_keeps_counts_even_and_comes_to_an_end(cluster) -> None:
    tasks, workers, current = cluster
    if not workers:
        return
    weight = {task.task: task.weight for task in tasks}
    assignment = assign(tasks, workers, current)

    def loads(which: dict[TaskId, WorkerId]) -> list[float]:
        return [sum(weight[task] for task, owner in which.items() if owner == worker) for worker in workers]

    for _ in range(200):
        better = relieve(tasks, assignment, workers)
        held = counts(better, workers)
        assert max(held) - min(held) <= 1
        if better == assignment:
            return
        assert len(moves(assignment, better)) <= 2
        assert sorted(loads(better), reverse=True) < sorted(loads(assignment), reverse=True)
        assert assign(tasks, workers, better) == better, "the next plan does not undo it"
        assignment = better
    raise AssertionError("relief goes on for ever")


def test_an_imbalance_is_acted_upon_only_when_it_lasts() -> None:
    tasks = [Runnable(TaskId(i), FunctionId(1), weight) for i, weight in enumerate([500.0, 500.0, 1.0, 1.0])]
    workers = [WorkerId(1), WorkerId(2)]
    uneven = {TaskId(0): WorkerId(1), TaskId(1): WorkerId(1), TaskId(2): WorkerId(2), TaskId(3): WorkerId(2)}
    meter = LoadMeter()
    answers = [meter.relief(tasks, uneven, workers) for _ in range(PATIENCE)]
    assert answers[:-1] == [None] * (PATIENCE - 1)
    assert answers[-1] is not None
    assert {answers[-1][TaskId(0)], answers[-1][TaskId(1)]} == set(workers)


def test_a_tasks_weight_is_its_smoothed_rate_of_committed_events() -> None:
    meter = LoadMeter()
    meter.observe(0.0, {TaskId(1): 0, TaskId(2): 50})
    meter.observe(10.0, {TaskId(1): 1000, TaskId(2): 50})
    assert (meter.weight(TaskId(1)), meter.weight(TaskId(2))) == (50.0, 0.0)
    meter.observe(20.0, {TaskId(1): 2000, TaskId(2): 50})
    assert meter.weight(TaskId(1)) == 75.0
