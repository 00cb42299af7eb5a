"""What an error of the database means for the work that met it: one table, consulted everywhere.

RETRY: nothing was changed and the same call may succeed; never the fault of an event. DOUBT: the connection went
away, so whether the statement took effect is unknown until somebody reads. DATA: the values handed over cannot be
stored; the event that made them is at fault. LEASE, MOVED: the commit's own fence. SEGMENT: the log lacks a segment;
make it, retry.
"""

from __future__ import annotations

from enum import Enum

import asyncpg

LEASE_LOST = "JT001"
"""raised by commit_tasks: the epoch of a task has moved; DETAIL has the task ids"""
CHECKPOINT_MOVED = "JT002"
"""raised by commit_tasks: a checkpoint is not where the batch began, or state is not what it saw (TABLE is state)"""
NO_SEGMENT = "23514"
"""check_violation: without the name of a constraint, no partition of the log takes the row"""

UNREADABLE = ("55000", "XX001", "XX002")
"""of a dense range some rows are not there (maybe a segment is being detached); data_corrupted, index_corrupted"""


class Verdict(Enum):
    RETRY = "retry"
    DOUBT = "doubt"
    DATA = "data"
    LEASE = "lease"
    MOVED = "moved"
    SEGMENT = "segment"
    BUG = "bug"


_EXACT = {
    LEASE_LOST: Verdict.LEASE,
    CHECKPOINT_MOVED: Verdict.MOVED,
    "40001": Verdict.RETRY,  # serialization_failure
    "40P01": Verdict.RETRY,  # deadlock_detected
    "40003": Verdict.DOUBT,  # statement_completion_unknown
    "55P03": Verdict.RETRY,  # lock_not_available
    "55006": Verdict.RETRY,  # object_in_use
    "55000": Verdict.RETRY,  # object_not_in_prerequisite_state: a segment is being detached
    "57014": Verdict.RETRY,  # query_canceled, statement_timeout
    "0A000": Verdict.RETRY,  # cached plan must not change result type: gone with the connection
    "25006": Verdict.DOUBT,  # read_only_sql_transaction: this server was demoted, all connections must go
    "25P03": Verdict.DOUBT,  # idle_in_transaction_session_timeout
    "25P04": Verdict.DOUBT,  # transaction_timeout
    "54000": Verdict.DATA,  # program_limit_exceeded: an index row too large and its like
    "21000": Verdict.DATA,  # cardinality_violation: the same key twice
    "42P10": Verdict.BUG,
}
_CLASSES = {
    "08": Verdict.DOUBT,  # connection exception
    "22": Verdict.DATA,  # data exception
    "23": Verdict.DATA,  # integrity constraint violation: a null, a key twice
    "53": Verdict.RETRY,  # insufficient resources: disk full, too many connections, out of memory
    "54": Verdict.DATA,  # program limit exceeded
    "57": Verdict.DOUBT,  # operator intervention: shutdown, crash of another backend
    "58": Verdict.RETRY,  # system error outside of Postgres: an I/O error
    "40": Verdict.RETRY,
}


def verdict(error: BaseException) -> Verdict:
    """How to react to `error`, raised by asyncpg or by the socket beneath it."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == NO_SEGMENT and error.constraint_name is None:
            return Verdict.SEGMENT
        return _EXACT.get(state) or _CLASSES.get(state[:2], Verdict.BUG)
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return Verdict.DATA  # a text that cannot be sent, such as one with half a surrogate pair
    if isinstance(error, OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return Verdict.DOUBT
    return Verdict.BUG
