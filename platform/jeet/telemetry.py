"""Logging, set up once a process: one line an event on stderr, `time level message key=value …`, or JSON.

Promise: a line holds no line break and no other control character, whatever is logged, and no password of a database
address. Logging never raises and never stops a process, not even when its reader is gone.

    from jeet.telemetry import logger
    log = logger(__name__)
    log.info("worker disconnected", worker=3, partitions=5, elapsed_ms=212.4)
    log.error("commit failed", exc=error, task=7)
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

# What operators look for, spelled once.
WORKER_DISCONNECTED = "worker disconnected"
REDISTRIBUTED = "Partition Redistribution Successful"
WAITING_FOR_WORKERS = "waiting for workers"

FIELDS = {
    "function": "the function",
    "stage": "the stage of its graph, from 0",
    "partition": "the partition",
    "stream": "the stream",
    "offset": "the offset of the event, or of the first of a batch",
    "timer": "the name of a timer",
    "tasks": "numbers of tasks, as jeet_internal.task has them",
    "worker": "the worker's number, as jeet.workers has it",
    "workers": "how many workers",
    "partitions": "how many partitions it is about",
    "moved": "how many of them have another owner now",
    "open": "how many have none yet",
    "changed": "how many assignments changed",
    "crashes": "owners in a row that died without a commit",
    "suspects": "events that one of them may have died of",
    "host": "the machine",
    "pid": "a process of ours",
    "backend_pid": "a session of Postgres",
    "application": "its application_name",
    "process": "a process that `jeet up` runs, by name",
    "signal": "the signal that ended it",
    "exit_code": "the code that it ended with",
    "in_a_row": "times in a row that it lived shortly",
    "lived_s": "for how long it lived, in seconds",
    "restart_in_s": "when it is started again, in seconds",
    "elapsed_ms": "how long it took, in milliseconds",
    "silent_ms": "how long nothing was heard, in milliseconds",
    "since_heartbeat_ms": "time since the last heartbeat, in milliseconds",
    "ended": "sessions that were ended",
    "lag": "events that wait",
    "max_lag": "events that may wait",
    "job": "the maintenance job",
    "rows": "rows that it changed",
    "segment": "the number of a segment of the log",
    "unprocessed": "whether a function had still to read them",
    "status": "the status that it has now",
    "plugin": "the Javy plugin, by the start of its SHA-256",
    "database": "address of the database, without password",
    "migrations": "migrations that were applied",
    "address": "where it listens",
    "path": "a file",
    "reason": "why it was done",
    "error": "what went wrong, as whoever noticed it said",
    "stack": "where, if nobody foresaw it",
    "logger": "the library that says so",
}
"""names of fields in log lines, and what they mean: the same thing has the same name everywhere"""

LogFormat = Literal["text", "json"]


class Writer(Protocol):
    """What log lines are written to."""

    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...


# postgres://user:password@host, password=word and password='two words'
_SECRETS = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.]*://[^\s:/@'\"]*:)[^\s/'\"]+(?=@)"
    r"|(?P<word>\b(?:password|passwd|sslpassword)\s*[=:]\s*)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&'\"]+)",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_STANDARD = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName", "fields"}


def without_secrets(text: str) -> str:
    """The text with passwords of database addresses replaced by `***`."""
    return _SECRETS.sub(lambda match: (match["url"] or match["word"]) + "***", text)


class Log:
    """A logger whose methods take the event's fields as keywords; `exc` is an error to tell with its stack."""

    __slots__ = ("_logger",)

    def __init__(self, inner: logging.Logger) -> None:
        self._logger = inner

    def debug(self, message: str, /, *, exc: BaseException | None = None, **fields: object) -> None:
        self._write(logging.DEBUG, message, exc, fields)

    def info(self, message: str, /, *, exc: BaseException | None = None, **fields: object) -> None:
        self._write(logging.INFO, message, exc, fields)

    def warning(self, message: str, /, *, exc: BaseException | None = None, **fields: object) -> None:
        self._write(logging.WARNING, message, exc, fields)

    def error(self, message: str, /, *, exc: BaseException | None = None, **fields: object) -> None:
        self._write(logging.ERROR, message, exc, fields)

    def enabled(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def _write(self, level: int, message: str, exc: BaseException | None, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            # The message goes in as an argument, so that a `%` in it is not a format.
            self._logger.log(level, "%s", message, exc_info=exc, extra={"fields": fields})


def logger(name: str) -> Log:
    """The log of one module: `logger(__name__)`."""
    return Log(logging.getLogger(name))


def configure(*, log_format: LogFormat = "text", level: str = "info", stream: Writer | None = None) -> None:
    """Send the logs of this process to `stream` (stderr); libraries are heard from `warning` up. For entry points."""
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("jeet").setLevel(level.upper())
    logging.captureWarnings(True)


def text_line(at: datetime, level: str, message: str, fields: dict[str, object]) -> str:
    """One event in the text form."""
    words = [_stamp(at), f"{level:<7}", _CONTROL.sub(_escape, without_secrets(message))]
    words.extend(f"{name}={_word(value)}" for name, value in fields.items())
    return " ".join(words)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return text_line(_at(record), record.levelname.lower(), record.getMessage(), _fields(record))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _stamp(_at(record)),
            "level": record.levelname.lower(),
            "message": without_secrets(record.getMessage()),
        }
        for name, value in _fields(record).items():
            # A field never hides the time, level or message of its line.
            event[name if name not in event else f"{name}_"] = _json_value(value)
        return json.dumps(event, ensure_ascii=True, default=str)


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = dict(getattr(record, "fields", {}))
    # What a module that logs by the standard library alone gave as `extra`.
    fields.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
    if record.name != "jeet" and not record.name.startswith("jeet."):
        fields.setdefault("logger", record.name)
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields.setdefault("error", f"{type(error).__name__}: {error}")
        fields.setdefault("stack", "".join(traceback.format_exception(error)).rstrip())
    return fields


def _word(value: object) -> str:
    # Secrets go before the text is quoted, which would hide where they end.
    text = without_secrets(_text(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=True)


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, datetime):
        return _stamp(value)
    if isinstance(value, list | tuple | set | frozenset | range):
        return ",".join(_text(item) for item in value)
    return str(value)


def _json_value(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value if value == value and value not in (float("inf"), float("-inf")) else str(value)
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    return without_secrets(_text(value))


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0], ensure_ascii=True)[1:-1]
