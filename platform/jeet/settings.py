"""Settings are read once, at the entry point, from the environment, into a frozen value.

Nobody else reads the environment. All faults are reported together.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from jeet.errors import SettingsError

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
OnOff = Literal["on", "off"]


ROOT_HOME = Path("/var/lib/jeet")


def _default_home() -> Path:
    """`~/.jeet`; root's files go where another user can reach them without entering root's home."""
    if os.geteuid() == 0:
        return ROOT_HOME
    try:
        return Path.home() / ".jeet"
    except RuntimeError:  # a user without an entry in passwd and without HOME, as containers have them
        return Path(f"/tmp/jeet-home-{os.geteuid()}")


@dataclass(frozen=True)
class Settings:
    """All settings of all processes. Each is read from JEET_<NAME IN CAPITALS>."""

    database_url: str | None = None
    """where Postgres is; without it the embedded server of `home` is looked for"""
    home: Path = field(default_factory=_default_home)
    """folder of the embedded server's whereabouts and of caches"""
    javy_plugin: Path | None = None
    """a Javy plugin to use instead of the built-in one"""
    heartbeat_s: float = 0.5
    """how often a worker says that it lives"""
    heartbeat_timeout_s: float = 2.0
    """a worker silent for longer is taken for lost"""
    detect_s: float = 0.1
    """how often the coordinator looks for workers whose liveness lock vanished"""
    lanes: int = field(default_factory=lambda: max(2, os.cpu_count() or 2))
    """threads that run guests, each with data connections of its own"""
    batch_events: int = 4000
    """most events of one task in one batch"""
    batch_bytes: int = 4 * 1024 * 1024
    """most bytes of events of one task in one batch"""
    stage_lag: int = 200_000
    """events that may lie between two stages of a function, over all partitions; beyond, the earlier one waits"""
    slice_ms: int = 50
    """a guest gives the thread back after about so much CPU time, or four times as long"""
    event_cpu_ms: int = 100
    """CPU time that one event may use"""
    event_wall_ms: int = 2000
    """time that one event may take, reading of state not counted"""
    guest_memory_mb: int = 64
    """memory of one guest instance"""
    worker_memory_mb: int = 1024
    """memory of all guest instances of a worker; idle ones are dropped first"""
    commit_timeout_s: float = 30.0
    """transaction_timeout of commits"""
    lock_timeout_s: float = 5.0
    """lock_timeout of commits"""
    drain_s: float = 8.0
    """how long a stopping worker may take to finish its batches"""
    deploy_wait_s: float = 5.0
    """how long deploy waits until each task runs the new version"""
    max_attempts: int = 3
    """crashes of a worker process after which the event that ran is set aside"""
    log_ttl_h: float = 168.0
    """how long console output of functions is kept"""
    ttl_sweep_s: int = 5
    """how often expired state is deleted; it is invisible from the moment it expires, whatever this says"""
    ttl_grace_s: float = 5.0
    """how long expired state is left alone; only spares batches that refresh it just then from running twice"""
    maintenance_s: int = 60
    """how often the other maintenance jobs run"""
    checkpoint_history_h: float = 168.0
    """how long it is known where each task stood"""
    figures_h: float = 168.0
    """how long figures are kept: by the minute for two hours, then by the hour"""
    savepoints_kept: int = 5
    """how many of the savepoints that Jeet takes of a function before changes are kept; others stay until dropped"""
    lost_worker_h: float = 1.0
    """how long a lost worker is still listed"""
    figures: OnOff = "on"
    """whether workers count what their tasks do; off: no rates, shares, hot keys or history of tasks"""
    metrics_port: int | None = None
    """where a process answers Prometheus at /metrics; 0: any free port, which is logged; unset: nowhere"""
    metrics_host: str = "127.0.0.1"
    """the address it listens at: 0.0.0.0 for all"""
    log_format: LogFormat = "text"
    """form of the processes' own log lines on stderr"""
    log_level: LogLevel = "info"
    """least level of the processes' own log lines"""

    @property
    def sandbox_cache(self) -> Path:
        """Where compiled plugins are kept."""
        return self.home / "sandbox"

    @staticmethod
    def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
        """Read JEET_* variables; raise SettingsError that names every fault."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        faults: list[str] = []
        for spec in fields(Settings):
            text = environ.get(f"JEET_{spec.name.upper()}")
            if text is None or text == "":
                continue
            parse, expected = _PARSERS[str(spec.type)]
            try:
                values[spec.name] = parse(text)
            except ValueError:
                faults.append(f"JEET_{spec.name.upper()} is {text!r}: expected {expected}")
        settings = Settings(**values)
        faults.extend(settings.faults())
        if faults:
            raise SettingsError("; ".join(faults))
        return settings

    def but(self, **changes: Any) -> Settings:
        """The same with some values changed; raise SettingsError that names every fault."""
        settings = replace(self, **changes)
        if faults := settings.faults():
            raise SettingsError("; ".join(faults))
        return settings

    def faults(self) -> list[str]:
        """What is wrong with these values, taken one by one and together."""
        found = [
            f"JEET_{spec.name.upper()} is {value}: expected a number above 0"
            for spec in fields(self)
            if spec.name != "metrics_port"
            and isinstance(value := getattr(self, spec.name), int | float)
            and not (math.isfinite(value) and value > 0)
        ]
        if self.heartbeat_s * 3 > self.heartbeat_timeout_s:
            found.append(
                f"JEET_HEARTBEAT_S ({self.heartbeat_s:g}) must be at most a third of"
                f" JEET_HEARTBEAT_TIMEOUT_S ({self.heartbeat_timeout_s:g})"
            )
        if self.event_cpu_ms > self.event_wall_ms:
            found.append(
                f"JEET_EVENT_CPU_MS ({self.event_cpu_ms}) must not be above JEET_EVENT_WALL_MS ({self.event_wall_ms})"
            )
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65535:
            found.append(f"JEET_METRICS_PORT is {self.metrics_port}: expected 0 to 65535")
        return found


def _one_of(kind: Any) -> tuple[Callable[[str], Any], str]:
    words: tuple[str, ...] = get_args(kind)

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return parse, f"one of {', '.join(words)}"


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "str": (str, "a text"),
    "str | None": (str, "a text"),
    "int | None": (int, "a whole number"),
    "Path": (lambda text: Path(text).expanduser(), "a path"),
    "Path | None": (lambda text: Path(text).expanduser(), "a path"),
    "float": (float, "a number"),
    "int": (int, "a whole number"),
    "LogFormat": _one_of(LogFormat),
    "LogLevel": _one_of(LogLevel),
    "OnOff": _one_of(OnOff),
}
