"""Many publishers at once, some holding their transactions open: the log has no gap and no reader skips an event."""

from __future__ import annotations

import random
import threading
import time

import psycopg
import pytest
from tests.torture.cluster import Cluster
from tests.torture.oracle import TOTALS_JS

pytestmark = pytest.mark.drill

PUBLISHERS = 32


def test_with_32_publishers_holding_transactions_open_no_event_is_skipped(database_url: str, rounds: int) -> None:
    each = 10 * rounds
    failures: list[BaseException] = []

    def publish(number: int) -> None:
        chance = random.Random(number)
        try:
            with psycopg.connect(database_url) as db:
                for index in range(each):
                    identity = number * 1_000_000 + index
                    db.execute(
                        "select jeet.publish('events', %s)",
                        (f'{{"id": {identity}, "userId": "u{chance.randrange(40)}", "amount": 1}}',),
                    )
                    if number % 4 == 0:
                        time.sleep(chance.random() * 0.3)  # the drill: an open transaction that holds an offset
                    if chance.random() < 0.1:
                        db.rollback()
                        db.execute(
                            "select jeet.publish('events', %s)",
                            (f'{{"id": {identity}, "userId": "u{chance.randrange(40)}", "amount": 1}}',),
                        )
                    db.commit()
        except BaseException as error:
            failures.append(error)
            raise

    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(TOTALS_JS, "totals", "--partitions=8")
        threads = [threading.Thread(target=publish, args=(number,)) for number in range(PUBLISHERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        cluster.drain("totals")
        published = PUBLISHERS * each
        ids = [row[0] for row in cluster.sql("select value->>'id' from jeet.stream_events where stream = 'totals'")]
        assert len(ids) == len(set(ids)) == published
        dense = cluster.sql(
            "select count(*) = max(\"offset\") + 1 from jeet.stream_events where stream = 'events' group by partition"
        )
        assert all(row[0] for row in dense)
        assert cluster.value("select sum(value::text::int) from jeet.state where function = 'totals'") == published
