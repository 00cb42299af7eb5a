"""Coordinator, leader election, membership, task loop and lease under thousands of seeded schedules of faults.

The code that decides is the real one; time, the network and Postgres are simulated (tests/control/simulation). In
every schedule, at any time: one owner at most commits for a task and epoch, in the newest epoch only, and the
checkpoint moves forward without a gap. Once faults have ended: every task is owned and committing within RECOVERED_S,
evenly spread, and the assignment stands still. JEET_SEED=n runs that schedule alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from unittest.mock import patch

import pytest

from control.simulation.cluster import replaced_edges
from control.simulation.faults import FOR_EVER_S, RECOVERED_S, Fault, Outcome, Plan, check, plan, report, run
from control.simulation.postgres import Answer, Postgres, Session, Steps
from jeet.control.watch import Lost, Seen

SEED = os.environ.get("JEET_SEED")
ORDINARY = range(200)
LONG = range(1_000, 11_000)


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    with replaced_edges():
        yield


def _check(seeds: range) -> list[Outcome]:
    """For a process of its own."""
    with replaced_edges():
        return check(seeds)


def test_some_schedules_keep_every_promise() -> None:
    seeds = ORDINARY if SEED is None else range(int(SEED), int(SEED) + 1)
    outcomes = check(seeds)
    assert sum(outcome.commits for outcome in outcomes) > 10 * len(outcomes)


@pytest.mark.torture
def test_ten_thousand_schedules_keep_every_promise() -> None:
    pieces = [range(start, min(start + 250, LONG.stop)) for start in range(LONG.start, LONG.stop, 250)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        outcomes = [outcome for piece in pool.map(_check, pieces) for outcome in piece]
    recovered_s = sorted(outcome.recovered_s for outcome in outcomes)
    assert len(outcomes) == len(LONG)
    assert recovered_s[-1] <= RECOVERED_S
    print(
        f"{len(outcomes)} schedules, {sum(each.steps for each in outcomes)} steps,"
        f" {sum(each.commits for each in outcomes)} commits; well again after {recovered_s[len(outcomes) // 2]:.1f} s"
        f" (median), {recovered_s[len(outcomes) * 99 // 100]:.1f} s (99 %), {recovered_s[-1]:.1f} s (worst)"
    )


@pytest.mark.parametrize("seed", [0, 36, 254])
def test_a_seed_happens_again_step_by_step(seed: int) -> None:
    assert run(plan(seed), trace=True) == run(plan(seed), trace=True)


CALM = Plan(0, 2, 2, 4, latency_s=0.001, hesitation=0.0, quiet_from_s=2.0, faults=())


@pytest.mark.parametrize("target", range(4))
@pytest.mark.parametrize(
    ("kind", "value", "within_s"),
    [("kill", 0.0, 1.0), ("freeze", FOR_EVER_S, 4.0), ("cut", FOR_EVER_S, 4.0)],
)
def test_after_one_fault_alone_tasks_run_again_in_the_time_that_is_promised(
    kind: str, value: float, within_s: float, target: int
) -> None:
    """Within a second of a crash, within four of a freeze or a cut; of any worker, and of the leader."""
    for seed in range(5):
        at_s = 1.9 + 0.02 * seed
        outcome = run(replace(CALM, seed=seed, quiet_from_s=at_s, faults=(Fault(at_s, kind, target, value),)))
        assert outcome.broken is None
        assert outcome.owned_s <= within_s


@pytest.mark.parametrize("target", range(4))
@pytest.mark.parametrize("kind", ["freeze", "cut"])
@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_database_clock_that_is_set_hides_no_frozen_process(kind: str, step_s: float, target: int) -> None:
    faults = (Fault(2.0, kind, target, FOR_EVER_S), Fault(2.3, "step_clock", 0, step_s))
    outcome = run(replace(CALM, quiet_from_s=2.4, faults=faults))
    assert outcome.broken is None
    assert outcome.owned_s <= 4.0


def test_a_database_clock_that_is_set_forward_costs_no_worker_its_tasks() -> None:
    outcome = run(replace(CALM, faults=(Fault(1.9, "step_clock", 0, 3600.0),)), trace=True)
    assert outcome.broken is None
    assert not [line for line in outcome.trace if "disconnected" in line or "silent" in line]


# ---- that it can fail ----


def _commit_without_a_fence(
    self: Postgres, session: Session, task_id: int, epoch: int, start: int, end: int, takes_s: float
) -> Steps:
    yield "row", task_id
    yield "time", takes_s
    self._book(session, task_id, epoch, start, end)
    self.tasks[task_id].next_offset = end
    return []


def _acquire_without_a_new_epoch(
    self: Postgres, session: Session, worker: int, backend_pid: int, tasks: list[int]
) -> Steps:
    for task_id in tasks:
        self.tasks[task_id].epoch -= 1
    return (yield from _acquire(self, session, worker, backend_pid, tasks))


def _held_by_everybody(self: Postgres, _session: Session, values: dict[str, list[int]]) -> Answer:
    return [{"id": task_id} for task_id in values["tasks"]]


def _no_one_freezes(workers: list[Seen], *_values: object, **_more: object) -> list[Lost]:
    return [Lost(seen, "crashed") for seen in workers if seen.gone]


_acquire = Postgres._acquire

MUTATIONS: dict[str, tuple[str, Callable[..., object], str]] = {
    "no fence": ("control.simulation.postgres.Postgres._commit", _commit_without_a_fence, "committed"),
    "no new epoch": ("control.simulation.postgres.Postgres._acquire", _acquire_without_a_new_epoch, "given out again"),
    "no lock": ("control.simulation.postgres.Postgres._lock_tasks", _held_by_everybody, "no owner"),
    "nobody is frozen": ("jeet.control.coordinator.judge", _no_one_freezes, "after the last fault"),
    "nothing is assigned": ("jeet.control.coordinator.assign_by_plugin", lambda *_: {}, "after the last fault"),
}


@pytest.mark.parametrize(("where", "what", "says"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_guard_that_is_taken_away_is_missed(where: str, what: Callable[..., object], says: str) -> None:
    with patch(where, what):
        seed = next((seed for seed in range(100) if run(plan(seed)).broken is not None), None)
        assert seed is not None
        told = report(plan(seed))
    assert says in told
    assert f"seed {seed}:" in told
