"""Producers that repeat themselves: two with the same ids, outcomes unknown, a file begun again in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time

import psycopg
import pytest

from .cluster import JEET, Cluster
from .figures import Figures
from .oracle import MIXED_JS, Generator, check_exact
from .proxy import Proxy

pytestmark = pytest.mark.torture


def test_events_published_again_and_again_with_their_ids_count_once(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    generator, chance = Generator(seed, keys=50, mixed=True), random.Random(seed)
    events = generator.events(500 * rounds)
    # Order of a key is the order of its first publishing, so each key's events go out in one call.
    with Cluster(database_url, workers=1) as cluster, Proxy(database_url) as proxy:
        cluster.deploy(MIXED_JS, "totals", "--partitions=4")
        sent = [0, 0]
        failures: list[BaseException] = []

        def produce(number: int) -> None:
            try:
                _publish_through(proxy.url, events, sent, number)
            except BaseException as error:
                failures.append(error)
                raise

        producers = [threading.Thread(target=produce, args=(number,)) for number in (0, 1)]
        for producer in producers:
            producer.start()
        cuts = 0
        while any(producer.is_alive() for producer in producers):
            time.sleep(chance.uniform(0.05, 0.3))
            proxy.cut()
            cuts += 1
        assert failures == []
        # The same file, given up twice in its middle, then whole.
        file = cluster.folder / "events.ndjson"
        file.write_text("".join(json.dumps(event) + "\n" for event in events))
        for _ in range(2):
            half = subprocess.Popen(
                [JEET, "publish", "events", str(file), "--id_field=id"],
                env=cluster.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(chance.uniform(0.2, 0.6))
            os.kill(half.pid, signal.SIGKILL)
            half.wait()
        cluster.jeet("publish", "events", str(file), "--id_field=id")
        cluster.drain("totals")
        check_exact(cluster.db, generator)
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'events'") == len(events)
    figures.add(
        "publishing cut or repeated", cuts + 3, events=len(events), note=f"{sum(sent):,} sent, {len(events):,} stored"
    )


def _publish_through(url: str, events: list[dict[str, object]], sent: list[int], number: int) -> None:
    """All events in order, each call made again until it is answered."""
    db: psycopg.Connection | None = None
    for start in range(0, len(events), 50):
        part = events[start : start + 50]
        while True:
            try:
                db = db or psycopg.connect(url, autocommit=True, connect_timeout=5)
                sent[number] += len(part)
                db.execute(
                    "select * from jeet.publish_many('events', %s::json[], null, %s::text[])",
                    ([json.dumps(event) for event in part], [str(event["id"]) for event in part]),
                )
                break
            except psycopg.OperationalError:
                db = None
