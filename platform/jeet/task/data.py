"""A connection for data: opened when needed, closed on any doubt; one log line when it fails, one when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from jeet.db.connect import DRIVER_ERRORS, connect
from jeet.db.sqlstates import Verdict, verdict
from jeet.errors import JeetError, RetryLater
from jeet.telemetry import logger

if TYPE_CHECKING:
    from asyncpg import Connection

log = logger(__name__)


class InDoubt(JeetError):
    """The connection can no longer be trusted, nor what became of its last statement."""


class DataConnection:
    """Used by one coroutine at a time."""

    def __init__(self, database_url: str, application: str, settings: Mapping[str, str], statement_s: float) -> None:
        """`statement_s`: how long an answer may take, beyond what the server itself allows a statement."""
        self._url = database_url
        self._statement_s = statement_s
        self._application = application
        self._settings = settings
        self._db: Connection | None = None
        self._failing = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """The connection; what the driver raises becomes RetryLater, and any doubt closes the connection."""
        try:
            if self._db is None or self._db.is_closed():
                self._db = await connect(self._url, self._application, self._settings, statement_s=self._statement_s)
            yield self._db
        except DRIVER_ERRORS as error:
            if verdict(error) is not Verdict.RETRY:
                self.terminate()
            self._say_failing(error)
            raise RetryLater(f"the database could not be used: {error or type(error).__name__}") from error
        except InDoubt as error:
            self.terminate()
            self._say_failing(error)
            raise
        except asyncio.CancelledError:
            self.terminate()
            raise
        if self._failing:
            self._failing = False
            log.info("database is back", application=self._application)

    def _say_failing(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            log.warning(
                "database cannot be used; trying again",
                application=self._application,
                error=str(error) or type(error).__name__,
            )

    def terminate(self) -> None:
        """Drop the connection whatever it is doing."""
        if self._db is not None:
            self._db.terminate()
            self._db = None
