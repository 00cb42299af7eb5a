"""Figures for Prometheus: /metrics of each process, read at scrape from what is counted anyway.

Promise: a scrape changes nothing and holds nothing up; it has its own thread. Names follow Prometheus's conventions,
`jeet_` first, base units. Labels name functions, stages, partitions, streams and collections; never keys or events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from jeet.db.sql import query
from jeet.errors import UsageError
from jeet.observe.collector import Look, resident_bytes
from jeet.observe.figures import Figures, TaskFigures
from jeet.telemetry import logger

log = logger(__name__)

_TASK = ("function", "stage", "partition")
_TASK_COUNTERS = {
    "events": ("jeet_processed_events", "Events processed and committed"),
    "outputs": ("jeet_output_events", "Events written and committed"),
    "bytes_in": ("jeet_processed_bytes", "Bytes of events processed and committed"),
    "batches": ("jeet_batches", "Batches committed"),
    "cut": ("jeet_cut_batches", "Batches that ended early, as their time slice was over"),
    "errors": ("jeet_failed_batches", "Batches that failed or were undone"),
    "dead_letters": ("jeet_dead_letters", "Events set aside"),
    "cpu_s": ("jeet_guest_cpu_seconds", "CPU time of the threads that ran guests"),
    "sandbox_s": ("jeet_sandbox_seconds", "Time in guest calls, reading of state left out"),
    "state_requests": ("jeet_state_requests", "Times that guests asked for state"),
    "state_misses": ("jeet_state_misses", "Keys of state that were not in the guest's cache"),
    "instances": ("jeet_instances", "Guest instances made"),
    "recycled": ("jeet_recycled_instances", "Guest instances replaced as they had grown too large"),
}
_STATEMENTS = {"fetch_s": "fetch", "state_s": "read_state", "commit_s": "commit"}

_READER = ("function", "stage", "stream")
OF_THE_WHOLE: dict[str, tuple[tuple[str, ...], str]] = {
    "jeet_lag_events": (_READER, "Events that wait"),
    "jeet_oldest_waiting_event_age_seconds": (_READER, "How long the oldest waiting event has been in the log"),
    "jeet_checkpoint_events": (_READER, "Next offsets, over all partitions: falls when a function is reset"),
    "jeet_stream_events": (("stream",), "Events ever published"),
    "jeet_stream_bytes": (("stream",), "Size on disk"),
    "jeet_stream_over_lag": (("stream",), "1 while publishers are refused"),
    "jeet_function_status": (("function", "status"), "1 for the status that the function has"),
    "jeet_unowned_tasks": (("function", "stage"), "Tasks that no worker runs"),
    "jeet_open_dead_letters": (("function",), "Dead letters that wait for somebody"),
    "jeet_watermark_delay_seconds": (("function", "stage"), "How far event time is behind the clock"),
    "jeet_state_rows": (("function", "collection"), "Entries of state, estimated"),
    "jeet_state_bytes": (("function", "collection"), "Size of state, estimated"),
    "jeet_workers": (("status",), "Workers"),
    "jeet_heartbeat_age_seconds": ((), "Longest silence of a worker that is not lost"),
    "jeet_leader_heartbeat_age_seconds": ((), "Silence of the coordinator that leads"),
    "jeet_table_bytes": (("table",), "Size of a table on disk, indexes included"),
    "jeet_table_dead_rows": (("table",), "Dead rows that vacuum has not removed"),
    "jeet_oldest_transaction_age_seconds": ((), "How long the oldest transaction has been open"),
    "jeet_notification_queue_ratio": ((), "Share of the notification queue in use"),
    "jeet_connections": ((), "Sessions in the database"),
    "jeet_transaction_ids_used": ((), "Transactions since the oldest that is not frozen"),
}
_ANSWER_MS = 5000


class WorkerMetrics(Collector):
    """Of the tasks of this process, and of the process."""

    def __init__(self, figures: Figures | None, look: Callable[[], Look], version: str, plugin: str) -> None:
        """`look` is called from another thread."""
        self._figures = figures
        self._look = look
        self._info = {"version": version, "plugin": plugin}

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("jeet_worker", "What runs here", self._info)
        yield from _process()
        yield from self._lanes()
        if self._figures is None:
            return
        # A task that was deleted and deployed again lately is there twice; a series must not be.
        tasks: dict[tuple[str, str, str], list[TaskFigures]] = {}
        for task in list(self._figures.tasks.values()):
            labels = (task.name.function, str(task.name.stage), str(task.name.partition))
            tasks.setdefault(labels, []).append(task)
        for attribute, (name, told) in _TASK_COUNTERS.items():
            counter = CounterMetricFamily(name, told, labels=_TASK)
            for labels, same in tasks.items():
                counter.add_metric(labels, sum(getattr(task, attribute) for task in same))
            yield counter
        waits = CounterMetricFamily(
            "jeet_database_seconds", "Time of waiting for the database", labels=(*_TASK, "statement")
        )
        memory = GaugeMetricFamily("jeet_guest_memory_bytes", "Memory of the guest's instance, at last", labels=_TASK)
        for labels, same in tasks.items():
            for attribute, statement in _STATEMENTS.items():
                waits.add_metric((*labels, statement), sum(getattr(task, attribute) for task in same))
            memory.add_metric(labels, sum(task.memory_bytes for task in same))
        yield waits
        yield memory

    def _lanes(self) -> Iterator[Metric]:
        look = self._look()
        yield GaugeMetricFamily("jeet_lanes", "Guests that can run at once", value=look.lanes)
        yield CounterMetricFamily(
            "jeet_busy_lane_seconds", "Time in which lanes had something to do", value=look.busy_s
        )
        yield GaugeMetricFamily("jeet_tasks", "Tasks that run here", value=len(look.tasks))


class ClusterMetrics(Collector):
    """Of the whole, read from the database at scrape."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url

    def collect(self) -> Iterator[Metric]:
        yield from _process()
        try:
            rows = self._read()
        except psycopg.Error as error:
            log.warning("figures could not be read for a scrape", error=str(error))
            rows = None
        up = GaugeMetricFamily("jeet_database_up", "1 if the database answered this scrape", value=rows is not None)
        yield up
        families = {name: GaugeMetricFamily(name, told, labels=labels) for name, (labels, told) in OF_THE_WHOLE.items()}
        for name, labels, value in rows or ():
            families[name].add_metric(labels, value)
        yield from families.values()

    def _read(self) -> list[tuple[str, list[str], float]]:
        with psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=5,
            application_name="jeet-coordinator metrics",
            options=f"-c statement_timeout={_ANSWER_MS}",
        ) as db:
            return db.execute(query("metrics")).fetchall()


def _process() -> Iterator[Metric]:
    yield GaugeMetricFamily("jeet_process_memory_bytes", "Resident memory of this process", value=resident_bytes())
    yield CounterMetricFamily("jeet_process_cpu_seconds", "CPU time of this process", value=time.process_time())


def serve(collector: Collector, host: str, port: int) -> int:
    """Answer GET /metrics from a thread of its own until the process ends; the port, found if 0 was asked for."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, _thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UsageError(
            f"figures cannot be served at {host}:{port} ({error.strerror or error}); choose another port with"
            " JEET_METRICS_PORT, or 0 for any that is free"
        ) from error
    found = int(server.server_port)
    log.info("figures are served", address=f"http://{host}:{found}/metrics")
    return found
