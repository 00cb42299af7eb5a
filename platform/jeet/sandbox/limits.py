"""The limits on what goes into and comes out of a guest: one table, each with a name that is also its error code."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Limit:
    """One limit: what it bounds, its default and its unit. `name` is the error code."""

    name: str
    default: int
    unit: str
    what: str


TABLE: tuple[Limit, ...] = (
    Limit("event_bytes", 1024 * 1024, "bytes", "one event as JSON text"),
    Limit("key_bytes", 1024, "bytes of UTF-8", "a key of an event or of state"),
    Limit("depth", 128, "levels", "nesting of arrays and objects"),
    Limit("number_digits", 40, "digits", "one number as written"),
    Limit("number_exponent", 308, "powers of ten", "the exponent of a number as written"),
    Limit("output_bytes", 1024 * 1024, "bytes", "one output as JSON text"),
    Limit("outputs_per_event", 1000, "outputs", "what one event may emit"),
    Limit("state_value_bytes", 1024 * 1024, "bytes", "one state value as JSON text"),
    Limit("log_bytes", 64 * 1024, "bytes", "console output of one event"),
    Limit("dead_letter_bytes", 16 * 1024, "bytes", "error text or stack of one dead letter"),
    Limit("event_cpu_ms", 100, "ms", "CPU time of one event"),
    Limit("event_wall_ms", 2000, "ms", "time of one event, reading of state not counted"),
    Limit("state_requests", 10_000, "requests", "how often one event may have state read that is not cached"),
    Limit("guest_memory_bytes", 64 * 1024 * 1024, "bytes", "memory of one instance"),
    Limit("collections", 64, "collections", "state collections of one function"),
    Limit("source_bytes", 1024 * 1024, "bytes", "source of one function"),
)

DEFAULTS: dict[str, int] = {limit.name: limit.default for limit in TABLE}


@dataclass(frozen=True)
class Limits:
    """The limits of one instance; the names are those of TABLE."""

    event_bytes: int = DEFAULTS["event_bytes"]
    key_bytes: int = DEFAULTS["key_bytes"]
    depth: int = DEFAULTS["depth"]
    number_digits: int = DEFAULTS["number_digits"]
    number_exponent: int = DEFAULTS["number_exponent"]
    output_bytes: int = DEFAULTS["output_bytes"]
    outputs_per_event: int = DEFAULTS["outputs_per_event"]
    state_value_bytes: int = DEFAULTS["state_value_bytes"]
    log_bytes: int = DEFAULTS["log_bytes"]
    dead_letter_bytes: int = DEFAULTS["dead_letter_bytes"]
    event_cpu_ms: int = DEFAULTS["event_cpu_ms"]
    event_wall_ms: int = DEFAULTS["event_wall_ms"]
    state_requests: int = DEFAULTS["state_requests"]
    guest_memory_bytes: int = DEFAULTS["guest_memory_bytes"]
    collections: int = DEFAULTS["collections"]
    source_bytes: int = DEFAULTS["source_bytes"]

    def as_dict(self) -> dict[str, int]:
        """Name to value."""
        return asdict(self)
