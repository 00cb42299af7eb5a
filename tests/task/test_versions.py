"""Which code a task runs: the version that was deployed last, compiled for the plugin of this worker."""

from __future__ import annotations

from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish


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
