"""One gate for JSON text, one verdict at every door: publish, outputs, state.

Refused by name: NUL and lone surrogates (in strings and names), integers past 2^53-1, numbers of more digits or a
larger exponent than the limits, numbers that no double comes near, nesting deeper than the limit, texts longer than the
limit, and what is not JSON (NaN, Infinity, control characters, trailing text).
A column of the guest's own making is scanned as bytes for the rare marks, and only the hits are looked at closely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NoReturn

from jeet.limits import DEFAULTS
from jeet.sandbox.limits import Limits

MAX_INTEGER = DEFAULTS["integer_range"]
_DEFAULT = Limits()
_SMALLEST = Decimal("1e-308")  # below, doubles lose digits one by one and end as 0


@dataclass(frozen=True)
class Verdict:
    """Why a text was refused: `code` names the limit or rule, `message` says what and where."""

    code: str
    message: str
    line: int = 0
    """which line of a column, from 0"""

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


# Marks that honest JSON rarely has. The quick look is by translation and search, at the speed of memory; on a hit the
# expressions look at the same bytes, and only on their hit each line is parsed.
_ESCAPES = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_LONG_INTEGER = re.compile(rb"(?<![\d.eE+])\d{16,}(?![\d.eE])")
_LONG_NUMBER = re.compile(rb"\d[\d.eE+-]{40,}|[eE][+-]?\d{3,}")
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_SIXTEEN = b"0" * 16
_LONG_FRACTION = b"." + _SIXTEEN  # what most binary fractions look like
_TOO_LONG_FRACTION = b"." + b"0" * 24  # with 15 digits before it and two of an exponent, more than 40
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EXPONENT, _EXPONENT_PLUS, _EXPONENT_MINUS = b"e000", b"e+000", b"e-000"
_NOT_DEPTH = bytes(set(range(256)) - set(b"[]{}\n"))
_DEPTH_STEPS = bytes.maketrans(b"{}", b"[]")
_LEVELS_PEELED = 6


def check_json(
    text: str | bytes, limits: Limits = _DEFAULT, *, size_limit: int | None = None, size_name: str = "event_bytes"
) -> Verdict | None:
    """Judge one JSON text from outside, completely; None if it is good. `size_name`: the limit that bounds it."""
    try:
        data = text.encode() if isinstance(text, str) else text
        if isinstance(text, bytes):
            text = text.decode()
    except UnicodeEncodeError:
        return Verdict("lone_surrogate", "holds a lone surrogate (half of a character)")
    except UnicodeDecodeError as error:
        return Verdict("not_utf8", f"is not UTF-8 at byte {error.start}")
    most = limits.event_bytes if size_limit is None else size_limit
    if len(data) > most:
        return Verdict(size_name, f"has {len(data)} bytes, more than {most}")
    if _deepest(data) > limits.depth and (verdict := _examine_depth(data, limits.depth)) is not None:
        return verdict
    if _ESCAPES.search(data) and (verdict := _examine_escapes(data)) is not None:
        return verdict
    numbers = _Numbers(limits)
    try:
        json.loads(text, parse_int=numbers.integer, parse_float=numbers.real, parse_constant=numbers.constant)
    except _NumberRefused as refused:
        return refused.verdict
    except RecursionError:
        return Verdict("depth", f"is nested deeper than {limits.depth} levels")
    except ValueError as error:
        message = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Verdict("not_json", f"is not JSON: {message[:1].lower()}{message[1:]}{at}")
    return None


def check_column(
    column: bytes, size_limit: int, limits: Limits = _DEFAULT, *, size_name: str = "output_bytes"
) -> Verdict | None:
    """Judge newline-joined JSON texts that the guest's engine wrote; None if all are good.

    Whether each line is JSON at all is left to the database's cast; here it is about what the cast would let through.
    """
    if b"\0" in column:
        return Verdict("nul", "holds a NUL byte")
    suspicious = (
        (b"\\u" in column and _ESCAPES.search(column) is not None)
        or _has_odd_numbers(column)
        or _deepest(column) > limits.depth
    )
    if len(column) > size_limit:
        lengths = [len(line) for line in column.split(b"\n")]
        longest = max(lengths)
        if longest > size_limit:
            return Verdict(size_name, f"has {longest} bytes, more than {size_limit}", lengths.index(longest))
    if suspicious:
        for number, line in enumerate(column.split(b"\n")):
            if (verdict := check_json(line, limits, size_limit=size_limit, size_name=size_name)) is not None:
                return replace(verdict, line=number)
    return None


_KEY = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')


def are_keys(column: str, count: int, key_bytes: int, *, nullable: bool) -> bool:
    """Whether newline-joined texts are `count` JSON strings (or nulls) whose values have at most key_bytes of UTF-8."""
    plain = (
        "\\" not in column
        and column[0] == column[-1] == '"'
        and column.count('"') == 2 * count
        and column.count('"\n"') == count - 1
    )
    lines = column.split("\n")
    if plain and max(map(len, lines)) * 4 <= key_bytes:
        return True
    for line in lines:
        if nullable and line == "null":
            continue
        if not plain and _KEY.fullmatch(line) is None:
            return False
        if len(line) * 4 > key_bytes and len(json.loads(line).encode("utf-8", "surrogatepass")) > key_bytes:
            return False
    return True


def key_of(event: Any, path: Sequence[str]) -> str | Verdict | None:
    """The key that a path leads to in a parsed event, as the database reads it; None if nothing is there."""
    found = event
    for name in path:
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    if isinstance(found, str):
        key = found
    elif isinstance(found, int) and not isinstance(found, bool) and abs(found) <= MAX_INTEGER:
        key = str(found)
    else:
        return Verdict(
            "key_type",
            f"has {_short(canonical(found))} as its key {json.dumps('.'.join(path))}: a key is a string, or an integer"
            " of at most 2^53-1 in plain digits",
        )
    size, most = len(key.encode("utf-8", "surrogatepass")), _DEFAULT.key_bytes
    return key if size <= most else Verdict("key_bytes", f"has a key of {size} bytes, more than {most}")


_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


def _has_odd_numbers(column: bytes) -> bool:
    """Whether a number outside strings may be too long: first at the speed of memory, then without the strings."""
    if not _looks_odd(column):
        return False
    bare = _STRING.sub(b"", column)
    return _looks_odd(bare) and (_LONG_INTEGER.search(bare) is not None or _LONG_NUMBER.search(bare) is not None)


def _looks_odd(column: bytes) -> bool:
    alike = column.translate(_DIGITS_ALIKE)
    if _SIXTEEN in alike and (_TOO_LONG_FRACTION in alike or _SIXTEEN in alike.replace(_LONG_FRACTION, b".")):
        return True
    return _EXPONENT in alike or _EXPONENT_PLUS in alike or _EXPONENT_MINUS in alike


def _deepest(column: bytes) -> int:
    """An upper bound of the nesting of any line: brackets inside strings count too."""
    brackets = column.translate(_DEPTH_STEPS, _NOT_DEPTH)
    for level in range(_LEVELS_PEELED):
        if b"[" not in brackets:
            return level
        brackets = brackets.replace(b"[]", b"")
    return _LEVELS_PEELED + max(line.count(b"[") for line in brackets.split(b"\n"))


def _examine_depth(data: bytes, most: int) -> Verdict | None:
    depth = 0
    for match in re.finditer(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', data, re.DOTALL):
        mark = match.group()[:1]
        if mark in b"[{":
            depth += 1
            if depth > most:
                return Verdict("depth", f"is nested deeper than {most} levels")
        elif mark in b"]}":
            depth -= 1
    return None


_ONE_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def _examine_escapes(data: bytes) -> Verdict | None:
    waiting = -1  # where a low surrogate must follow
    for match in _ONE_ESCAPE.finditer(data):
        code = match.group(1)
        value = int(code, 16) if code is not None else -1
        low = 0xDC00 <= value <= 0xDFFF
        if waiting >= 0:
            if not low or match.start() != waiting:
                return Verdict("lone_surrogate", "holds a lone surrogate (half of a character)")
            waiting = -1
            continue
        if value == 0:
            return Verdict("nul", "holds a NUL character (\\u0000)")
        if low:
            return Verdict("lone_surrogate", "holds a lone surrogate (half of a character)")
        if 0xD800 <= value <= 0xDBFF:
            waiting = match.end()
    if waiting >= 0:
        return Verdict("lone_surrogate", "holds a lone surrogate (half of a character)")
    return None


class _NumberRefused(Exception):
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(str(verdict))


class _Numbers:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def integer(self, text: str) -> int:
        self._digits(text)
        value = int(text)
        if abs(value) > MAX_INTEGER:
            raise _NumberRefused(
                Verdict(
                    "integer_range",
                    f"holds the integer {_short(text)}, past 2^53-1, where digits are lost: send it as a string",
                )
            )
        return value

    def real(self, text: str) -> float:
        self._digits(text)
        exponent = re.search(r"[eE]([+-]?\d+)", text)
        if exponent is not None and (
            len(exponent.group(1)) > 5 or abs(int(exponent.group(1))) > self._limits.number_exponent
        ):
            raise _NumberRefused(
                Verdict(
                    "number_exponent",
                    f"holds the number {_short(text)}, whose exponent is beyond {self._limits.number_exponent}",
                )
            )
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise _NumberRefused(Verdict("number_range", f"holds the number {_short(text)}, which is too large"))
        if abs(value) <= 1e-308 and 0 < Decimal(text).copy_abs() < _SMALLEST:
            raise _NumberRefused(Verdict("number_range", f"holds the number {_short(text)}, which is too small"))
        return value

    def constant(self, text: str) -> NoReturn:
        raise _NumberRefused(Verdict("not_json", f"holds {text}, which JSON does not have"))

    def _digits(self, text: str) -> None:
        if sum(character.isdigit() for character in text) > self._limits.number_digits:
            raise _NumberRefused(
                Verdict(
                    "number_digits",
                    f"holds the number {_short(text)}, of more than {self._limits.number_digits} digits",
                )
            )


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}…"


def cut_text(text: str, limit: int) -> str:
    """Text that any database column takes: no NUL, no lone surrogates, at most `limit` bytes, cut with a mark."""
    data = text.replace("\0", "\\u0000").encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = "… [cut]"
    return data[: limit - len(mark.encode())].decode("utf-8", "ignore") + mark


def canonical(value: Any) -> str:
    """A Python value as JSON text of the same rules; ValueError for what JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("is nested too deeply (depth)") from None
