"""Schedules: what a seed does to a cluster, whether the promises held, and the least that breaks them.

A schedule has two parts. In the first, faults come as the seed wills: processes crash at any step, freeze and wake up,
are cut off; connections break; the server restarts, stalls, and its clock steps. Then the faults end, and within
RECOVERED_S every task must be owned and committing again, with an even and steady assignment.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from control.simulation.cluster import SETTINGS, CoordinatorProcess, Process, WorkerProcess
from control.simulation.postgres import Postgres
from control.simulation.schedule import Loop

RECOVERED_S = 12.0
"""the bound: after the last fault every task is owned and committing within this"""
STEADY_S = 1.2
"""so long the assignment must stand still afterwards"""
_LOOK_S = 0.1
FOR_EVER_S = 1e6
"""a freeze or a cut that does not end: of its process nothing is expected any more, of the others all"""


@dataclass(frozen=True)
class Fault:
    at_s: float
    kind: str
    target: int = 0
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind} (target {self.target}, value {self.value:.3f})"


@dataclass(frozen=True)
class Plan:
    """All that a schedule is made from; equal plans run alike, step by step."""

    seed: int
    workers: int
    coordinators: int
    tasks: int
    latency_s: float
    hesitation: float
    quiet_from_s: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.workers} workers, {self.coordinators} coordinators, {self.tasks} tasks",
            f"latency {self.latency_s * 1000:.1f} ms, hesitation {self.hesitation}",
            *(str(fault) for fault in self.faults),
            f"{self.quiet_from_s:7.3f} s  no more faults",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    broken: str | None
    owned_s: float
    """from the last fault until every task was owned by a process that runs"""
    recovered_s: float
    """from the last fault until all was well: owned and committing, even, with a leader"""
    commits: int
    steps: int
    trace: tuple[str, ...] = ()


class Run:
    """One schedule."""

    def __init__(self, plan: Plan, *, trace: bool = False) -> None:
        self.plan = plan
        self.loop = Loop(Random(f"{plan.seed} order"), hesitation=plan.hesitation)
        self.server = Postgres(self.loop, plan.tasks)
        self.processes: list[Process] = []
        self._names = 0
        self._owned_s = self._recovered_s = 0.0
        self._trace: list[str] | None = [] if trace else None

    def run(self) -> Outcome:
        for _ in range(self.plan.coordinators):
            self._start(CoordinatorProcess)
        for _ in range(self.plan.workers):
            self._start(WorkerProcess)
        for fault in self.plan.faults:
            self.loop.at(fault.at_s, self.loop.world, self._strike, fault)
        listener = _Log(self)
        listener.attach(tracing=self._trace is not None)
        try:
            self.loop.run(self.plan.quiet_from_s)
            broken = None if self.loop.errors else self._recover()
        finally:
            listener.detach()
            self.loop.hush()
            self.loop.end()
        broken = self.loop.errors[0] if self.loop.errors else broken
        return Outcome(
            broken, self._owned_s, self._recovered_s, self.server.commits, self.loop.steps, tuple(self._trace or ())
        )

    def note(self, text: str) -> None:
        if self._trace is not None:
            self._trace.append(f"{self.loop.time():8.3f} s  {text}")

    def _start(self, kind: Callable[..., Process]) -> None:
        self._names += 1
        word = "worker" if kind is WorkerProcess else "coordinator"
        name = f"{word} {self._names}"
        self.processes.append(kind(name, self.loop, self.server, self.plan.latency_s))
        self.note(f"{name} starts")

    def _living(self, kind: type[Process]) -> list[Process]:
        return [each for each in self.processes if each.alive and not each.gone and isinstance(each, kind)]

    # ---- faults ----

    def _strike(self, fault: Fault) -> None:
        self.note(f"FAULT {fault.kind} (target {fault.target}, value {fault.value:.3f})")
        getattr(self, f"_{fault.kind}")(fault)

    def _victim(self, fault: Fault, kind: type[Process] = Process) -> Process | None:
        living = self._living(kind)
        return living[fault.target % len(living)] if living else None

    def _crash(self, fault: Fault) -> None:
        """At any step: the process dies after so many more of its callbacks, and is started again later or never."""
        if (victim := self._victim(fault)) is not None:

            def die() -> None:
                if victim.alive:
                    self.note(f"{victim.name} dies")
                    victim.crash()
                    if fault.value > 0:
                        self.loop.at(self.loop.time() + fault.value, self.loop.world, self._start, type(victim))

            actor = victim.actors[fault.target % len(victim.actors)]
            actor.fuse = (1 + fault.target % 17, die)

    def _kill(self, fault: Fault) -> None:
        """Now, and for good."""
        if (victim := self._victim(fault)) is not None:
            victim.crash()

    def _freeze(self, fault: Fault) -> None:
        if (victim := self._victim(fault)) is not None:
            self.note(f"{victim.name} freezes")
            victim.freeze(fault.value)
            victim.gone = fault.value >= FOR_EVER_S

    def _stall(self, fault: Fault) -> None:
        """One thread only: a guest that keeps the main loop busy, or a heartbeat that gets no time."""
        if (victim := self._victim(fault, WorkerProcess)) is not None:
            actor = victim.actors[fault.target % len(victim.actors)]
            self.note(f"{actor.name} stalls")
            self.loop.freeze(actor, fault.value)

    def _cut(self, fault: Fault) -> None:
        if (victim := self._victim(fault)) is not None:
            self.note(f"{victim.name} is cut off")
            victim.link.healed_at_s = self.loop.time() + fault.value
            victim.gone = fault.value >= FOR_EVER_S

    def _reset(self, fault: Fault) -> None:
        if (victim := self._victim(fault)) is not None and victim.connections:
            victim.connections[fault.target % len(victim.connections)].breaks()

    def _end_session(self, fault: Fault) -> None:
        """An administrator, or the server, ends any one session."""
        sessions = sorted(self.server.sessions)
        if sessions:
            session = self.server.sessions[sessions[fault.target % len(sessions)]]
            self.note(f"the session of {session.application} ends (pid {session.pid})")
            self.server.end(session)

    def _restart_server(self, fault: Fault) -> None:
        self.server.restart(fault.value)

    def _freeze_server(self, fault: Fault) -> None:
        self.loop.freeze(self.server.actor, fault.value)

    def _step_clock(self, fault: Fault) -> None:
        self.server.clock_offset_s += fault.value

    def _sit_on_rows(self, fault: Fault) -> None:
        """A process that has frozen inside a transaction: a worker of old, or somebody's psql."""
        tasks = sorted(self.server.tasks)
        application = "jeet-worker commit" if fault.target % 2 else "psql"
        self.server.sit_on(tasks[fault.target % len(tasks) :], application, fault.value)

    def _change(self, _fault: Fault) -> None:
        self.server.bump_all()

    def _scale_up(self, fault: Fault) -> None:
        self._start(CoordinatorProcess if fault.target % 4 == 0 else WorkerProcess)

    def _scale_down(self, fault: Fault) -> None:
        if (victim := self._victim(fault)) is not None:
            self.note(f"{victim.name} is told to stop")
            victim.gone = True
            self.loop.at(self.loop.time(), victim.main, victim.stop)  # type: ignore[attr-defined]

    # ---- afterwards ----

    def _recover(self) -> str | None:
        """See how long it takes until all is well; what is not when it takes too long."""
        began_s = self.loop.time()
        self.note("faults end")
        for process in self.processes:
            for actor in process.actors:
                actor.fuse = None
        if not self._living(WorkerProcess):
            self._start(WorkerProcess)
        if not self._living(CoordinatorProcess):
            self._start(CoordinatorProcess)
        well_since_s: float | None = None
        while not self.loop.errors:
            now_s = self.loop.time()
            unowned = self._unowned()
            if unowned is not None:
                self._owned_s = now_s + _LOOK_S - began_s
            wrong = unowned or self._uneasy(began_s)
            if wrong is None:
                well_since_s = now_s if well_since_s is None else well_since_s
                self._recovered_s = well_since_s - began_s
                if now_s - max(well_since_s, self.server.assigned_at_s) >= STEADY_S:
                    return None
            else:
                well_since_s = None
            if now_s - began_s > RECOVERED_S and well_since_s is None:
                return f"{RECOVERED_S:g} s after the last fault: {wrong}"
            if now_s - began_s > RECOVERED_S + 4 * STEADY_S:
                return "tasks are assigned now here, now there, without an end"
            self.loop.run(now_s + _LOOK_S)
        return None

    def _unowned(self) -> str | None:
        """A task that nobody who runs owns."""
        running = {process.name for process in self._living(WorkerProcess)}
        for task_id in self.server.tasks:
            owner = self.server.owner_of(task_id)
            if owner is None or owner.process not in running:
                return f"task {task_id} has no owner that runs (assigned to {self.server.assignment.get(task_id)})"
        return None

    def _uneasy(self, since_s: float) -> str | None:
        """What else is not as it should be, when all tasks are owned."""
        server = self.server
        held: dict[int, int] = {number: 0 for number, worker in server.workers.items() if worker.status == "running"}
        for task_id in server.tasks:
            owner = server.owner_of(task_id)
            assert owner is not None
            if server.assignment.get(task_id) != owner.id:
                return f"task {task_id} is owned by worker {owner.id}, assigned to {server.assignment.get(task_id)}"
            at_s, process = server.last_commit.get(task_id, (-1.0, ""))
            if at_s < since_s or process != owner.process:
                return f"task {task_id} is owned by worker {owner.id} of {owner.process}, which commits nothing"
            held[owner.id] = held.get(owner.id, 0) + 1
        if self.loop.time() - server.led_at_s > 2 * SETTINGS.heartbeat_s:
            return "no coordinator leads"
        if max(held.values()) - min(held.values()) > 1:
            return f"tasks are spread unevenly: {held}"
        return None


class _Log(logging.Handler):
    """Puts the processes' own log lines into the trace; an error that nobody foresaw breaks a promise."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._logger = logging.getLogger("jeet")

    def attach(self, *, tracing: bool) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.addHandler(self)
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO if tracing else logging.ERROR)

    def detach(self) -> None:
        self._logger.removeHandler(self)
        self._logger.level, self._logger.propagate = self._before
        self._logger.setLevel(self._before[0])

    def emit(self, record: logging.LogRecord) -> None:
        from control.simulation.schedule import ACTOR

        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        error = f" {record.exc_info[1]!r}" if record.exc_info and record.exc_info[1] else ""
        self._run.note(f"{ACTOR.get().name}: {record.getMessage()} {fields}{error}")
        if "nobody foresaw" in record.getMessage():
            self._run.loop.errors.append(f"{ACTOR.get().name}: {record.getMessage()}{error}")


# What a seed draws from: kind, weight, and the range of its value.
_KINDS: tuple[tuple[str, int, float, float], ...] = (
    ("crash", 5, -1.0, 2.0),
    ("freeze", 4, 0.1, 5.0),
    ("stall", 3, 0.1, 4.0),
    ("cut", 3, 0.1, 5.0),
    ("reset", 3, 0.0, 0.0),
    ("end_session", 3, 0.0, 0.0),
    ("restart_server", 1, 0.0, 1.0),
    ("freeze_server", 1, 0.1, 3.0),
    ("step_clock", 2, -3600.0, 3600.0),
    ("sit_on_rows", 2, 0.5, 8.0),
    ("change", 2, 0.0, 0.0),
    ("scale_up", 2, 0.0, 0.0),
    ("scale_down", 2, 0.0, 0.0),
)


def plan(seed: int) -> Plan:
    """The schedule of a seed."""
    random = Random(f"{seed} plan")
    count = random.choice([1, 1, 2, 2, 3, 4, 6])
    first_s = random.choice([0.0, 1.0, 1.0])
    over_s = random.choice([0.2, 1.0, 3.0])
    faults = []
    kinds = random.choices(_KINDS, weights=[kind[1] for kind in _KINDS], k=count)
    for kind, _, least, most in kinds:
        value = random.uniform(least, most)
        if kind == "step_clock":
            value = random.choice([value, value / 1000])
        elif kind in ("freeze", "cut") and random.random() < 0.3:
            value = FOR_EVER_S
        faults.append(Fault(first_s + over_s * random.random(), kind, random.randrange(1000), value))
    faults.sort(key=lambda fault: fault.at_s)
    lasting = [fault.at_s + fault.value for fault in faults if fault.kind != "step_clock" and fault.value < FOR_EVER_S]
    return Plan(
        seed=seed,
        workers=random.choice([1, 2, 2, 3]),
        coordinators=random.choice([1, 1, 2]),
        tasks=random.choice([1, 2, 4]),
        latency_s=random.choice([0.0005, 0.002, 0.02]),
        hesitation=random.choice([0.0, 0.0, 0.02]),
        quiet_from_s=max([first_s + over_s, *lasting]),
        faults=tuple(faults),
    )


def run(plan: Plan, *, trace: bool = False) -> Outcome:
    """Run one schedule; use inside `replaced_edges`."""
    return Run(plan, trace=trace).run()


def shortest(failing: Plan) -> Plan:
    """The failing plan without what it does not need to fail."""
    best, again = failing, True
    while again:
        again = False
        smaller = [
            replace(best, faults=best.faults[:place] + best.faults[place + 1 :]) for place in range(len(best.faults))
        ]
        smaller += [replace(best, tasks=count) for count in range(1, best.tasks)]
        smaller += [replace(best, workers=count) for count in range(1, best.workers)]
        smaller += [replace(best, coordinators=count) for count in range(1, best.coordinators)]
        smaller += [replace(best, hesitation=0.0)] if best.hesitation else []
        for candidate in smaller:
            if run(candidate).broken is not None:
                best, again = candidate, True
                break
    return best


def report(failing: Plan) -> str:
    """What a person needs to see it happen again: the seed, the least plan found, and its trace."""
    least = shortest(failing)
    outcome = run(least, trace=True)
    return "\n".join(
        [
            f"seed {failing.seed}: {outcome.broken}",
            f"see it again: JEET_SEED={failing.seed} pytest -k simulation tests/control/test_simulation.py",
            "the least that shows it:",
            str(least),
            "what happened:",
            *outcome.trace,
        ]
    )


def check(seeds: range) -> list[Outcome]:
    """Run these schedules; raises AssertionError with a report at the first one that breaks a promise."""
    outcomes = []
    for seed in seeds:
        outcome = run(plan(seed))
        if outcome.broken is not None:
            raise AssertionError(report(plan(seed)))
        outcomes.append(outcome)
        if seed % 100 == 99:
            gc.collect()
    return outcomes


assert SETTINGS.heartbeat_timeout_s < RECOVERED_S
