"""What a function is deployed with: its `config`, what its code says, and the flags of the command, made one value.

Promise: a pure function. Flags win over config, except that two keys which differ are an error; an unknown or misspelt
setting is an error; whatever comes out is complete, checked and plain JSON. Names stay the text that was written.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from jeet.errors import DeployError
from jeet.limits import DEFAULTS

_NAME_CHARS = DEFAULTS["function_name_chars"]
_COLLECTION_CHARS = DEFAULTS["collection_name_chars"]
NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{_NAME_CHARS - 1}}}")
"""names of streams and functions"""
COLLECTION_NAME = re.compile(rf"[A-Za-z_$][A-Za-z0-9_$]{{0,{_COLLECTION_CHARS - 1}}}")
"""names of state collections: those that the guest takes"""
LATEST_DURATION_MS = 1000 * 365 * 86_400_000
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_KNOWN = (
    "name",
    "source",
    "sink",
    "key",
    "partitions",
    "state",
    "input",
    "emits",
    "onError",
    "start",
    "cycle",
    "holdTtl",
    "deterministic",
)


@dataclass(frozen=True)
class Flags:
    """What the command line says; None: nothing."""

    name: str | None = None
    source: str | None = None
    sink: str | None = None
    key: str | None = None
    partitions: int | None = None
    on_error: str | None = None
    start: str | None = None
    emits: str | None = None
    """stream names, joined by commas"""
    cycle: bool | None = None
    hold_ttl: bool | None = None


@dataclass(frozen=True)
class Start:
    """Where a new function begins to read."""

    kind: Literal["earliest", "latest", "offset", "time"]
    offset: int | None = None
    time: datetime | None = None

    def __str__(self) -> str:
        if self.offset is not None:
            return str(self.offset)
        return self.time.isoformat() if self.time is not None else self.kind


@dataclass(frozen=True)
class Collection:
    """How a state collection keeps its values."""

    ttl_ms: int | None = None
    refresh: Literal["write", "access"] = "write"


@dataclass(frozen=True)
class FunctionSpec:
    """A function's settings, complete."""

    name: str
    source: str
    sink: str | None
    key: str | None
    """None: that of the source, whatever it is"""
    partitions: int | None
    """None: 8 for streams that the deploy creates"""
    emits: tuple[str, ...]
    """streams declared by config.emits, --emits or .to()"""
    literal_emits: tuple[str, ...]
    """streams that only calls of context.emit name"""
    state: Mapping[str, Collection]
    input: Mapping[str, Any] | bool | None
    on_error: str | Mapping[str, Any]
    """'dead-letter', 'halt' or {"retry": n, "backoff": "1s"}"""
    start: Start
    start_given: bool
    """somebody asked for it"""
    cycle: bool
    """its outputs may lead back to its source"""
    hold_ttl: bool
    """state's clock stands still while a task has no owner"""
    outputs: tuple[str, ...] = field(default=())
    """all streams but the sink that it may write to, in order"""
    emits_anywhere: frozenset[str] = frozenset()
    """those that context.emit may name in any stage, the sink among them if it is declared so"""


def merge(
    config: Mapping[str, Any] | None, emits: Sequence[tuple[str, bool]], flags: Flags, filename: str
) -> FunctionSpec:
    """One spec out of config, the streams that the code names (with: declared or not) and flags; else DeployError."""
    settings = dict(config or {})
    for setting in settings:
        if setting not in _KNOWN:
            near = difflib.get_close_matches(setting, _KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_KNOWN)}"
            raise DeployError(f"{filename}: config.{setting} is not a setting{hint}")
    name = _first(flags.name, settings.get("name"), re.sub(r"\.(m?js|wasm)$", "", filename))
    check_name("function", name, filename, remedy="give it one with --name")
    source = _first(flags.source, settings.get("source"))
    if source is None:
        raise DeployError(f"{filename}: no source: name the stream to read in config.source or with --source")
    check_name("source", source, filename)
    sink = _first(flags.sink, settings.get("sink"))
    if sink is not None:
        check_name("sink", sink, filename)
    declared = dict.fromkeys(stream for stream, is_declared in emits if is_declared)
    declared.update(dict.fromkeys((flags.emits or "").split(",") if flags.emits else ()))
    literal = dict.fromkeys(stream for stream, is_declared in emits if not is_declared and stream not in declared)
    for stream in (*declared, *literal):
        check_name("output stream", stream, filename)
    start = _first(flags.start, settings.get("start"))
    _check_emits(settings.get("emits"), filename)
    return FunctionSpec(
        name=name,
        source=source,
        sink=sink,
        key=_key(settings.get("key"), flags.key, filename),
        partitions=_partitions(_first(flags.partitions, settings.get("partitions")), filename),
        emits=tuple(stream for stream in declared if stream != sink),
        literal_emits=tuple(stream for stream in literal if stream != sink),
        state=_state(settings.get("state"), filename),
        input=settings.get("input"),
        on_error=_on_error(
            settings.get("onError") if flags.on_error is None else _flag_value(flags.on_error), filename
        ),
        start=parse_start(start, filename),
        start_given=start is not None,
        cycle=_truth("cycle", _first(flags.cycle, settings.get("cycle")), False, filename),
        hold_ttl=_truth("holdTtl", _first(flags.hold_ttl, settings.get("holdTtl")), True, filename),
        outputs=tuple(stream for stream in (*declared, *literal) if stream != sink),
        emits_anywhere=frozenset(
            (*_listed(settings.get("emits")), *(flags.emits or "").split(","), *(s for s, known in emits if not known))
        )
        - {""},
    )


def _listed(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [str(each) for each in value] if isinstance(value, list) else []


def check_name(what: str, name: object, filename: str, remedy: str = "choose another") -> None:
    """Names are safe everywhere: in SQL, in file names, in addresses, on the command line."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        limit = "function_name_chars" if what == "function" else "stream_name_chars"
        raise DeployError(
            f"{filename}: {json.dumps(name)} cannot be the name of a {what}: use 1 to {_NAME_CHARS} letters, digits,"
            f" '_', '-' and '.', not starting with '-' or '.' ({limit}); {remedy}"
        )


def duration_ms(text: object, what: str) -> int:
    """Milliseconds of '250ms', '10s', '5m', '1h' or '7d'."""
    found = re.fullmatch(r"([0-9]{1,12})(ms|s|m|h|d)", text) if isinstance(text, str) else None
    length = int(found[1]) * _UNIT_MS[found[2]] if found else 0
    if not 0 < length <= LATEST_DURATION_MS:
        raise DeployError(f"{what} is {json.dumps(text)}: write a duration such as '250ms', '10s', '5m', '1h' or '7d'")
    return length


def parse_start(value: object, filename: str) -> Start:
    """`earliest` (also for None), `latest`, an offset, or a time with or without a zone (then UTC)."""
    if value is None or value == "earliest":
        return Start("earliest")
    if value == "latest":
        return Start("latest")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        if re.fullmatch(r"[0-9]{1,18}", value):
            return Start("offset", offset=int(value))
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            time = None
        if time is not None:
            return Start("time", time=time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC))
    raise DeployError(
        f"{filename}: start is {json.dumps(value)}: use earliest, latest, an offset, or a time such as"
        " 2026-01-31T12:00:00Z"
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _check_emits(value: object, filename: str) -> None:
    if (
        value is None
        or isinstance(value, str)
        or (isinstance(value, list) and all(isinstance(each, str) for each in value))
    ):
        return
    raise DeployError(f"{filename}: config.emits must be a list of stream names such as ['alerts', 'audit']")


def _key(configured: object, flag: str | None, filename: str) -> str | None:
    if configured is not None and not isinstance(configured, str):
        raise DeployError(f"{filename}: config.key is {json.dumps(configured)}: give the path of the key in the event")
    if configured is not None and flag is not None and configured != flag:
        raise DeployError(
            f"{filename}: config.key is {json.dumps(configured)} and --key is {json.dumps(flag)}: the code was written"
            " for one of them; change the other"
        )
    key = flag if configured is None else configured
    if key == "":
        raise DeployError(f"{filename}: the key is empty: give the path of the key in the event, or leave it out")
    return key


def _partitions(value: object, filename: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= DEFAULTS["partitions"]:
        most = DEFAULTS["partitions"]
        raise DeployError(f"{filename}: partitions is {json.dumps(value)}: use a whole number from 1 to {most}")
    return value


def _state(value: object, filename: str) -> dict[str, Collection]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DeployError(f"{filename}: config.state must be an object such as {{ totals: {{ ttl: '7d' }} }}")
    found = {}
    for name, settings in value.items():
        if not isinstance(name, str) or not COLLECTION_NAME.fullmatch(name):
            raise DeployError(
                f"{filename}: {json.dumps(name)} cannot be the name of a state collection: use 1 to {_COLLECTION_CHARS}"
                " letters, digits, '_' and '$', not starting with a digit (collection_name_chars)"
            )
        where = f"{filename}: config.state.{name}"
        if settings is not None and not isinstance(settings, Mapping):
            raise DeployError(f"{where} must be an object such as {{ ttl: '7d', refresh: 'write' }}")
        settings = dict(settings or {})
        ttl, refresh = settings.pop("ttl", None), settings.pop("refresh", "write")
        if settings:
            raise DeployError(f"{where} has {', '.join(settings)}: there are ttl and refresh")
        if refresh not in ("write", "access"):
            raise DeployError(f"{where}.refresh is {json.dumps(refresh)}: use 'write' or 'access'")
        if ttl is None and refresh == "access":
            raise DeployError(f"{where}.refresh is 'access' but there is no ttl to refresh; add one")
        found[name] = Collection(None if ttl is None else duration_ms(ttl, f"{where}.ttl"), refresh)
    if len(found) > DEFAULTS["collections"]:
        raise DeployError(
            f"{filename}: config.state names {len(found)} collections: a function can have at most"
            f" {DEFAULTS['collections']} (collections)"
        )
    return found


def _flag_value(text: str) -> object:
    """A flag that is a word or JSON."""
    try:
        return json.loads(text) if text.lstrip().startswith("{") else text
    except ValueError:
        return text


def _on_error(value: object, filename: str) -> str | dict[str, Any]:
    if value is None:
        return "dead-letter"
    if value in ("dead-letter", "halt"):
        return str(value)
    if isinstance(value, str) and (found := re.fullmatch(r"retry:([0-9]+)(?::([0-9]+(?:ms|s|m)))?", value)):
        value = {"retry": int(found[1]), **({"backoff": found[2]} if found[2] else {})}
    if isinstance(value, Mapping) and set(value) <= {"retry", "backoff"} and "retry" in value:
        retries, backoff = value["retry"], value.get("backoff", "1s")
        if isinstance(retries, int) and not isinstance(retries, bool) and 1 <= retries <= DEFAULTS["retries"]:
            duration_ms(backoff, f"{filename}: onError.backoff")
            return {"retry": retries, "backoff": backoff}
    raise DeployError(
        f"{filename}: onError is {json.dumps(value)}: use 'dead-letter', 'halt' or {{ retry: 3, backoff: '1s' }}"
        f" (--on_error=retry:3:1s), with at most {DEFAULTS['retries']} retries"
    )


def _truth(name: str, value: object, default: bool, filename: str) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise DeployError(f"{filename}: config.{name} is {json.dumps(value)}: use true or false")
    return value
