"""jeet_internal.append: the commit path's way in. Order, keys and counts are kept, and nothing half done is."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logtools import MakeStream

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
GROUPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.lists(st.one_of(st.none(), TEXTS, st.sampled_from(["a", "b"])), max_size=6), st.booleans()
    ),
    max_size=6,
)
PARTITIONS = (1, 3, 8)


def append(db: psycopg.Connection, groups: list[tuple[int, str, str]], times: list[str] | None = None) -> None:
    streams, keys, values = (
        [group[0] for group in groups],
        [group[1] for group in groups],
        [group[2] for group in groups],
    )
    db.execute("select jeet_internal.append(%s, %s, %s, %s)", (streams, keys, values, times))


def time_of(number: int) -> int:
    """Some time of that number, from the year 1 to the year 9999, and many of now."""
    return (1_790_000_000_000 + number, -62_135_596_800_000 + number, 253_402_300_799_999 - number)[number % 3]


def events(db: psycopg.Connection) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
    found = defaultdict(list)
    for stream, partition, offset, key, value, ts in db.execute(
        'select stream_id, partition, "offset", key, value::text, round(extract(epoch from ts) * 1000)::bigint'
        " from jeet_internal.event order by 1, 2, 3"
    ):
        assert offset == len(found[stream, partition])
        found[stream, partition].append((key, value, ts))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(GROUPS, max_size=4))
def test_every_event_goes_to_its_keys_partition_in_the_order_given(
    db: psycopg.Connection, make_stream: MakeStream, batches: list[list[tuple[int, list[str | None], bool]]]
) -> None:
    names = [f"s{n}" for n in range(3)]
    streams = [make_stream(name, partitions) for name, partitions in zip(names, PARTITIONS, strict=True)]
    db.execute("truncate jeet_internal.event")
    db.execute("update jeet_internal.head set head = 0")
    expected: dict[tuple[int, int], list[tuple[Any, ...]]] = defaultdict(list)
    keyless: list[str] = []
    number = 0
    for batch in batches:
        groups = []
        times = []
        for index, keys, timed in batch:
            values = []
            for key in keys:
                number += 1
                values.append(str(number))
                if key is None:
                    keyless.append(str(number))
                else:
                    place = zlib.crc32(key.encode()) % PARTITIONS[index]
                    expected[streams[index], place].append((key, str(number), time_of(number) if timed else None))
            times.append("\n".join(str(time_of(int(value))) for value in values) if timed else "")
            all_null = all(key is None for key in keys)
            # As a guest writes them: escapes only where they must be, so that some groups have none.
            texts = [json.dumps(key, ensure_ascii=False) for key in keys]
            groups.append((streams[index], "" if all_null else "\n".join(texts), "\n".join(values)))
        append(db, groups, times if any(times) else None)
    found = events(db)
    keyed = {place: [row for row in rows if row[0] is not None] for place, rows in found.items()}
    assert {place: rows for place, rows in keyed.items() if rows} == dict(expected)
    assert sorted(row[1] for rows in found.values() for row in rows if row[0] is None) == sorted(keyless)
    heads = db.execute("select stream_id, partition, head from jeet_internal.head where head > 0").fetchall()
    assert {(row[0], row[1]): row[2] for row in heads} == {place: len(rows) for place, rows in found.items() if rows}


def test_what_does_not_add_up_writes_nothing(db: psycopg.Connection, make_stream: MakeStream) -> None:
    a, b = make_stream("a", 4), make_stream("b", 4)
    for groups in [
        [(a, '"k"', "1"), (b, '"k"\n"l"', "1")],  # more keys than values
        [(a, '"k"', "1"), (b, '"k"', "1\n2")],  # more values than keys
        [(a, '"k"', "1"), (b, '"k"', "")],
        [(a, '"k"', "1"), (b, "k", "1")],  # not a JSON string
        [(a, '"k"', "1"), (b, '"', "1")],
        [(a, '"k"', "1"), (b, '"k"', "{")],  # not JSON
        [(a, '"k"', "1"), (b, '"k"', "1 2")],
        [(a, '"k"', "1"), (b, '"k\\"', "1")],
        [(a, '"k"', "1"), (99, '"k"', "1")],  # no such stream
    ]:
        with pytest.raises(psycopg.Error):
            append(db, groups)
    for keys in ('"k"\n"l"', '"k"\n"k"', 'null\n"k"', '"\\u0061"\n"k"'):  # to two partitions, to one, and decoded
        for times in ("1", "1\n2\n3", "1\n", "1\nx", "1\nNaN"):
            with pytest.raises(psycopg.Error):
                append(db, [(a, keys, "1\n2")], [times])
    with pytest.raises(psycopg.Error):
        append(db, [(a, '"k"', "1")], ["1", "2"])
    for arrays in [
        ([a], ["", ""], ["1"]),
        ([a], [""], ["1", "2"]),
        ([a, None], ["", ""], ["1", "2"]),
        ([a], [None], ["1"]),
        ([a], [""], [None]),
    ]:
        with pytest.raises(psycopg.Error):
            db.execute("select jeet_internal.append(%s::int[], %s::text[], %s::text[])", arrays)
    assert events(db) == {}
    assert db.execute("select max(head) from jeet_internal.head").fetchone() == (0,)


def test_a_key_cannot_become_two_rows_or_another_column(db: psycopg.Connection, make_stream: MakeStream) -> None:
    a = make_stream("a", 1)
    keys = ["x\ty", "x\ny", "\\.", "\\N", 'q"q', "null", "{1,2}", "'); drop table x; --"]
    append(db, [(a, "\n".join(map(json.dumps, keys)), "\n".join("1" for _ in keys))])
    assert [row[0] for row in events(db)[a, 0]] == keys


def test_nothing_to_append_is_no_error(db: psycopg.Connection, make_stream: MakeStream) -> None:
    append(db, [])
    append(db, [(make_stream("a", 1), "", "")])
    assert events(db) == {}
