"""What a worker's lanes, and who reads clocks for them, are told of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LaneSettings:
    """The few values that a lane needs."""

    database_url: str
    batch_events: int
    batch_bytes: int
    slice_s: float
    memory_bytes: float
    """of the instances of all lanes"""
    max_attempts: int
    commit_timeout_s: float
    lock_timeout_s: float

    def session(self) -> Mapping[str, str]:
        """Settings of data connections: every statement is bounded, and joins go by index whatever statistics say."""
        return {
            "statement_timeout": str(int(self.commit_timeout_s * 1000)),
            "lock_timeout": str(int(self.lock_timeout_s * 1000)),
            "idle_in_transaction_session_timeout": str(int(self.commit_timeout_s * 1000)),
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "enable_seqscan": "off",
        }
