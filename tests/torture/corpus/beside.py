"""What comes beside an event or chooses its place: keys, ids, headers, times, names."""

from __future__ import annotations

from tests.torture.corpus import Case, table

KEY_TEXTS = {
    "y_key_text": ('"u1"', "u1"),
    "y_key_empty": ('""', ""),
    "y_key_blank": ('" "', " "),
    "y_key_digits": ('"7"', "7"),
    "y_key_integer": ("7", "7"),
    "y_key_zero": ("0", "0"),
    "i_key_minus_zero": ("-0", "0"),
    "y_key_negative": ("-7", "-7"),
    "y_key_largest_integer": ("9007199254740991", "9007199254740991"),
    "y_key_least_integer": ("-9007199254740991", "-9007199254740991"),
    "y_key_composed": ('"\u00e9"', "\u00e9"),
    "y_key_decomposed": ('"e\u0301"', "e\u0301"),
    "y_key_escaped": ('"\\u00e9"', "\u00e9"),
    "y_key_pair_escaped": ('"\\ud83c\\udf0d"', "🌍"),
    "y_key_line_breaks": ('"a\\nb\\r\\n"', "a\nb\r\n"),
    "y_key_controls": ('"\\u0001\\u001b[31m"', "\x01\x1b[31m"),
    "y_key_quotes": ('"\'\\";drop table x--"', "'\";drop table x--"),
    "y_key_looks_like_nul": ('"\\\\u0000"', "\\u0000"),
    "y_key_copy_marks": ('"\\\\N\\t\\\\."', "\\N\t\\."),
    "y_key_proto": ('"__proto__"', "__proto__"),
    "y_key_constructor": ('"constructor"', "constructor"),
    "y_key_null_as_text": ('"null"', "null"),
    "y_key_looks_like_float": ('"1e5"', "1e5"),
    "y_key_percent": ('"%s%n"', "%s%n"),
    "y_key_array_literal": ('"{a,b,NULL}"', "{a,b,NULL}"),
    "y_key_1024_bytes": ('"' + "k" * 1024 + '"', "k" * 1024),
    "y_key_1024_bytes_of_two_byte_characters": ('"' + "é" * 512 + '"', "é" * 512),
    "y_key_1024_bytes_escaped": ('"' + "\\u00e9" * 512 + '"', "é" * 512),
    "i_key_twice": ('"first","k":"last"', "last"),
}
"""a key as it stands in an event, {"k": …}: JSON text, and the key that it is"""

BAD_KEY_TEXTS: list[Case[str]] = table(
    {
        "n_key_1025_bytes": ('"' + "k" * 1025 + '"', "key_bytes"),
        "n_key_1026_bytes_of_two_byte_characters": ('"' + "é" * 513 + '"', "key_bytes"),
        "n_key_100_kb": ('"' + "k" * 100_000 + '"', "key_bytes"),
        "n_key_null": ("null", "key_type"),
        "n_key_true": ("true", "key_type"),
        "n_key_array": ('["u1"]', "key_type"),
        "n_key_object": ('{"id":"u1"}', "key_type"),
        "n_key_fraction": ("1.5", "key_type"),
        "n_key_fraction_zero": ("7.0", "key_type"),
        "n_key_exponent": ("7e0", "key_type"),
        "n_key_2_53": ("9007199254740992", "integer_range"),
        "n_key_nul": ('"a\\u0000b"', "nul"),
        "n_key_lone_surrogate": ('"\\ud800"', "lone_surrogate"),
        "n_key_last_is_null": ('"u1","k":null', "key_type"),
        "n_key_last_is_array": ('"u1","k":[]', "key_type"),
    }
)

GIVEN_KEYS: list[Case[object]] = table(
    {
        "n_given_key_nul": ("a\0b", "nul"),
        "n_given_key_lone_surrogate": ("\ud800", "lone_surrogate"),
        "n_given_key_half_a_pair": (
            "🌍".encode("utf-16-le")[:2].decode("utf-16-le", "surrogatepass"),
            "lone_surrogate",
        ),
        "n_given_key_1025_bytes": ("k" * 1025, "key_bytes"),
        "n_given_key_is_a_number": (7, "key_type"),
        "n_given_key_is_bytes": (b"u1", "key_type"),
        "n_given_key_is_true": (True, "key_type"),
    }
)
"""a key that a Python producer gives beside the event"""

GIVEN_IDS: list[Case[object]] = table(
    {
        "n_id_nul": ("a\0b", "nul"),
        "n_id_lone_surrogate": ("\udfff", "lone_surrogate"),
        "n_id_empty": ("", "id_bytes"),
        "n_id_1025_bytes": ("i" * 1025, "id_bytes"),
        "n_id_513_two_byte_characters": ("é" * 513, "id_bytes"),
        "n_id_is_a_number": (7, "id_type"),
        "y_id_1024_bytes": "i" * 1024,
        "y_id_blank": " ",
        "y_id_line_break": "a\nb",
        "y_id_unicode": "é🌍",
    }
)

IDS_IN_EVENTS: list[Case[str]] = table(
    {
        "n_id_path_null": ("null", "id_type"),
        "n_id_path_true": ("true", "id_type"),
        "n_id_path_object": ("{}", "id_type"),
        "n_id_path_fraction": ("1.0", "id_type"),
        "n_id_path_empty": ('""', "id_bytes"),
        "n_id_path_long": ('"' + "i" * 1025 + '"', "id_bytes"),
        "n_id_path_nul": ('"\\u0000"', "nul"),
        "y_id_path_text": '"order-1"',
        "y_id_path_number": "17",
        "y_id_path_unicode": '"é\\ud83c\\udf0d"',
    }
)
"""an id as it stands in an event, {"i": …}"""

HEADERS: list[Case[str]] = table(
    {
        "y_headers_empty": "{}",
        "y_headers_text": '{"trace":"00-ab-cd-01"}',
        "y_headers_nested": '{"a":{"b":[1,null,true,"x"]}}',
        "y_headers_unicode": '{"é":"🌍","__proto__":{"x":1}}',
        "y_headers_largest_integer": '{"n":9007199254740991}',
        "y_headers_line_break": '{"a":"x\\ny"}',
        "n_headers_array": ("[1]", "headers_type"),
        "n_headers_text": ('"x"', "headers_type"),
        "n_headers_number": ("7", "headers_type"),
        "n_headers_null": ("null", "headers_type"),
        "n_headers_integer_past_2_53": ('{"n":9007199254740992}', "integer_range"),
        "n_headers_1e20": ('{"n":1e20}', "integer_range"),
        "n_headers_1e400": ('{"n":1e400}', "number_digits"),
        "n_headers_1e_minus_300": ('{"n":1e-300}', "number_digits"),
        "n_headers_deep": ('{"a":' * 129 + "1" + "}" * 129, "depth"),
        "n_headers_16_kib": ('{"a":"' + "x" * 16384 + '"}', "headers_bytes"),
    }
)

TIMES: list[Case[str]] = table(
    {
        "y_time_epoch": "1970-01-01T00:00:00Z",
        "y_time_before_christ": "4713-01-01 BC",
        "y_time_last": "275760-09-13 00:00:00+00",
        "y_time_microseconds": "2026-01-01 00:00:00.000001+00",
        "n_time_infinity": ("infinity", "ts_range"),
        "n_time_minus_infinity": ("-infinity", "ts_range"),
        "n_time_past_javascript": ("275760-09-13 00:00:00.001+00", "ts_range"),
        "n_time_last_of_postgres": ("294276-12-31", "ts_range"),
    }
)

NAMES: list[Case[str]] = table(
    {
        "y_called_digits": "123",
        "y_called_float": "1e5",
        "y_called_none": "None",
        "y_called_underscore": "_",
        "y_called_dots": "a..b",
        "y_called_128": "n" * 128,
        "y_called_reserved_word": "select",
        "n_called_empty": ("", "name"),
        "n_called_129": ("n" * 129, "name"),
        "n_called_blank": (" ", "name"),
        "n_called_blank_inside": ("a b", "name"),
        "n_called_line_break": ("a\nb", "name"),
        "n_called_line_break_at_end": ("a\n", "name"),
        "n_called_slash": ("a/b", "name"),
        "n_called_parent": ("../../etc/passwd", "name"),
        "n_called_dot": (".", "name"),
        "n_called_minus": ("-a", "name"),
        "n_called_quote": ('a"b', "name"),
        "n_called_apostrophe": ("a'b", "name"),
        "n_called_semicolon": ("a;drop", "name"),
        "n_called_percent": ("a%b", "name"),
        "n_called_dollar": ("a$b", "name"),
        "n_called_letter_of_another_alphabet": ("оrders", "name"),
        "n_called_accent": ("café", "name"),
        "n_called_emoji": ("🌍", "name"),
        "n_called_zero_width": ("a\u200bb", "name"),
        "n_called_bidi": ("a\u202eb", "name"),
        "n_called_unit_separator": ("a\x1fb", "name"),
        "n_called_escape": ("\x1b[2J", "name"),
        "n_called_fullwidth": ("ａ", "name"),
    }
)
"""of streams and functions"""

COLLECTION_NAMES: list[Case[str]] = table(
    {
        "y_collection_dollar": "$",
        "y_collection_63": "c" * 63,
        "y_collection_word": "constructor_",
        "i_collection_proto": "__proto__",
        "i_collection_constructor": "constructor",
        "n_collection_64": ("c" * 64, "name"),
        "n_collection_empty": ("", "name"),
        "n_collection_digit": ("1a", "name"),
        "n_collection_dash": ("a-b", "name"),
        "n_collection_dot": ("a.b", "name"),
        "n_collection_nul": ("a\0", "name"),
        "n_collection_lone_surrogate": ("\ud800", "name"),
        "n_collection_unicode": ("é", "name"),
        "n_collection_line_break": ("a\n", "name"),
        "n_collection_quote": ("a'b", "name"),
    }
)
