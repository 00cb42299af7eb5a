"""What Postgres refused, as one sentence: what was refused in its own words, and what to do about it."""

from __future__ import annotations

_REMEDIES = {
    "25006": (
        "the database takes no writes",
        "let JEET_DATABASE_URL name the primary, and see default_transaction_read_only",
    ),
    "57014": ("the database cancelled a statement", "run it again; if it is cancelled again, raise statement_timeout"),
    "55P03": ("the database waited for a lock in vain", "run it again; jeet status names transactions that stay open"),
    "42501": ("this login may not do that", "use one that has the role for it: docs/security.md says which"),
    "53100": ("the database's disk is full", "make room there, and run it again"),
    "53200": ("the database is out of memory", "run it again; if it repeats, give the server more"),
    "53300": ("the database has no connection left", "stop clients that are idle, or raise max_connections"),
    "3F000": ("the database is not Jeet's, or not yet", "run: jeet migrate"),
    "42P01": ("the database lacks a table of Jeet's", "run: jeet migrate"),
    "42883": ("the database lacks a function of Jeet's", "run: jeet migrate"),
    "40001": ("the database had to undo it, as others changed the same", "run it again"),
    "40P01": ("the database had to undo it, as others waited for the same", "run it again"),
}
_CLASSES = {
    "08": ("the connection to the database was lost", "run it again, and see whether it was done before: jeet status"),
    "28": ("the database does not let this login in", "check JEET_DATABASE_URL"),
    "3D": ("the database is not there", "check JEET_DATABASE_URL"),
    "53": ("the database is short of something", "see its log, and run it again"),
    "57": ("the database ended the connection", "run it again once it is back"),
}
_ELSE = ("the database refused", "JEET_LOG_LEVEL=debug shows where")


def refusal(error: BaseException) -> str | None:
    """The sentence for an error that the server answered with, by either driver; None for any other."""
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        return None
    said = getattr(getattr(error, "diag", None), "message_primary", None) or getattr(error, "message", None)
    first = str(said or error).partition("\n")[0]
    what, remedy = _REMEDIES.get(state) or _CLASSES.get(state[:2], _ELSE)
    return f"{what}: {first} ({state}); {remedy}"
