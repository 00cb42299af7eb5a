"""A key's partition is the same in SQL and in Python, on every version of Postgres."""

from __future__ import annotations

import json
import zlib

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Any text that Postgres can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
ONE_DATABASE = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ONE_DATABASE
@given(key=TEXTS, partitions=st.integers(1, 4096))
def test_sql_and_python_agree_on_the_partition_of_any_key(db: psycopg.Connection, key: str, partitions: int) -> None:
    row = db.execute(
        "select jeet.partition_of(%(key)s, %(n)s), jeet_internal.crc32_portable(convert_to(%(key)s, 'UTF8'))",
        {"key": key, "n": partitions},
    ).fetchone()
    crc = zlib.crc32(key.encode())
    assert row == (crc % partitions, crc)


@ONE_DATABASE
@given(key=st.one_of(TEXTS, st.integers(-(2**53) + 1, 2**53 - 1)))
def test_a_key_in_an_event_is_its_text_or_its_plain_decimal(db: psycopg.Connection, key: str | int) -> None:
    for text in (json.dumps(key), json.dumps(key, ensure_ascii=False)):
        assert db.execute("select jeet_internal.key_of_json(%s)", (text,)).fetchone() == (str(key),)


def test_what_is_neither_text_nor_a_safe_integer_is_no_key(db: psycopg.Connection) -> None:
    texts = ["1.0", "1e3", "9007199254740992", "-9007199254740992", "123456789012345678901", "null", "true", "[1]"]
    rows = db.execute("select t, jeet_internal.key_of_json(t) from unnest(%s::text[]) t", (texts,)).fetchall()
    assert rows == [(text, None) for text in texts]


def test_minus_zero_is_zero_as_in_javascript(db: psycopg.Connection) -> None:
    assert db.execute("select jeet_internal.key_of_json('-0')").fetchone() == ("0",)
