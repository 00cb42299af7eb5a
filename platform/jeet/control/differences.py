"""What a new version's settings change against the version before, told one by one, with the way to keep what was.

A flag that is left out is easily lost: settings come from the file and the flags of this deploy alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A line a setting that differs between two versions' stored settings; where a value is gone, with the remedy."""
    found = [
        _told(name, before.get(name), after.get(name), default, flag)
        for name, default, flag in (
            ("source", None, None),
            ("sink", None, "--sink={}"),
            ("key", None, "--key={}"),
            ("on_error", "dead-letter", "--on_error={}"),
            ("cycle", False, "--cycle"),
            ("hold_ttl", True, "--no_hold_ttl"),
        )
        if name in before and before[name] != after.get(name)
    ]
    gone = [name for name in _emitted(before) if name not in (*_emitted(after), after.get("sink"), before.get("sink"))]
    found += [f"it may write to {name} no more; give --emits={name} to keep that" for name in gone]
    return found + _collections(before, after) + _schema(before.get("input"), after.get("input"))


def _told(name: str, was: object, now: object, default: object, flag: str | None) -> str:
    change = f"{name} was {_text(was)}, is {_text(now)} now"
    # What takes the place of a default, or of another value, somebody has just asked for.
    if flag is None or now != default:
        return change
    return f"{change}; give {flag.format(_text(was))} to keep it"


def _collections(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    found = []
    old, new = before.get("state") or {}, after.get("state") or {}
    for name in old:
        for setting, default in (("ttl_ms", None), ("refresh", "write")):
            was, now = old[name].get(setting), new.get(name, {}).get(setting, default)
            if was == now:
                continue
            shown = setting.removesuffix("_ms")
            remedy = f"; put it into config.state.{name} to keep it" if now == default else ""
            found.append(f"state.{name}.{shown} was {_value(setting, was)}, is {_value(setting, now)} now{remedy}")
    return found


def _schema(was: object, now: object) -> list[str]:
    if was == now or was is None:
        return []
    if now is None:
        return ["input was a schema, is none now; put it into config.input to keep it"]
    return ["input is another schema now"]


def _emitted(settings: Mapping[str, Any]) -> list[str]:
    """Streams beside the sink, which is the first output."""
    return [each["stream"] for each in (settings.get("outputs") or [])[1:] if each.get("stream")]


def _value(setting: str, value: object) -> str:
    if setting == "ttl_ms" and isinstance(value, int):
        unit, size = next((unit, size) for unit, size in _UNITS if value % size == 0)
        return f"{value // size}{unit}"
    return _text(value)


def _text(value: object) -> str:
    """As it is typed after the flag."""
    if value is None:
        return "none"
    if isinstance(value, Mapping) and "retry" in value:
        return f"retry:{value['retry']}:{value['backoff']}"
    return value if isinstance(value, str) else json.dumps(value)
