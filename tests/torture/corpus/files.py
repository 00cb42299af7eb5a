"""Whole files: bytes, and what each must give: values in order, then (line, code) of what is refused."""

from __future__ import annotations

from typing import Any

Expected = tuple[list[Any], list[tuple[int, str]]]

FILES: dict[str, tuple[bytes, Expected]] = {
    "y_file_plain": (b'{"n":1}\n{"n":2}\n', ([{"n": 1}, {"n": 2}], [])),
    "y_file_without_last_line_break": (b'{"n":1}\n{"n":2}', ([{"n": 1}, {"n": 2}], [])),
    "y_file_crlf": (b'{"n":1}\r\n{"n":2}\r\n', ([{"n": 1}, {"n": 2}], [])),
    "y_file_mixed_line_ends": (b'{"n":1}\r\n{"n":2}\n{"n":3}', ([{"n": 1}, {"n": 2}, {"n": 3}], [])),
    "y_file_byte_order_mark": (b'\xef\xbb\xbf{"n":1}\n', ([{"n": 1}], [])),
    "y_file_byte_order_mark_crlf": (b'\xef\xbb\xbf{"n":1}\r\n\r\n{"n":2}\r\n', ([{"n": 1}, {"n": 2}], [])),
    "y_file_empty_lines": (b'\n\n{"n":1}\n\n\n{"n":2}\n\n', ([{"n": 1}, {"n": 2}], [])),
    "y_file_blank_lines": (b'  \n\t\r\n{"n":1}\n \t \n', ([{"n": 1}], [])),
    "y_file_empty": (b"", ([], [])),
    "y_file_only_line_breaks": (b"\n\r\n\n", ([], [])),
    "y_file_only_mark": (b"\xef\xbb\xbf", ([], [])),
    "y_file_one_digit": (b"7", ([7], [])),
    "y_file_indented_lines": (b'   {"n":1}   \n\t7\t\n', ([{"n": 1}, 7], [])),
    "y_file_separators_inside_strings": ('"a\u2028b"\n"c\x85d"\n'.encode(), (["a\u2028b", "c\x85d"], [])),
    "y_file_split_characters": (("🌍é€" * 300).join('""').encode() + b"\n", (["🌍é€" * 300], [])),
    "i_file_cr_inside_a_line": (b'{"n":\r1}\n', ([{"n": 1}], [])),
    "n_file_mark_in_the_middle": (b"1\n\xef\xbb\xbf2\n3\n", ([1, 3], [(2, "not_json")])),
    "n_file_two_marks": (b"\xef\xbb\xbf\xef\xbb\xbf1\n2\n", ([2], [(1, "not_json")])),
    "n_file_cr_only_line_ends": (b"1\r2\r3\r", ([], [(1, "not_json")])),
    "n_file_pretty_printed": (b'{\n  "n": 1\n}\n', ([], [(1, "not_json"), (2, "not_json"), (3, "not_json")])),
    "n_file_array_of_events": (b'[{"n":1},\n{"n":2}]\n', ([], [(1, "not_json"), (2, "not_json")])),
    "n_file_latin1_line": (b'1\n"caf\xe9"\n3\n', ([1, 3], [(2, "not_utf8")])),
    "n_file_cut_in_a_character": (b'1\n"\xf0\x9f\x8c', ([1], [(2, "not_utf8")])),
    "n_file_cut_in_an_event": (b'1\n{"n":', ([1], [(2, "not_json")])),
    "n_file_line_of_nul": (b"11\n\0\0\0\n3\n", ([11, 3], [(2, "not_json")])),
    "n_file_ends_in_nul": (b"11\n2\0", ([11], [(2, "not_json")])),
    "n_file_two_events_on_a_line": (b"{}{}\n3\n", ([3], [(1, "not_json")])),
    "n_file_commas_at_line_ends": (b"1,\n2,\n3\n", ([3], [(1, "not_json"), (2, "not_json")])),
    "n_file_record_separators": (b'\x1e{"n":1}\n\x1e{"n":2}\n', ([], [(1, "not_json"), (2, "not_json")])),
    "n_file_long_line_between": (b"1\n" + b"x" * (3 << 20) + b"\n3\n", ([1, 3], [(2, "event_bytes")])),
    "n_file_long_blank_line": (b"1\n" + b" " * (3 << 20) + b"\n3\n", ([1, 3], [(2, "event_bytes")])),
}

NOT_TEXT: dict[str, bytes] = {
    "n_file_utf16_mark": '{"n":1}\n'.encode("utf-16"),
    "n_file_utf16_le": '{"n":1}\n'.encode("utf-16-le"),
    "n_file_utf16_be": '{"n":1}\n'.encode("utf-16-be"),
    "n_file_utf32": '{"n":1}\n'.encode("utf-32"),
    "n_file_binary": b"\0\0\0\0",
}
"""refused as a whole, with the remedy"""
