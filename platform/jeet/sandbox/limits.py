"""The limits on what goes into and comes out of a guest, as an instance has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from jeet.limits import DEFAULTS


@dataclass(frozen=True)
class Limits:
    """The limits of one instance; the names are those of jeet.limits."""

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
