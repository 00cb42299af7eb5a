"""A group of commands: what they share is found when first used, never before."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING

from jeet.cli.output import Output
from jeet.errors import UsageError

if TYPE_CHECKING:
    import psycopg

    from jeet.settings import Settings


class Group:
    """Base of all command classes. Its docstring is the heading of its commands in `jeet --help`."""

    def __init__(self, out: Output) -> None:
        self.out = out
        """prints a line at a time; `self.out.json` tells the form"""

    @cached_property
    def settings(self) -> Settings:
        from jeet.settings import Settings

        return Settings.from_environment()

    @cached_property
    def url(self) -> str:
        """The database: JEET_DATABASE_URL, else the running embedded server of JEET_HOME, else UsageError."""
        if self.settings.database_url:
            from jeet.db.connect import checked_address

            return checked_address(self.settings.database_url)
        from jeet import embedded

        url = embedded.find(self.settings.home)
        if url is None:
            raise UsageError(
                "no database: set JEET_DATABASE_URL, or start one here with `jeet up`"
                f" (no embedded server runs for {self.settings.home})"
            )
        return url

    @cached_property
    def db(self) -> psycopg.Connection:
        """A connection in autocommit mode to a database that is at this version's schema."""
        import psycopg

        from jeet.db.migrate import check_schema

        db = psycopg.connect(self.url, autocommit=True, application_name="jeet")
        # A reader sees the views only, not which migrations made them.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            check_schema(db)
        return db
