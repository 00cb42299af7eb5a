"""Every limit and every reason to refuse, in one table each: what the docs, the database and the sandbox go by.

A limit's name is its error code: it is in the message of whatever runs into it. SQL functions carry the numbers as
constants, each marked with its name (`1048576 /*event_bytes*/`); a test compares them with this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["event", "stream", "function", "run"]


@dataclass(frozen=True)
class Limit:
    """One limit: what it bounds, where that is enforced, and what becomes of what is beyond it."""

    name: str
    default: int
    unit: str
    what: str
    scope: Scope
    """event: at every door of a stream; stream: when one is made; function: at deploy; run: while an event runs"""
    where: str
    error: str
    """SQLSTATE, or the class of the error"""
    setting: str | None = None
    """the environment variable that changes it"""


_DOORS = "every door of a stream; `jeet dev`"
_EMIT = "what a function puts out and keeps"
_DEAD = "dead letter"

TABLE: tuple[Limit, ...] = (
    Limit("event_bytes", 1024 * 1024, "bytes", "one event as JSON text", "event", _DOORS, "JT101"),
    Limit(
        "depth",
        128,
        "levels",
        "nesting of arrays and objects",
        "event",
        f"{_DOORS}; headers; {_EMIT}",
        f"JT102; {_DEAD}",
    ),
    Limit(
        "integer_range",
        2**53 - 1,
        "",
        "an integer, to either side of 0; beyond, JavaScript loses digits",
        "event",
        f"{_DOORS}; headers; {_EMIT}",
        f"JT106; {_DEAD}",
    ),
    Limit("number_digits", 40, "digits", "one number as written", "event", f"{_DOORS}; headers", "JT107"),
    Limit(
        "number_exponent",
        308,
        "powers of ten",
        "the exponent of a number as written, to either side of 0",
        "event",
        f"{_DOORS}; headers; {_EMIT}",
        f"JT108; {_DEAD}",
    ),
    Limit(
        "key_bytes",
        1024,
        "bytes of UTF-8",
        "a key of an event or of state",
        "event",
        f"{_DOORS}; keys of outputs and of state",
        f"JT112; {_DEAD}",
    ),
    Limit("id_bytes", 1024, "bytes of UTF-8", "an event's id", "event", "publish", "JT116"),
    Limit("headers_bytes", 16 * 1024, "bytes", "an event's headers as JSON text", "event", "`jeet.publish`", "JT118"),
    Limit("stream_name_chars", 128, "characters", "the name of a stream", "stream", "create_stream, deploy", "JT130"),
    Limit("partitions", 4096, "partitions", "of one stream", "stream", "create_stream, deploy", "JT130"),
    Limit("key_path_bytes", 256, "bytes", "the path of a stream's key", "stream", "create_stream, deploy", "JT130"),
    Limit("file_bytes", 16 * 1024 * 1024, "bytes", "a file that deploy reads", "function", "deploy", "DeployError"),
    Limit("source_bytes", 1024 * 1024, "bytes", "source of one function", "function", "deploy", "DeployError"),
    Limit("function_name_chars", 128, "characters", "the name of a function", "function", "deploy", "DeployError"),
    Limit(
        "collections",
        64,
        "collections",
        "state collections of one function",
        "function",
        "deploy; first use",
        f"DeployError; {_DEAD}",
    ),
    Limit(
        "collection_name_chars",
        63,
        "characters",
        "the name of a state collection",
        "function",
        "deploy; first use",
        f"DeployError; {_DEAD}",
    ),
    Limit(
        "schema_compile_ms",
        1000,
        "ms",
        "CPU time in which `config.input` must compile",
        "function",
        "deploy; the task halts",
        "DeployError",
    ),
    Limit("retries", 1000, "retries", "what `onError` may ask for", "function", "deploy", "DeployError"),
    Limit("output_bytes", 1024 * 1024, "bytes", "one output as JSON text", "run", "what a function puts out", _DEAD),
    Limit("outputs_per_event", 1000, "outputs", "what one event may emit", "run", "what a function puts out", _DEAD),
    Limit("state_value_bytes", 1024 * 1024, "bytes", "one state value as JSON text", "run", "state", _DEAD),
    Limit(
        "state_requests",
        10_000,
        "requests",
        "how often one event may have state read that is not cached",
        "run",
        "state",
        _DEAD,
    ),
    Limit("enumerated_keys", 10_000, "keys", "what one enumeration of a collection may meet", "run", "state", _DEAD),
    Limit("log_bytes", 64 * 1024, "bytes", "console output of one event", "run", "console.*", "cut, with a mark"),
    Limit(
        "log_lines_per_minute",
        1000,
        "lines",
        "console output of one task in a minute",
        "run",
        "console.*",
        "cut, with a line that tells how much",
    ),
    Limit(
        "log_bytes_per_minute",
        1024 * 1024,
        "bytes",
        "console output of one task in a minute",
        "run",
        "console.*",
        "cut, with a line that tells how much",
    ),
    Limit(
        "dead_letter_bytes",
        16 * 1024,
        "bytes",
        "error text or stack of one dead letter",
        "run",
        "dead letters",
        "cut, with a mark",
    ),
    Limit(
        "event_cpu_ms",
        100,
        "ms",
        "CPU time of one event, and again of checking it against `config.input`",
        "run",
        "the sandbox",
        _DEAD,
        "JEET_EVENT_CPU_MS",
    ),
    Limit(
        "event_wall_ms",
        2000,
        "ms",
        "time of one event, reading of state not counted",
        "run",
        "the sandbox",
        _DEAD,
        "JEET_EVENT_WALL_MS",
    ),
    Limit(
        "guest_memory_bytes",
        64 * 1024 * 1024,
        "bytes",
        "memory of one instance",
        "run",
        "the sandbox",
        _DEAD,
        "JEET_GUEST_MEMORY_MB",
    ),
    Limit(
        "schema_memory_bytes",
        512 * 1024 * 1024,
        "bytes",
        "address space of the process that checks events against `config.input`",
        "run",
        "`jeet-schema`",
        _DEAD,
    ),
)

DEFAULTS: dict[str, int] = {limit.name: limit.default for limit in TABLE}


@dataclass(frozen=True)
class Reason:
    """Why an event is refused when no limit is concerned. `code` is in the message, or beside it."""

    code: str
    sqlstate: str | None
    """None: what SQL can never be given"""
    what: str


REASONS: tuple[Reason, ...] = (
    Reason("not_json", "JT103", "is not JSON as of RFC 8259: `NaN`, comments, a byte order mark inside, trailing text"),
    Reason("not_utf8", None, "a line of a file is not UTF-8"),
    Reason("nul", "JT104", "a string or a name holds U+0000"),
    Reason("lone_surrogate", "JT105", "a string or a name holds half of a surrogate pair"),
    Reason("number_range", "JT109", "a number is beyond the largest double, or not 0 but below 1e-308"),
    Reason("key_missing", "JT110", "the stream has a key path, which leads to nothing"),
    Reason("key_type", "JT111", "a key is neither a string nor an integer in plain decimal"),
    Reason("key_mismatch", "JT113", "the key beside the event is not the one in it"),
    Reason("id_missing", "JT114", "the id path leads to nothing"),
    Reason("id_type", "JT115", "an id is neither a string nor an integer in plain decimal"),
    Reason("headers_type", "JT117", "headers are not an object"),
    Reason("ts_range", "JT119", "a time is infinite, or past the year 275760, where those of JavaScript end"),
    Reason("no_stream", "JT120", "there is no such stream"),
    Reason("over_lag", "JT121", "the stream's consumers are more than `max_lag` events behind"),
    Reason("stream_setting", "JT130", "a setting of a stream cannot be"),
    Reason("stream_exists", "JT131", "a stream of that name exists with other settings"),
)
