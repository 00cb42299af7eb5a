"""Brings one statement after another to the database, whatever happens to the connection.

Promise: a statement that is not repeatable runs at most once; one that is runs until it succeeds or is refused, or the
database has been away for `patience_s`. Whoever is told Unreachable is also told whether the statement may have run.
"""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import TYPE_CHECKING, Any

from jeet.clock import Clock
from jeet.db.backoff import pause_s
from jeet.db.connect import DRIVER_ERRORS, connect
from jeet.db.sql import query
from jeet.db.sqlstates import Verdict, verdict
from jeet.errors import JeetError, NotFound, RetryLater, UsageError

if TYPE_CHECKING:
    from asyncpg import Connection

NO_STREAM = "JT120"
OVER_LAG = "JT121"
SETTING = "JT130"


class StreamFull(RetryLater):
    """Consumers of the stream are further behind than its max_lag; nothing of this call was written."""


class Unreachable(RetryLater):
    """The database stayed away for longer than patience lasts, or it is unknown whether the statement ran."""

    def __init__(self, cause: BaseException, in_doubt: bool) -> None:
        self.in_doubt = in_doubt
        super().__init__(_first_line(cause))


class Delivery:
    """One connection, opened when first needed and again when lost."""

    def __init__(
        self, database_url: str, *, wait_when_full: bool, patience_s: float, clock: Clock, random: Random
    ) -> None:
        self._url = database_url
        self._wait_when_full = wait_when_full
        self._patience_s = patience_s
        self._clock = clock
        self._random = random
        self._db: Connection | None = None
        self._reached = False

    async def run(self, name: str, values: tuple[object, ...], *, repeatable: bool) -> list[Any]:
        """Run a statement until it succeeds, is refused, or patience ends; again after doubt only if repeatable."""
        failures = 0
        in_doubt = False
        began_s = 0.0
        while True:
            sent = False
            try:
                db = await self._connected()
                sent = True
                rows: list[Any] = await db.fetch(query(name), *values)
                return rows
            except DRIVER_ERRORS as error:
                full = getattr(error, "sqlstate", None) == OVER_LAG
                if not full or not self._wait_when_full:
                    in_doubt = self._judge(error, sent, in_doubt)
                    if in_doubt and not repeatable:
                        raise Unreachable(error, in_doubt) from error
                failures += 1
                now_s = self._clock.monotonic()
                if failures == 1 or full:
                    began_s = now_s
                elif now_s - began_s > self._patience_s:
                    raise Unreachable(error, in_doubt) from error
            await asyncio.sleep(pause_s(failures, self._random))

    def _judge(self, error: Exception, sent: bool, in_doubt: bool) -> bool:
        """Whether the statement may have run by now; raises what no repetition would change."""
        state = getattr(error, "sqlstate", None)
        if state == NO_STREAM:
            raise NotFound(_first_line(error)) from error
        if state == OVER_LAG:
            raise StreamFull(_first_line(error)) from error
        if state == SETTING:
            raise UsageError(_first_line(error)) from error
        found = verdict(error)
        if not self._reached:
            raise JeetError(
                f"cannot connect to the database; nothing was published: {_first_line(error)}; check JEET_DATABASE_URL,"
                " and that its server runs and has it"
            ) from error
        if found is Verdict.DOUBT:
            self.close()
            return in_doubt or sent
        if found is not Verdict.RETRY:
            raise JeetError(
                f"the database refused the statement and wrote nothing of it: {_first_line(error)}"
            ) from error
        return in_doubt

    async def _connected(self) -> Connection:
        if self._db is None or self._db.is_closed():
            self._db = await connect(self._url, "jeet-producer")
            self._reached = True
        return self._db

    def close(self) -> None:
        if self._db is not None:
            self._db.terminate()
            self._db = None


def _first_line(error: BaseException) -> str:
    return re.sub(r"\[Errno -?\d+\] ", "", (str(error) or type(error).__name__).splitlines()[0])
