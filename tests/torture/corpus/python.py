"""Python values that a producer may hand over: what must arrive, or why not."""

from __future__ import annotations

import enum
import fractions
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.torture.corpus import Case, table


def cycle() -> object:
    found: list[object] = []
    found.append({"a": found})
    return found


def deep(depth: int) -> object:
    found: object = 1
    for _ in range(depth):
        found = [found]
    return found


class Colour(enum.IntEnum):
    RED = 1


GOOD: dict[str, tuple[object, Any]] = {
    "y_python_dict": ({"a": [1, 2.5, None, True, "é🌍"]}, {"a": [1, 2.5, None, True, "é🌍"]}),
    "y_python_text_is_json": ('{"a": 1}', {"a": 1}),
    "i_python_tuple": ((1, (2,)), [1, [2]]),
    "i_python_int_enum": ([Colour.RED], [1]),
    "i_python_ordered_dict": (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "i_python_minus_zero": ([-0.0], [0]),
    "y_python_largest_integer": (2**53 - 1, 2**53 - 1),
    "y_python_float": (1e300, 1e300),
    "y_python_least_normal": (2.2250738585072014e-308, 2.2250738585072014e-308),
    "y_python_text_with_line_breaks": ({"a": "x\ny\r\n\u2028"}, {"a": "x\ny\r\n\u2028"}),
    "y_python_depth_128": (deep(128), deep(128)),
    "y_python_empty_name": ({"": {}}, {"": {}}),
}

BAD: list[Case[object]] = table(
    {
        "n_python_nan": (float("nan"), "not_json"),
        "n_python_infinity": ([float("-inf")], "not_json"),
        "n_python_2_53": (2**53, "integer_range"),
        "n_python_integer_of_50_digits": (10**50, "number_digits"),
        "n_python_integer_of_5000_digits": ({"a": [10**5000]}, "number_digits"),
        "n_python_minus_5000_digits": (-(10**5000), "number_digits"),
        "n_python_subnormal": (5e-324, "number_exponent"),
        "n_python_nul": ({"a": "x\0y"}, "nul"),
        "n_python_nul_in_name": ({"x\0": 1}, "nul"),
        "n_python_lone_surrogate": (["\ud800"], "lone_surrogate"),
        "n_python_lone_surrogate_in_name": ({"\udfff": 1}, "lone_surrogate"),
        "n_python_split_pair": (["\ud83c", "\udf0d"], "lone_surrogate"),
        "n_python_name_integer": ({1: "a"}, "not_json"),
        "n_python_name_true": ([{True: 1}], "not_json"),
        "n_python_name_none": ({None: 1}, "not_json"),
        "n_python_names_that_would_meet": ({1: "a", "1": "b"}, "not_json"),
        "n_python_name_tuple": ({(1, 2): 1}, "not_json"),
        "n_python_bytes": (b"{}", "not_json"),
        "n_python_set": ([{1}], "not_json"),
        "n_python_decimal": (Decimal("1.10"), "not_json"),
        "n_python_fraction": (fractions.Fraction(1, 3), "not_json"),
        "n_python_date": ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "not_json"),
        "n_python_object": (object(), "not_json"),
        "n_python_complex": (1j, "not_json"),
        "n_python_generator": ((n for n in [1]), "not_json"),
        "n_python_cycle": (cycle(), "depth"),
        "n_python_depth_129": (deep(129), "depth"),
        "n_python_depth_100000": (deep(100_000), "depth"),
        "n_python_1_mib": ("x" * 2**20 + '"', "event_bytes"),
        "n_python_1_mib_of_items": ([0.5] * 300_000, "event_bytes"),
        "n_python_text_not_json": ("{a:1}", "not_json"),
        "n_python_text_empty": ("", "not_json"),
        "n_python_text_nul": ('"a\0b"', "not_json"),
        "n_python_text_lone_surrogate": ('"\ud800"', "lone_surrogate"),
    }
)
