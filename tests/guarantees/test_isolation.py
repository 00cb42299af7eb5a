"""Guarantee 4: what one event does wrong disturbs no other event, task or worker; `onError` says what becomes of it."""

from __future__ import annotations

import json
import os
import signal
from functools import partial

import psutil
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish

BAD = {
    "throw": "throw new Error('no thanks')",
    "endless": "for (;;) {}",
    "memory": "const all = []; for (;;) all.push(new Array(1e5).fill('x'))",
    "recursion": "const f = () => f() + 1; f()",
    "rejection": "return Promise.reject(new Error('rejected'))",
}
BAD_JS = TOTALS_JS.replace(
    "  return {",
    "  " + " ".join(f"if (event.bad === '{name}') {{ {code} }}" for name, code in BAD.items()) + "\n  return {",
)
POISON_JS = TOTALS_JS.replace(
    "  return {", "  if (event.bad) { const end = Date.now() + 40000; while (Date.now() < end); }\n  return {"
)
FLAKY_JS = """export const config = { source: 'events', sink: 'tries', key: 'userId', onError: %s };
stream.map((event, context) => {
  state.seen[event.userId] = (state.seen[event.userId] || 0) + 1;
  if (event.failures) console.log(event.id, 'at', context.attempt);
  if (event.failures >= context.attempt) throw new Error(`attempt ${context.attempt}`);
  return { id: event.id, attempt: context.attempt, seen: state.seen[event.userId] };
});
"""


def outputs(cluster: Cluster, stream: str) -> list[dict[str, int]]:
    rows = cluster.sql(
        'select value::text from jeet.stream_events where stream = %s order by partition, "offset"', stream
    )
    return [json.loads(row[0]) for row in rows]


def test_each_bad_event_is_one_dead_letter_and_everything_else_is_exact(database_url: str) -> None:
    generator = Generator(seed=11, keys=30)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(BAD_JS, "totals", "--partitions=2")
        process = cluster.workers()[0].pid
        for name in BAD:
            publish(cluster.db, "events", generator.events(50))
            publish(cluster.db, "events", [{"id": -1, "userId": "u1", "amount": 1, "bad": name}])
        publish(cluster.db, "events", generator.events(50))
        cluster.drain("totals")
        dead = cluster.sql("select event::json ->> 'bad', attempts, error <> '' from jeet.dead_letters order by 1")
        assert dead == [(name, 1, True) for name in sorted(BAD)]
        assert [worker.pid for worker in cluster.workers()] == [process]
        assert cluster.value("select count(*) from jeet_internal.suspect") == 0
        cluster.db.execute("delete from jeet_internal.dead_letter")
        check_exact(cluster.db, generator)


def test_what_the_database_cannot_store_is_the_fault_of_its_event_alone(database_url: str) -> None:
    generator = Generator(seed=12, keys=30)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.db.execute("alter table jeet_internal.state add constraint picky check (value::text <> '-1')")
        publish(cluster.db, "events", generator.events(300))
        publish(cluster.db, "events", [{"id": -1, "userId": "stranger", "amount": -1}])
        publish(cluster.db, "events", generator.events(300))
        cluster.drain("totals")
        dead = cluster.sql("select event::json ->> 'userId', error from jeet.dead_letters")
        assert [row[0] for row in dead] == ["stranger"]
        assert "picky" in dead[0][1]
        cluster.db.execute("delete from jeet_internal.dead_letter")
        check_exact(cluster.db, generator)


def test_an_event_that_ends_the_process_each_time_is_set_aside(database_url: str) -> None:
    """The process is killed from outside whenever it runs this event, as the guest itself cannot do it."""
    generator = Generator(seed=13, keys=30)
    patient = {"JEET_EVENT_CPU_MS": "60000", "JEET_EVENT_WALL_MS": "90000", "JEET_MAX_ATTEMPTS": "2"}
    with Cluster(database_url, workers=1, environment=patient) as cluster:
        cluster.deploy(POISON_JS, "totals", "--partitions=1")
        publish(cluster.db, "events", generator.events(100))
        publish(cluster.db, "events", [{"id": -1, "userId": "u1", "amount": 1, "bad": True}])
        publish(cluster.db, "events", generator.events(100))
        for _ in range(10):
            victim = running_the_poison(cluster)
            if victim is None:
                break
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda victim=victim: victim not in [worker.pid for worker in cluster.workers()], "its end")
            cluster.start("worker")
        cluster.drain("totals")
        dead = cluster.sql("select event::json ->> 'bad', error from jeet.dead_letters")
        assert [row[0] for row in dead] == ["true"]
        assert "ended the worker process" in dead[0][1]
        cluster.db.execute("delete from jeet_internal.dead_letter")
        check_exact(cluster.db, generator)


def test_a_redriven_event_that_ends_the_process_each_time_goes_back_to_the_dead_letters(database_url: str) -> None:
    """Nothing else waits, so the worker that burns CPU runs it; innocents that were redriven with it go well."""
    patient = {"JEET_EVENT_CPU_MS": "60000", "JEET_EVENT_WALL_MS": "90000", "JEET_MAX_ATTEMPTS": "2"}
    failing = TOTALS_JS.replace("  return {", "  throw new Error('not yet');\n  return {")
    with Cluster(database_url, workers=1, environment=patient) as cluster:
        cluster.deploy(failing, "totals", "--partitions=1")
        events = [{"id": n, "userId": f"u{n}", "amount": 1} for n in range(3)]
        publish(cluster.db, "events", [*events, {"id": 3, "userId": "u3", "amount": 1, "bad": True}])
        cluster.drain("totals")
        cluster.deploy(POISON_JS, "totals", "--partitions=1")
        cluster.jeet("dlq", "redrive", "totals", "--all")
        burning = "select count(*) from jeet_internal.inbox where begun and attempts = %s"
        for death in range(2):
            wait_for(lambda death=death: cluster.value(burning, death), "it runs")
            victim = cluster.workers()[0].pid
            before = cpu_s(victim)
            wait_for(lambda victim=victim, before=before: cpu_s(victim) > before + 1.0, "it burns")
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda victim=victim: victim not in [worker.pid for worker in cluster.workers()], "its end")
            cluster.start("worker")
        wait_for(lambda: not cluster.value("select count(*) from jeet_internal.inbox"), "the inbox is empty")
        dead = cluster.sql('select "offset", status, attempts, error from jeet.dead_letters order by 1')
        assert [row[:3] for row in dead] == [(0, "redriven", 2), (1, "redriven", 2), (2, "redriven", 2), (3, "open", 3)]
        assert "ended the worker process 2 times" in dead[3][3]
        assert cluster.value("select sum(value::text::int) from jeet.state where collection = 'totals'") == 3


def running_the_poison(cluster: Cluster) -> int | None:
    """The worker that burns CPU while nothing is committed, or None once the event was set aside."""
    owned = (
        "select w.pid from jeet.leases l join jeet.workers w on w.id::text = l.worker::text where w.status = 'running'"
    )

    def look() -> list[int]:
        if cluster.value("select count(*) from jeet.dead_letters"):
            return [0]
        alive = [worker.pid for worker in cluster.workers()]
        return [pid for (pid,) in cluster.sql(owned) if pid in alive]

    while True:
        (pid,) = wait_for(look, "an owner or a dead letter")
        if pid == 0:
            return None
        position = committed(cluster)
        wait_for(partial(moved_or_burnt, cluster, position, pid, cpu_s(pid) + 1.0), "work or a hang")
        if committed(cluster) == position and look() == [pid]:
            return pid


def moved_or_burnt(cluster: Cluster, position: int, pid: int, most_s: float) -> bool:
    return committed(cluster) != position or cpu_s(pid) > most_s


def committed(cluster: Cluster) -> int:
    return int(cluster.value("select sum(next_offset) from jeet.checkpoints"))


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def test_on_error_retry_tries_again_in_place_and_shows_the_attempt(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(FLAKY_JS % "{ retry: 2, backoff: '50ms' }", "flaky", "--partitions=1")
        events = [{"id": n, "userId": "u", "failures": {20: 1, 21: 2, 40: 9}.get(n, 0)} for n in range(60)]
        publish(cluster.db, "events", events)
        cluster.drain("flaky")
        found = outputs(cluster, "tries")
        assert [output["id"] for output in found] == [n for n in range(60) if n != 40]
        assert {output["id"]: output["attempt"] for output in found if output["attempt"] > 1} == {20: 2, 21: 3}
        assert [output["seen"] for output in found] == list(range(1, 60))  # failed attempts left no trace
        assert cluster.sql("select event::json ->> 'id', attempts, error from jeet.dead_letters") == [
            ("40", 3, "Error: attempt 3")
        ]
        lines = [(message, level) for message, level in cluster.sql("select message, level from jeet.logs order by id")]
        assert lines == [("20 at 2", "info"), ("21 at 3", "info"), ("40 at 3", "info")]  # the last attempt's, alone


def test_on_error_halt_stops_at_the_event_and_skips_nothing(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(FLAKY_JS % "'halt'", "strict", "--partitions=1")
        publish(cluster.db, "events", [{"id": n, "userId": "u", "failures": 99 if n == 30 else 0} for n in range(60)])
        wait_for(lambda: cluster.value("select status from jeet.functions") == "failed", "the function has failed")
        assert cluster.value("select next_offset from jeet.checkpoints") == 30
        assert [output["id"] for output in outputs(cluster, "tries")] == list(range(30))
        assert "offset 30" in cluster.value("select halt_reason from jeet_internal.task")
        assert cluster.value("select count(*) from jeet.dead_letters") == 0
        cluster.deploy(FLAKY_JS % "'dead-letter'", "strict", "--partitions=1")
        cluster.drain("strict")
        assert [output["id"] for output in outputs(cluster, "tries")] == [n for n in range(60) if n != 30]


def test_a_redriven_event_runs_again_with_the_version_that_can_do_it(database_url: str) -> None:
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(FLAKY_JS % "'dead-letter'", "fixed", "--partitions=2")
        publish(
            cluster.db, "events", [{"id": n, "userId": f"u{n % 5}", "failures": 9 * (n % 10 == 3)} for n in range(50)]
        )
        cluster.drain("fixed")
        assert cluster.value("select count(*) from jeet.dead_letters where status = 'open'") == 5
        cluster.jeet("dlq", "redrive", "fixed", "--all")
        wait_for(
            lambda: cluster.value("select count(*) from jeet.dead_letters where attempts = 2") == 5, "they failed again"
        )
        assert cluster.value("select count(*) from jeet.dead_letters where status = 'open'") == 5
        cluster.deploy((FLAKY_JS % "'dead-letter'").replace("event.failures >=", "0 >="), "fixed", "--partitions=2")
        cluster.jeet("dlq", "redrive", "fixed", "--all")
        wait_for(
            lambda: cluster.value("select count(*) from jeet.dead_letters where status = 'redriven'") == 5, "redriven"
        )
        assert sorted(output["id"] for output in outputs(cluster, "tries")) == list(range(50))
        assert cluster.value("select sum((value)::text::int) from jeet.state where collection = 'seen'") == 50


def test_a_slow_function_does_not_keep_its_neighbours_waiting_for_ever(database_url: str) -> None:
    slow = TOTALS_JS.replace(
        "source: 'events', sink: 'totals'", "source: 'slow_in', sink: 'slow_out', deterministic: false"
    ).replace("stream.map(event => {", "stream.map(event => { const end = Date.now() + 40; while (Date.now() < end);")
    generator = Generator(seed=14, keys=30)
    with Cluster(database_url, workers=1, environment={"JEET_LANES": "1"}) as cluster:
        cluster.deploy(slow, "slow", "--partitions=4")
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        publish(cluster.db, "slow_in", [{"userId": f"u{n}", "amount": 1} for n in range(2000)])
        wait_for(
            lambda: cluster.value("select sum(next_offset) from jeet.checkpoints where function = 'slow'"), "slow work"
        )
        publish(cluster.db, "events", generator.events(2000))
        cluster.drain("totals", within_s=30)
        assert cluster.value("select sum(lag) from jeet.lag where function = 'slow'") > 0
        check_exact(cluster.db, generator)


TREE = {
    "type": "object",
    "required": ["id", "tags"],
    "properties": {"tags": {"type": "array", "items": {"type": "string"}}, "tree": {"$ref": "#/$defs/tree"}},
    "$defs": {
        "tree": {
            "anyOf": [
                {
                    "type": "object",
                    "required": ["kid"],
                    "properties": {"kid": {"$ref": "#/$defs/tree"}, "t": {"const": tag}},
                }
                for tag in ("a", "b")
            ]
        }
    },
}
CHECKED_JS = "export const config = { source: 'checked', sink: 'fits', input: %s };\nstream.map(event => event.id);\n"


def deep(levels: int) -> dict[str, object]:
    return {"kid": deep(levels - 1)} if levels else {"t": "c"}


def test_a_schema_that_takes_for_ever_costs_its_own_events_only(database_url: str) -> None:
    generator = Generator(seed=17, keys=30)
    with Cluster(database_url, workers=1) as cluster:
        process = cluster.workers()[0].pid
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.deploy(CHECKED_JS % json.dumps(TREE), "checked", "--partitions=2")
        publish(cluster.db, "events", generator.events(100))
        numbers = list(range(100_000))
        events = [{"id": 1, "tags": []}, {"id": 2, "tags": numbers}, {"id": 3, "tags": ["x"]}]
        events += [{"id": n, "tags": [], "tree": deep(60)} for n in (4, 5)] + [{"id": 6, "tags": ["y"]}]
        publish(cluster.db, "checked", events)
        publish(cluster.db, "events", generator.events(100))
        cluster.drain("totals")
        cluster.drain("checked")
        dead = cluster.sql("select (event::json ->> 'id')::int, error from jeet.dead_letters order by 1")
        assert [row[0] for row in dead] == [2, 4, 5]
        assert "$.tags[0]" in dead[0][1]
        assert all("(event_cpu_ms)" in row[1] for row in dead[1:])
        assert sorted(outputs(cluster, "fits")) == [1, 3, 6]
        cluster.db.execute("delete from jeet_internal.dead_letter")
        check_exact(cluster.db, generator)
        assert [worker.pid for worker in cluster.workers()] == [process]
        assert cluster.value("select count(*) from jeet.workers where status = 'lost'") == 0
        checkers = [each for each in psutil.Process(process).children() if each.name() == "jeet-schema"]
        os.kill(process, signal.SIGKILL)
        _, alive = psutil.wait_procs(checkers, timeout=10)
        assert (len(checkers), alive) == (1, [])


def test_versions_whose_schemas_are_refused_today_disturb_nobody(
    database_url: str, asked: tuple[str, list[str]]
) -> None:
    """As an earlier Jeet may have let them in: one that fetches halts, one without end condemns its events."""
    url, paths = asked
    ends = 28
    steps = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(ends)}
    doubling = {"$defs": {**steps, f"a{ends}": {"type": "object"}}, "$ref": "#/$defs/a0"}
    generator = Generator(seed=18, keys=30)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        for name, schema in (("fetching", {"$ref": url}), ("doubling", doubling)):
            source = f"export const config = {{ source: '{name}-in', input: {{}} }};\nstream.map(event => event);\n"
            cluster.deploy(source, name, "--partitions=1", f"--sink={name}-out")
            publish(cluster.db, f"{name}-in", [{"id": 1}, {"id": 2}])
            cluster.drain(name)
            cluster.db.execute(
                "update jeet_internal.function_version v set spec = jsonb_set(spec, '{input}', %s::jsonb)"
                " from jeet_internal.function f where f.id = v.function_id and f.name = %s",
                (json.dumps(schema), name),
            )
        (old,) = cluster.workers()
        old.kill()
        old.wait()
        worker = cluster.start("worker")
        for name in ("fetching", "doubling"):
            publish(cluster.db, f"{name}-in", [{"id": 3}, {"id": 4}])
        publish(cluster.db, "events", generator.events(100))
        cluster.drain("totals")
        cluster.drain("doubling")
        errors = cluster.sql("select function, error from jeet.dead_letters")
        assert [row[0] for row in errors] == ["doubling", "doubling"]
        assert all("(event_cpu_ms)" in row[1] for row in errors)
        wait_for(lambda: cluster.value("select count(*) from jeet_internal.task where status = 'halted'"), "the halt")
        reason = cluster.value("select halt_reason from jeet_internal.task where status = 'halted'")
        assert f"config.input refers to '{url}'" in reason
        assert paths == []
        assert worker.poll() is None
        cluster.db.execute("delete from jeet_internal.dead_letter")
        check_exact(cluster.db, generator)
