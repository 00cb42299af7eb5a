"""The hot statements use indexes and touch the segments concerned only, with many streams and segments beside them.

Plans of statements inside functions are told by auto_explain, with the same cached plans that workers run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from jeet.db.sql import query
from logtools import MakeStream

STREAMS = 9
PARTITIONS = 16


@dataclass
class Plans:
    """Nodes that were run, by kind and table."""

    nodes: list[tuple[str, str]] = field(default_factory=list)

    def add(self, plan: dict[str, Any]) -> None:
        if "Relation Name" in plan:
            self.nodes.append((plan["Node Type"], plan["Relation Name"]))
        for inner in plan.get("Plans", []):
            self.add(inner)

    def scans(self, table: str) -> set[str]:
        """Kinds of scans of tables whose names match."""
        return {kind for kind, name in self.nodes if re.fullmatch(table, name) and kind.endswith("Scan")}

    def tables(self, table: str) -> set[str]:
        return {name for _, name in self.nodes if re.fullmatch(table, name)}


Explain = Callable[[str, Any], Plans]


@pytest.fixture
def explain(db: psycopg.Connection, make_stream: MakeStream) -> Explain:
    """Run a statement until its plans are the cached ones, and tell the plans of all that it ran."""
    for number in range(STREAMS):
        make_stream(f"s{number}", PARTITIONS, key="k", small=True)
    make_stream("wide", 4096)  # in a small table of heads, reading all of them is the best plan
    for number in (3,):
        for part in range(4):
            keys = "\n".join(f'"{n % 12}"' for n in range(8000))
            values = "\n".join(f'{{"k":"{n % 12}","part":{part}}}' for n in range(8000))
            db.execute("select jeet_internal.append(array[%s], array[%s], array[%s])", (number + 1, keys, values))
    db.execute("insert into jeet_internal.publish_id select 1, g::text, 0, g, now() from generate_series(1, 20000) g")
    db.execute("vacuum analyze")
    seen: list[str] = []
    db.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
    try:
        db.execute("load 'auto_explain'")
    except psycopg.errors.UndefinedFile:
        pytest.skip("this server comes without auto_explain")
    for setting in (
        "auto_explain.log_nested_statements = on",
        "auto_explain.log_format = json",
        "auto_explain.log_level = notice",
        "client_min_messages = notice",
    ):
        db.execute(f"set {setting}")  # type: ignore[arg-type]

    def run(statement: str, values: Any) -> Plans:
        for _ in range(7):
            db.execute(statement, values, prepare=True)  # type: ignore[arg-type]
        db.execute("set auto_explain.log_min_duration = 0")
        seen.clear()
        db.execute(statement, values, prepare=True)  # type: ignore[arg-type]
        db.execute("set auto_explain.log_min_duration = -1")
        plans = Plans()
        for message in seen:
            if "plan:" in message:
                plans.add(json.loads(message.split("plan:", 1)[1])["Plan"])
        return plans

    return run


EVENTS = r"event(_\d+)*"
INDEX = {"Index Scan", "Index Only Scan", "Bitmap Index Scan", "Bitmap Heap Scan"}


def test_fetch_reads_by_index_and_opens_no_other_segment(explain: Explain, db: psycopg.Connection) -> None:
    head = db.execute("select max(head) from jeet_internal.head where stream_id = 4").fetchone()
    assert head is not None
    assert head[0] > 3000
    at = head[0] - head[0] % 1000 - 200  # across the border of two segments
    partition = db.execute("select partition from jeet_internal.head where stream_id = 4 order by head desc").fetchone()
    assert partition is not None
    values = ([partition[0]], [at], [400], [1000])
    plans = explain("select count(*) from jeet_internal.fetch_events(4, %s, %s, %s::int[], %s::bigint[])", values)
    segment = at // 1000
    assert plans.tables(EVENTS) == {f"event_4_{segment}", f"event_4_{segment + 1}"}
    assert plans.scans(EVENTS) <= INDEX
    assert plans.scans("head") <= INDEX
    with db.transaction():
        db.execute("select count(*) from jeet_internal.fetch_events(4, %s, %s, %s::int[], %s::bigint[])", values)
        locked = db.execute(
            "select relation::regclass::text from pg_locks"
            " where pid = pg_backend_pid() and relation::regclass::text ~ 'event_'"
        ).fetchall()
    tables = {name for (name,) in locked if not name.endswith("pkey")}
    assert tables == {f"jeet_internal.event_4{rest}" for rest in ("", f"_{segment}", f"_{segment + 1}")}


def test_append_reads_no_events_and_finds_heads_by_index(explain: Explain) -> None:
    keys, values = '"1"\n"2"\n"3"', "1\n2\n3"
    plans = explain(
        "select jeet_internal.append(array[4, 8, 9], array[%(k)s, %(k)s, %(k)s], array[%(v)s, %(v)s, %(v)s])",
        {"k": keys, "v": values},
    )
    assert plans.scans(EVENTS) == set()
    assert plans.scans("head") <= INDEX
    assert plans.scans("head")
    assert plans.scans("stream") <= INDEX | {"Seq Scan"}  # ten rows are one page


def test_publish_reads_no_events_and_finds_ids_by_index(explain: Explain) -> None:
    for statement, values in [
        ("select jeet.publish('s3', %s::text)", ('{"k":"a"}',)),
        ("select jeet.publish('s3', %s::text, id => 'x')", ('{"k":"a"}',)),
        ("select count(*) from jeet.publish_texts('s3', %s)", (['{"k":"a"}', '{"k":"b"}'],)),
        ("select count(*) from jeet.publish_texts('s3', %s, ids => '{1,2}')", (['{"k":"a"}', '{"k":"b"}'],)),
        ("select * from jeet.publish_lines('s3', %s)", ('{"k":"a"}\n{"k":"b"}',)),
    ]:
        plans = explain(statement, values)
        assert plans.scans(EVENTS) == set()
        assert plans.scans("head") <= INDEX
        assert plans.scans("publish_id") <= INDEX


def test_waiting_finds_heads_by_index(explain: Explain) -> None:
    places = {"streams": [4, 4, 8, 8], "partitions": [0, 1, 2, 3]}
    for name in ("mark_waiting", "read_heads"):
        statement = query(name).replace("$1", "%(streams)s").replace("$2", "%(partitions)s")
        plans = explain(statement, places)
        assert plans.scans("head") <= INDEX
        assert plans.scans("head")
