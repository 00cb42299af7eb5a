"""The doors that input comes in by, as functions: many texts in, for each why it was refused, or None."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from typing import Any

import psycopg

from jeet.errors import Refused
from jeet.sandbox.gate import check_column, check_json
from jeet.stream.append import Producer
from jeet.testing import LocalFunction

Codes = list[str | None]
CANNOT_BE_SENT = "22021"
"""the SQLSTATE by which Postgres itself refuses a text: a NUL, or no UTF-8"""


def exact(text: str | bytes) -> Any:
    """What a JSON text says, with nothing lost: equal for two texts only if every reader would take them alike."""
    return _exact(json.loads(text, parse_int=_number, parse_float=_number))


def exact_value(value: Any) -> Any:
    """The same for a Python value."""
    return exact(json.dumps(value))


class _Number(float):
    """A number that is equal to numbers only."""


def _number(text: str) -> _Number:
    value = _Number(text)
    assert math.isfinite(value)
    return value


def _exact(value: Any) -> Any:
    match value:
        case dict():
            return {name: _exact(inner) for name, inner in value.items()}
        case list():
            return [_exact(inner) for inner in value]
        case _Number():
            return ("number", float(value) + 0.0)  # -0 is 0
    return value


def gate(texts: Sequence[bytes]) -> Codes:
    return [None if (verdict := check_json(text)) is None else verdict.code for text in texts]


def column(texts: Sequence[bytes]) -> Codes:
    """What a hostile guest returns as text, among good lines; whether it is JSON at all is for the database's cast."""
    codes: Codes = []
    for text in texts:
        lines = b"\n".join([b'{"good":1}', text.replace(b"\n", b" "), b"2"])
        verdict = check_column(lines, 2**20, size_name="event_bytes")
        assert verdict is None or verdict.line in (0, 1)
        codes.append(None if verdict is None else verdict.code)
    return codes


def event_fault(db: psycopg.Connection, texts: Sequence[bytes]) -> Codes:
    return [_code(_value(db, "select jeet_internal.event_fault(convert_from(%s, 'UTF8'))", text)) for text in texts]


def publish(db: psycopg.Connection, stream: str, texts: Sequence[bytes]) -> Codes:
    return [_code(_value(db, f"select jeet.publish('{stream}', convert_from(%s, 'UTF8'))", text)) for text in texts]


def publish_json(db: psycopg.Connection, stream: str, texts: Sequence[bytes]) -> Codes:
    call = f"select jeet.publish('{stream}', convert_from(%s, 'UTF8')::json)"
    return [_code(_value(db, call, text)) for text in texts]


def publish_many(db: psycopg.Connection, stream: str, texts: Sequence[bytes]) -> Codes:
    """All at once; texts that no json[] can hold must not be among them."""
    rows = db.execute(
        "select error from jeet.publish_many(%s, %s::text[]::json[]) order by ord",
        (stream, [text.decode() for text in texts]),
    )
    return [_code(error) for (error,) in rows]


def publish_texts(db: psycopg.Connection, stream: str, texts: Sequence[bytes]) -> Codes:
    rows = db.execute(
        "select error from jeet.publish_texts(%s, %s) order by ord", (stream, [text.decode() for text in texts])
    )
    return [_code(error) for (error,) in rows]


def publish_lines(db: psycopg.Connection, stream: str, texts: Sequence[bytes]) -> Codes:
    row = db.execute(
        "select refused, reasons from jeet.publish_lines(%s, %s)", (stream, b"\n".join(texts).decode())
    ).fetchone()
    assert row is not None
    found = dict(zip(*row, strict=True))
    return [_code(found.get(number)) for number in range(1, len(texts) + 1)]


async def file(url: str, stream: str, texts: Sequence[bytes], **paths: str) -> Codes:
    refused: dict[int, str] = {}

    def note(one: Refused) -> None:
        assert one.line is not None
        assert one.code in str(one)
        refused[one.line] = one.code

    async with Producer(url) as producer:
        done = await producer.publish_lines(stream, io.BytesIO(b"\n".join(texts)), on_refused=note, **paths)
    assert (done.lines, done.refused, done.written) == (len(texts), len(refused), len(texts) - len(refused))
    return [refused.get(number) for number in range(1, len(texts) + 1)]


async def python(url: str, stream: str, events: Sequence[object], **beside: Sequence[Any]) -> Codes:
    async with Producer(url) as producer:
        placed = await producer.publish_many(stream, events, **beside)
    return [one.code if isinstance(one, Refused) else None for one in placed]


def dev(function: LocalFunction, texts: Sequence[bytes]) -> Codes:
    """Texts that are UTF-8: files are cut into lines by the same reader as `publish`."""
    return [None if (one := function.refusal(text.decode())) is None else one.code for text in texts]


def _value(db: psycopg.Connection, call: str, text: bytes) -> Any:
    try:
        row = db.execute(call, (text,)).fetchone()
    except psycopg.Error as error:
        if error.sqlstate == CANNOT_BE_SENT:
            return f"{CANNOT_BE_SENT}: {error}"
        if error.sqlstate == "22P02":
            return f"not_json: {error}"
        if not (error.sqlstate or "").startswith("JT1"):
            raise
        return f"{error.diag.message_detail}: {error.diag.message_primary}"
    assert row is not None
    return row[0] if call.startswith("select jeet_internal") else None


def _code(reason: str | None) -> str | None:
    return None if reason is None else reason.split(":")[0]
