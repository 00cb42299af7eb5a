"""Which code a task runs: the version that was deployed last, compiled for the plugin of this worker."""

from __future__ import annotations

from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish

from jeet.sandbox.plugin import BUILT_IN

OWNERS = "select l.function from jeet.leases l join jeet.workers w on w.id::text = l.worker::text where w.pid = %s"


def test_bytecode_of_another_plugin_is_made_anew_from_the_source(database_url: str) -> None:
    generator = Generator(seed=41, keys=10)
    with Cluster(database_url, workers=0) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.db.execute("update jeet_internal.function_version set plugin_hash = 'older', bytecode = 'useless'")
        cluster.start("worker")
        publish(cluster.db, "events", generator.events(200))
        cluster.drain("totals")
        check_exact(cluster.db, generator)


def test_a_version_without_source_for_another_plugin_is_refused_with_the_remedy(database_url: str) -> None:
    with Cluster(database_url, workers=0) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        cluster.db.execute("update jeet_internal.function_version set plugin_hash = 'older', source = null")
        cluster.start("worker")
        wait_for(lambda: cluster.value("select status from jeet.functions") == "failed", "it has failed")
        reason = cluster.value("select max(halt_reason) from jeet_internal.task")
        assert "deploy its .js" in reason


def test_while_a_plugin_is_exchanged_functions_without_source_run_on_the_workers_that_have_theirs(
    database_url: str,
) -> None:
    generator = Generator(seed=42, keys=10)
    with Cluster(database_url, workers=1) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=4")
        cluster.deploy(
            TOTALS_JS.replace("'events'", "'others'").replace("'totals'", "'sums'"), "sums", "--partitions=4"
        )
        cluster.db.execute("update jeet_internal.function_version set source = null where function_id = 1")
        other = cluster.folder / "other.wasm"
        other.write_bytes(BUILT_IN.read_bytes() + b"\0\x06\x05other")  # one custom section more
        cluster.environment["JEET_JAVY_PLUGIN"] = str(other)
        newer = cluster.start("worker")
        wait_for(lambda: cluster.leases_of(newer.pid), "the newer worker has its share")
        publish(cluster.db, "events", generator.events(200))
        cluster.drain("totals", within_s=30)
        assert cluster.value("select count(distinct plugin_hash) from jeet_internal.worker") == 2
        assert cluster.value("select count(*) from jeet.functions where status = 'running'") == 2
        assert set(cluster.sql(OWNERS, newer.pid)) == {("sums",)}
        check_exact(cluster.db, generator)


def test_a_worker_halts_no_task_that_another_worker_can_run(database_url: str) -> None:
    """It is assigned by hand, as by a coordinator that did not know the plugins."""
    with Cluster(database_url, workers=0) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=1")
        _, leader, _ = cluster.processes[0]
        leader.terminate()
        leader.wait()
        cluster.db.execute("update jeet_internal.function_version set plugin_hash = 'older', source = null")
        cluster.db.execute(
            "insert into jeet_internal.worker (host, pid, version, plugin_hash, backend_pid, backend_start)"
            " values ('there', 1, '1', 'older', 1, now())"
        )
        process = cluster.start("worker")
        mine = (
            "insert into jeet_internal.assignment select t.id, w.id from jeet_internal.task t, jeet_internal.worker w"
        )
        wait_for(lambda: cluster.db.execute(f"{mine} where w.pid = {process.pid}").rowcount, "it is assigned")
        wait_for(lambda: "task left to a worker that has its plugin" in cluster.log_of("worker"), "it is refused")
        assert cluster.sql("select status, worker_id from jeet_internal.task") == [("running", None)]
        cluster.db.execute("update jeet_internal.worker set status = 'lost' where plugin_hash = 'older'")
        wait_for(lambda: cluster.value("select status from jeet.functions") == "failed", "nobody can run it")


def test_a_version_that_cannot_be_loaded_holds_up_no_other(database_url: str) -> None:
    generator = Generator(seed=43, keys=10)
    with Cluster(database_url, workers=0) as cluster:
        cluster.deploy(TOTALS_JS.replace("'totals'", "'sums'"), "sums", "--partitions=2")
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        spec = "update jeet_internal.function_version set spec = spec %s where function_id = 1"
        cluster.db.execute(spec % """|| '{"limits": {"not_known_yet": 1}}'""")
        cluster.start("worker")
        publish(cluster.db, "events", generator.events(200))
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert cluster.value("select count(*) from jeet_internal.worker") == 1
        assert "cannot be loaded" in cluster.log_of("worker")
        cluster.db.execute(spec % "- 'limits'")
        cluster.drain("sums")
