"""The doctor names each planted trouble, and only it, with figures that match; without any, it says healthy."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.torture.cluster import wait_for

from jeet.db.keys import FUNCTION_CLASS
from jeet.db.sql import sql_root
from jeet.observe import doctor
from jeet.sandbox.plugin import BUILT_IN
from observe.conftest import Clinic


@pytest.fixture(autouse=True)
def healthy(clinic: Clinic) -> Iterator[None]:
    """Each trouble comes to a cluster that has none, and leaves it so."""
    clinic.recovers()
    clinic.began_s = time.monotonic()
    yield
    clinic.recovers()


def test_a_healthy_cluster_under_load_is_healthy(clinic: Clinic) -> None:
    events = "".join(json.dumps({"userId": f"u{n % 100}", "n": 1}) + "\n" for n in range(20_000))
    clinic.cluster.jeet("publish", "steady_in", stdin=events.encode())
    while clinic.cluster.value("select sum(lag) from jeet.lag") > 0:
        assert clinic.findings() == []
    done = clinic.cluster.jeet("doctor")
    assert done.stdout == b"healthy: no rule found anything\n"


def test_findings_are_told_in_words_and_in_figures_with_exit_code_1(clinic: Clinic) -> None:
    with psycopg.connect(clinic.cluster.url, application_name="forgotten") as client:
        client.execute("select 1")
        pid = client.info.backend_pid
        clinic.cluster.environment["PGOPTIONS"] = "-c jeet.transaction_s=0.1"
        try:
            told = clinic.cluster.jeet("doctor", ok=False)
            facts = json.loads(clinic.cluster.jeet("doctor", "--json", ok=False).stdout)
        finally:
            del clinic.cluster.environment["PGOPTIONS"]
    assert (told.returncode, told.stderr) == (1, b"")
    text = told.stdout.decode()
    for part in ("1 finding, the worst first", "likely cause", f"select pg_terminate_backend({pid})"):
        assert part in text
    assert facts["healthy"] is False
    assert [each["rule"] for each in facts["findings"]] == ["long_transaction"]
    assert facts["findings"][0]["figures"]["pid"] == pid


def test_a_transaction_that_holds_back_vacuum(clinic: Clinic) -> None:
    with psycopg.connect(clinic.cluster.url, application_name="forgotten") as client:
        client.execute("select 1")
        found = clinic.finds_only("long_transaction", transaction_s=0.2)
        assert found.figures["pid"] == client.info.backend_pid
        assert found.figures["application"] == "forgotten"


def test_a_client_that_sits_on_a_partition(clinic: Clinic) -> None:
    with psycopg.connect(clinic.cluster.url, application_name="till") as client:
        client.execute('select jeet.publish(\'steady_in\', \'{"userId": "u1", "n": 1}\')')
        found = clinic.finds_only("lock_held", lock_s=0.2, transaction_s=0.2, stuck_s=0.2)
        assert found.figures["pid"] == client.info.backend_pid
        assert "jeet_internal.head" in found.observation


def test_workers_that_time_out_while_healthy(clinic: Clinic) -> None:
    worker = clinic.cluster.workers()[0]
    name = clinic.cluster.value("select id from jeet.workers where pid = %s and status = 'running'", worker.pid)
    worker.send_signal(signal.SIGSTOP)
    wait_for(
        lambda: clinic.cluster.value("select status from jeet.workers where id = %s", name) == "lost", "declared lost"
    )
    worker.send_signal(signal.SIGCONT)
    found = clinic.finds_only("heartbeat_timeouts")
    assert (found.figures["pid"], found.figures["timeouts"]) == (worker.pid, 1)
    assert found.observation.startswith("workers time out while healthy")


def test_a_worker_that_died(clinic: Clinic) -> None:
    worker = clinic.cluster.workers()[0]
    worker.kill()
    worker.wait()
    found = clinic.finds_only("worker_lost")
    assert found.figures["pid"] == worker.pid
    told = "others run its tasks" if found.figures["tasks"] == 0 else "nobody has taken over"
    assert told in found.action
    clinic.cluster.start("worker")
    wait_for(lambda: clinic.cluster.value("select count(*) from jeet.workers where status = 'running'") == 2, "two")


def test_no_coordinator(clinic: Clinic) -> None:
    (coordinator,) = clinic.cluster.running("coordinator")
    coordinator.kill()
    coordinator.wait()
    found = clinic.finds_only("no_coordinator", leader_silent_s=2)
    assert found.figures["pid"] == coordinator.pid
    clinic.cluster.start("coordinator")


def test_a_poison_event_that_is_tried_again(clinic: Clinic) -> None:
    clinic.deploy(
        """export const config = { source: 'poison_in', key: 'k', onError: { retry: 100, backoff: '300ms' } };
        stream.map(event => { if (event.bad) throw new Error('bad'); });""",
        "poison",
    )
    clinic.publish("poison_in", '{"k": "a"}', '{"k": "a", "bad": true}', '{"k": "a"}', '{"k": "a"}')
    found = clinic.finds_only("poison_event", retry_s=0.5)
    assert {name: found.figures[name] for name in ("function", "stream", "offset", "waiting")} == {
        "function": "poison", "stream": "poison_in", "offset": 1, "waiting": 2,
    }  # fmt: skip
    assert f"partition {found.figures['partition']} of poison_in, offset 1" in found.evidence
    (command,) = re.findall(r"read it: jeet (tail [^;]*);", found.action)
    assert clinic.cluster.jeet(*command.split()).stdout == b'{"k": "a", "bad": true}\n'
    clinic.delete("poison")


def test_a_leased_task_that_does_not_move(clinic: Clinic) -> None:
    clinic.deploy(
        """export const config = { source: 'stuck_in', key: 'k' };
        stream.map(event => { for (let n = 0; n < event.n; n++) event.k += ''; });""",
        "stuck",
    )
    clinic.publish("stuck_in", '{"k": "a", "n": 1e9}', '{"k": "a", "n": 1}')
    found = clinic.finds_only("task_stuck", stuck_s=1)
    assert {name: found.figures[name] for name in ("function", "offset", "lag")} == {
        "function": "stuck", "offset": 0, "lag": 2,
    }  # fmt: skip
    worker = next(each for each in clinic.cluster.workers() if each.pid == found.figures["pid"])
    clinic.delete("stuck")
    worker.kill()
    worker.wait()
    clinic.cluster.start("worker")


def test_a_watermark_that_stalls(clinic: Clinic) -> None:
    clinic.deploy(
        """export const config = { source: 'quiet_in', key: 'k' };
        stream.keyBy(e => e.j).window({ tumbling: '1s', time: e => e.at, idle: '1h' }).count();""",
        "windows",
    )
    partition_of = {key: clinic.cluster.value("select jeet.partition_of(%s, 2)", key) for key in map(str, range(10))}
    flowing = next(key for key, partition in partition_of.items() if partition == 0)
    quiet = next(key for key, partition in partition_of.items() if partition == 1)
    clinic.publish("quiet_in", json.dumps({"k": quiet, "j": 1, "at": 1_000}))
    at = 10_000
    seen: list[doctor.Finding] = []

    def flows() -> bool:
        nonlocal at
        at += 1000
        clinic.publish("quiet_in", *(json.dumps({"k": flowing, "j": j, "at": at}) for j in range(8)))
        seen[:] = clinic.findings(watermark_s=1)
        return [finding.rule for finding in seen] == ["watermark_stalled"]

    wait_for(flows, "event time that stands still")
    (found,) = seen
    assert (found.figures["function"], found.figures["stage"]) == ("windows", 1)
    assert found.figures["held_by"] == "stage 0 partition 1"
    clinic.delete("windows")


def test_maintenance_that_is_late_or_not_scheduled(clinic: Clinic) -> None:
    db = clinic.cluster.db
    rows = db.execute(
        "delete from jeet_pgqueuer.pgqueuer_schedules returning expression, entrypoint, next_run"
    ).fetchall()
    found = clinic.finds_only("maintenance", late_s=0.5)
    assert found.observation == "no maintenance job is scheduled"
    # Nobody picks up one of another schedule than its coordinator's.
    db.execute(
        "insert into jeet_pgqueuer.pgqueuer_schedules (expression, entrypoint, next_run)"
        " values ('0 0 1 1 *', 'logs', now() - interval '1 hour')"
    )
    found = clinic.finds_only("maintenance", late_s=1800)
    assert found.figures["job"] == "logs"
    assert 3600 <= found.figures["late_s"] < 3700
    db.execute("delete from jeet_pgqueuer.pgqueuer_schedules")
    with db.cursor() as cursor:
        cursor.executemany(
            "insert into jeet_pgqueuer.pgqueuer_schedules (expression, entrypoint, next_run) values (%s, %s, %s)", rows
        )


@pytest.mark.torture  # for its time: another plugin has to be compiled
def test_workers_that_differ(clinic: Clinic, tmp_path: Path) -> None:
    # The same plugin with a section that means nothing: another hash.
    other = tmp_path / "other.wasm"
    shutil.copy(BUILT_IN, other)
    with other.open("ab") as file:
        file.write(b"\x00\x05\x04note")
    clinic.cluster.environment["JEET_JAVY_PLUGIN"] = str(other)
    worker = clinic.cluster.start("worker")
    del clinic.cluster.environment["JEET_JAVY_PLUGIN"]
    found = clinic.finds_only("mixed_workers", mixed_s=0.1)
    assert (found.figures["versions"], found.figures["plugins"]) == (1, 2)
    assert f"pid {worker.pid}" in found.evidence
    worker.terminate()
    worker.wait(20)


def test_a_stream_that_refuses_publishers_and_letters_that_nobody_read(clinic: Clinic) -> None:
    clinic.cluster.jeet("create_stream", "narrow", "--partitions=2", "--max_lag=10")
    clinic.deploy("export const config = { source: 'narrow' }; stream.map(event => event.a.b);", "narrow")
    clinic.cluster.jeet("pause", "narrow")
    clinic.publish("narrow", *["{}"] * 30)
    found = clinic.finds_only("publishers_refused")
    assert {name: found.figures[name] for name in ("stream", "max_lag", "lag")} == {
        "stream": "narrow", "max_lag": 10, "lag": 30,
    }  # fmt: skip
    assert found.action == "let it go on: jeet resume narrow"
    clinic.cluster.jeet("resume", "narrow")
    found = clinic.finds_only("dead_letters")
    assert found.figures == {"function": "narrow", "dead_letters": 30}
    clinic.delete("narrow")


def test_a_hot_key_makes_one_partition_carry_most_of_the_load(clinic: Clinic) -> None:
    clinic.cluster.deploy(
        "export const config = { source: 'skewed', key: 'k' }; stream.map(event => {});", "skewed", "--partitions=4"
    )
    clinic.cluster.sql("select jeet_internal.sample_positions()")
    events = "".join(json.dumps({"k": "hot" if n % 10 else f"k{n}"}) + "\n" for n in range(20_000))
    clinic.cluster.jeet("publish", "skewed", stdin=events.encode())
    heads = dict(clinic.cluster.sql("select partition, head from jeet.lag where function = 'skewed'"))
    hot = clinic.cluster.value("select jeet.partition_of('hot', 4)")
    wait_for(lambda: clinic.cluster.sql("select from jeet.hot_keys where key = 'hot'"), "the hot key")
    found = clinic.finds_only("data_skew", skew_per_s=10)
    assert found.observation == f"one partition carries most of the load: partition {hot} of skewed"
    assert (found.likely_cause, found.figures["key"]) == ("a hot key", "hot")
    assert found.figures["share"] == pytest.approx(heads[hot] / 20_000, abs=0.001)
    assert abs(found.figures["key_share"] - 18_000 / heads[hot]) <= found.figures["key_error"]
    code = "export const config = { source: 'skewed' }; stream.map(event => {});"
    assert "--key=… --drain" in found.action
    clinic.cluster.deploy(code, "skewed", "--key=n", "--drain")
    clinic.delete("skewed")


def test_state_that_grows_without_a_ttl(clinic: Clinic) -> None:
    config = "export const config = { source: 'growing', key: 'k', state: { kept: { ttl: '1h' } } };"
    code = """ stream.map(event => { state.seen[event.k] = 1; state.kept[event.k] = 1; });
        stream.window({ tumbling: '1d' }).count({ name: 'opened' });"""
    clinic.deploy(config + code, "growing")
    keys = iter(range(1_000_000))

    def grow() -> list[doctor.Finding]:
        clinic.publish("growing", *(json.dumps({"k": f"k{next(keys)}"}) for _ in range(200)))
        clinic.cluster.drain("growing")
        clinic.cluster.sql("select jeet_internal.measure_state(2000)")
        found = clinic.findings(growth_s=1, growth_rows=100)
        return found if [each.rule for each in found] == ["state_growth"] * 2 else []

    by_collection = {each.figures["collection"]: each for each in wait_for(grow, "growth, and nothing else")}
    assert by_collection.keys() == {"opened", "seen"}
    found = by_collection["seen"]
    assert found.figures["function"] == "growing"
    assert found.figures["rows"] == next(keys)
    assert found.figures["rows_per_hour"] > 0
    assert "state TTL" in found.action
    # A TTL would take values out of windows that are still open.
    assert "--watermarks" in by_collection["opened"].action
    assert "ttl" not in by_collection["opened"].action
    clinic.delete("growing")


@pytest.mark.torture  # for its time: figures have to show that lanes were busy
def test_workers_too_few_for_what_arrives(clinic: Clinic) -> None:
    clinic.cluster.deploy(
        """export const config = { source: 'flood', key: 'k' };
        stream.map(event => { for (let n = 0; n < 100000; n++) event.n += n; });""",
        "slow",
        "--partitions=8",
    )
    clinic.cluster.sql("select jeet_internal.sample_positions()")
    clinic.publish("flood", *(json.dumps({"k": f"k{n}", "n": 0}) for n in range(20_000)))
    found = clinic.finds_only("too_few_workers", behind_s=1, busy_share=0.5)
    assert (found.figures["function"], found.figures["workers"], found.figures["tasks"]) == ("slow", 2, 8)
    assert found.figures["lag"] <= clinic.cluster.value("select sum(head) from jeet.lag where function = 'slow'")
    assert found.figures["arrival_per_s"] > found.figures["processed_per_s"] > 0
    assert found.figures["busy"] >= 0.5
    clinic.delete("slow")


@pytest.mark.parametrize(
    ("workers", "lanes", "everyone", "tasks", "arrival", "processed", "more"),
    [
        (2, 4, 20, 20, 300, 100, 4),  # as many as the rates ask for
        (2, 4, 8, 8, 1000, 100, 2),  # but no more than have a task to run
        (2, 4, 4, 4, 1000, 100, 0),  # each task has a lane
        (2, 8, 2, 2, 1000, 100, 0),
        (1, 2, 100, 4, 1000, 100, 2),  # others may move away, and this one has four
        (2, 4, 20, 20, 101, 100, 1),
    ],
)
def test_no_more_workers_are_asked_for_than_can_help(
    db: psycopg.Connection, workers: int, lanes: int, everyone: int, tasks: int, arrival: int, processed: int, more: int
) -> None:
    given = (workers, lanes, everyone, tasks, arrival, processed)
    assert db.execute("select jeet_internal.workers_wanted(%s, %s, %s, %s, %s, %s)", given).fetchone() == (more,)


def test_a_worker_whose_clock_is_wrong(clinic: Clinic) -> None:
    db = clinic.cluster.db
    worker, offset_ms = clinic.cluster.sql(
        "select max(id), max(clock_offset_ms) from jeet.workers where status = 'running'"
    )[0]
    db.execute("update jeet_internal.worker_figures set clock_offset_ms = 90000 where worker_id = %s", (worker,))
    found = clinic.finds_only("clocks")
    assert (found.figures["worker"], found.figures["offset_s"]) == (worker, 90)
    db.execute("update jeet_internal.worker_figures set clock_offset_ms = %s where worker_id = %s", (offset_ms, worker))


def test_a_change_that_takes_long_is_no_trouble(clinic: Clinic) -> None:
    cluster = clinic.cluster
    with psycopg.connect(cluster.url, autocommit=True) as change:
        (function,) = cluster.sql("select id from jeet_internal.function where name = 'steady'")[0]
        change.execute("select pg_advisory_lock(%s, %s)", (FUNCTION_CLASS, function))
        cluster.sql("select jeet_internal.fence_tasks(%s)", function)
        wait_for(
            lambda: (
                cluster.value("select count(worker_id) from jeet_internal.task where function_id = %s", function) == 0
            ),
            "tasks without an owner",
        )
        assert clinic.findings(unowned_s=0, stuck_s=0) == []
    clinic.recovers(unowned_s=0)


def test_a_lock_table_that_is_too_small(clinic: Clinic) -> None:
    tasks = clinic.cluster.value("select count(*) from jeet_internal.task")
    found = clinic.finds_only("lock_table", locks_share=1e-6)
    assert found.figures["tasks"] == tasks
    assert found.figures["need"] >= tasks
    assert found.figures["setting"] == int(clinic.cluster.value("show max_locks_per_transaction"))


def test_each_rule_is_told_and_each_threshold_that_a_rule_reads_exists(clinic: Clinic) -> None:
    findings = (sql_root() / "functions" / "findings.sql").read_text()
    told = re.findall(r"select \d+, '(\w+)', r\.\* from jeet_internal\.rule_(\w+) r", findings)
    rules = {path.stem: path.read_text() for path in (sql_root() / "rules").glob("*.sql")}
    assert sorted(told) == sorted((name, name) for name in rules)
    known = {row[0] for row in clinic.cluster.sql("select name from jeet.thresholds")}
    used = {name for text in rules.values() for name in re.findall(r"threshold(?:_span)?\('(\w+)'\)", text)}
    assert used | {"clock_s"} == known


def test_what_takes_a_client_to_see(db: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.examine(db, database_url) == []
    assert abs(doctor.clock_offset(db)[0]) < 1
    monkeypatch.setattr(doctor, "is_direct", lambda db, other: False)
    monkeypatch.setattr(doctor, "clock_offset", lambda db: (-90.0, 0.01))
    pooler, clocks = doctor.examine(db, database_url)
    assert (pooler.rule, clocks.rule) == ("pooler", "clocks")
    assert "90.0 s behind the database's" in clocks.observation
    assert clocks.figures == {"offset_s": -90.0, "error_s": 0.01}
