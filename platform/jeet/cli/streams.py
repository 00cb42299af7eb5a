"""Streams and events: commands."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Annotated

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Done, Table, counted, quoted
from jeet.errors import NotFound, UsageError


class Streams(Group):
    """Streams and events"""

    @command
    def streams(self, *, all: Annotated[bool, "also those between the stages of functions"] = False) -> Table:
        """List streams, with what is kept of each."""
        from jeet.db.sql import query

        cursor = self.db.execute(query("cli_all_streams" if all else "cli_streams"))
        columns = [column.name for column in cursor.description or ()]
        return Table(columns, cursor.fetchall(), "there is no stream yet; make one: jeet create_stream NAME")

    @command
    def create_stream(
        self,
        name: Annotated[str, "letters, digits, _, - and ."],
        *,
        partitions: Annotated[int, "into how many partitions its events go"] = 8,
        key: Annotated[str | None, "path of the key in each event, such as userId or user.id"] = None,
        retention: Annotated[
            str | None, "how long events are kept at least, such as 12h or 7d (default: for ever)"
        ] = None,
        max_lag: Annotated[int | None, "refuse publishers while a consumer is further behind (default: never)"] = None,
        max_bytes: Annotated[int | None, "drop the oldest beyond this size, even unprocessed (default: never)"] = None,
    ) -> Done:
        """Make a stream.

        Events with the same key go to the same partition and stay in order. A stream that exists with the same settings
        is left as it is; with others it is an error. Deploying a function makes the streams that it names, too.
        """
        from jeet.sandbox.durations import duration_ms
        from jeet.stream import catalog

        try:
            retention_s = None if retention is None else duration_ms(retention) / 1000
        except ValueError as error:
            raise UsageError(f"--retention: {error}") from error
        stream = catalog.create_stream(
            self.db, name, partitions=partitions, key=key, retention_s=retention_s, max_lag=max_lag, max_bytes=max_bytes
        )
        if stream.created and key is None:
            self.out.note(
                "note: it has no key: events that belong together may lie in different partitions; give --key if"
                " functions keep state per key, or a key with each event"
            )
        facts = {"stream": name, "partitions": partitions, "key": key, "created": stream.created}
        keyed = f", keyed by {key}" if key else ""
        state = "is ready" if stream.created else "exists with these settings"
        return Done(f"stream {name} {state}: {counted(partitions, 'partition')}{keyed}", facts)

    @command
    def publish(
        self,
        stream: Annotated[str, "the stream to append to"],
        file: Annotated[str, "NDJSON: one event a line; - for stdin"] = "-",
        *,
        key: Annotated[str | None, "path of the key in each event, for a stream that has none"] = None,
        id_field: Annotated[
            str | None, "path of an id in each event: what was published before is not written again"
        ] = None,
        no_wait: Annotated[bool, "fail instead of waiting while the stream is full"] = False,
    ) -> None:
        """Append the events of a file to a stream.

        Lines that are no good (not JSON, no key, too large) are reported by number and reason, and the exit code is 1;
        all others go in, in order. When the connection is lost, publishing goes on once the database is back, and no
        line is written twice. With --id_field a second run of the same file writes only what is missing, for 7 days.
        """
        from jeet.cli import publishing

        with self._suggesting(stream):
            publishing.publish(self.out, self.url, stream, file, key=key, id_field=id_field, wait=not no_wait)

    @command
    def tail(
        self,
        stream: Annotated[str, "the stream to read"],
        *,
        start: Annotated[str, "earliest, latest, or an offset in each partition"] = "earliest",
        partition: Annotated[int | None, "only of this one; default: of all, by time"] = None,
        limit: Annotated[int | None, "stop after so many events"] = None,
        follow: Annotated[bool, "wait for more"] = False,
    ) -> None:
        """Print the events of a stream, one JSON text a line.

        With --json each line tells partition, offset, key, headers and time as well, with the event as `value`.
        """
        if start not in ("earliest", "latest") and not (start.isascii() and start.isdigit() and len(start) < 19):
            raise UsageError(f"--start must be earliest, latest or an offset, not {quoted(start)}")
        if limit is not None and limit < 0:
            raise UsageError(f"--limit must not be below 0, not {limit}")
        from jeet.cli import tailing

        with self._suggesting(stream):
            tailing.tail(self.out, self.url, stream, start=start, partition=partition, limit=limit, follow=follow)

    @contextlib.contextmanager
    def _suggesting(self, stream: str) -> Iterator[None]:
        """Add the nearest name to the error that a stream is not there."""
        try:
            yield
        except NotFound as error:
            import psycopg

            from jeet.db.sql import query

            try:
                names = [row[0] for row in self.db.execute(query("cli_streams")).fetchall()]
            except psycopg.errors.InsufficientPrivilege:  # a producer may not look
                names = []
            near = difflib.get_close_matches(stream, names, n=1)
            if not near:
                raise
            raise NotFound(f"{error}; did you mean {near[0]}?") from error
