"""What the system and its data look like now: every command reads views that psql can read as well."""

from __future__ import annotations

import difflib
import time
from collections import deque
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Record, Table, quoted
from jeet.errors import NotFound, UsageError

LEVELS = ("debug", "info", "warning", "error")
SETTLED_S = 5.0
"""after so long no line with a lower number can still appear"""


class Inspect(Group):
    """Look inside"""

    @command
    def workers(self) -> Table:
        """List worker processes and how many tasks each holds."""
        return self._table("cli_workers", "no worker is running; start one: jeet worker")

    @command
    def lag(
        self,
        name: Annotated[str | None, "a function (default: all)"] = None,
        *,
        watermarks: Annotated[bool, "instead, how far event time has come, and who holds it back"] = False,
    ) -> Table:
        """Show how far each task is behind the streams it reads."""
        if name is not None:
            self._must_exist(name)
        if watermarks:
            return self._table("cli_watermarks", "no function goes by event time", function=name)
        return self._table("cli_lag", "no function is deployed", function=name)

    @command
    def figures(
        self,
        name: Annotated[str | None, "a function (default: all)"] = None,
        *,
        partitions: Annotated[bool, "rates of each partition, instead of their sums"] = False,
    ) -> Record:
        """Show rates, where the time goes, hot keys, slow events, state and changes of owners.

        Rates are of the last minute or two, shares of the last minutes in which the function had something to do. What
        each figure means, and how far off it may be: the views of the same names in docs/sql.md.
        """
        if name is not None:
            self._must_exist(name)
        rates = "cli_partition_rates" if partitions else "cli_rates"
        return Record(
            {
                "rates": self._table(rates, "no function is deployed", function=name),
                "hot_keys": self._table("cli_hot_keys", "none", function=name),
                "slowest_events": self._table(
                    "cli_slowest_events", "none took long enough to be noticed", function=name
                ),
                "state": self._table("cli_state_size", "none, or not measured yet", function=name),
                "lease_changes": self._table("cli_lease_changes", "none", function=name),
            }
        )

    @command
    def state(
        self,
        name: Annotated[str, "a function"],
        collection: Annotated[str | None, "one of its collections (default: list them)"] = None,
        key: Annotated[str | None, "one key (default: all, in key order)"] = None,
        *,
        limit: Annotated[int, "most keys to show"] = 100,
    ) -> Table:
        """Show a function's state as it is committed now.

        With a key, every task that holds that key is listed with its partition. What has expired is not shown. A
        function, collection or key that is not there is an error; a collection that is empty now is not.
        """
        self._must_exist(name)
        if limit < 1:
            raise UsageError(f"--limit must be at least 1, not {limit}")
        if collection is None:
            return self._table("cli_collections", f"{name} has no state", function=name)
        if key is None:
            table = self._table(
                "cli_state",
                f"{name} has no state in {collection}",
                function=name,
                collection=collection,
                limit=limit + 1,
            )
            if not table.rows and not self._knows_collection(name, collection):
                raise NotFound(f"{name} has no collection {quoted(collection)}; those it has: jeet state {name}")
            if len(table.rows) > limit:
                self.out.note(f"the first {limit} keys; more with --limit")
            return Table(table.columns, table.rows[:limit], table.empty)
        found = self._table("cli_state_key", "", function=name, collection=collection, key=key)
        if not found.rows:
            raise NotFound(f"{name} has no state {collection}[{quoted(key)}]; its keys: jeet state {name} {collection}")
        return found

    @command
    def logs(
        self,
        name: Annotated[str, "a function"],
        *,
        follow: Annotated[bool, "go on with what comes, until Ctrl-C"] = False,
        level: Annotated[Literal["debug", "info", "warn", "warning", "error"], "least level"] = "debug",
        since: Annotated[str | None, "only from then on: 10m, 2h, 7d ago, or a date and time"] = None,
        limit: Annotated[int, "most lines to begin with, the newest"] = 100,
    ) -> None:
        """Show what a function wrote with console.*, oldest first."""
        from jeet.cli.when import since as moment

        self._must_exist(name)
        if limit < 0:
            raise UsageError(f"--limit must not be below 0, not {limit}")
        # The console calls it warn, the log warning.
        levels = list(LEVELS[LEVELS.index("warning" if level == "warn" else level) :])
        start = None if since is None else moment(since, datetime.now(UTC))
        lines = self._rows("cli_logs", function=name, levels=levels, since=start, limit=limit)
        for line in lines:
            self._print_log(line)
        if follow:
            self._follow_logs(name, levels, [line["id"] for line in lines])
        elif not lines and not self.out.json:
            self.out.note(
                f"{name} wrote nothing" + (" of that level in that time" if since or level != "debug" else "")
            )

    @command
    def psql(self, *arguments: Annotated[str, "for psql: jeet psql -c 'table jeet.lag'"]) -> None:
        """Open psql on the database, to read the views of schema jeet."""
        from jeet import embedded

        if self.out.json:
            raise UsageError("psql prints what it prints; for JSON use: jeet lag --json and the like")
        embedded.client(arguments, self.url)

    def _print_log(self, line: dict[str, Any]) -> None:
        where = f"{line['partition']}" + (f":{line['offset']}" if line["offset"] is not None else "")
        at = line["logged_at"].astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]
        self.out.item(f"{at} {line['level']:<7} v{line['version']} {where}  {line['message']}", line)

    def _follow_logs(self, name: str, levels: list[str], shown: list[int]) -> None:
        """Print lines as they are committed. Numbers are given before the commit, so a lower one may come later."""
        newest = max(shown, default=self._newest_log(name))
        floor = newest if not shown else min(shown) - 1
        seen = set(shown)
        marks = deque([(time.monotonic(), newest)])
        while True:
            lines = self._rows("cli_logs_after", function=name, levels=levels, floor=floor, seen=sorted(seen))
            for line in lines:
                self._print_log(line)
                seen.add(line["id"])
                newest = max(newest, line["id"])
            marks.append((time.monotonic(), newest))
            while len(marks) > 1 and marks[0][0] < time.monotonic() - SETTLED_S:
                floor = max(floor, marks.popleft()[1])
            seen = {number for number in seen if number > floor}
            if not lines:
                time.sleep(0.2)

    def _newest_log(self, name: str) -> int:
        lines = self._rows("cli_logs", function=name, levels=list(LEVELS), since=None, limit=1)
        return int(lines[-1]["id"]) if lines else 0

    def _knows_collection(self, function: str, collection: str) -> bool:
        """Whether a collection that is empty now was declared, or held something before."""
        import psycopg

        try:
            rows = self._rows("cli_known_collections", function=function)
        except psycopg.errors.InsufficientPrivilege:  # a reader sees what is in the views, and there it is not
            return False
        return collection in [row["name"] for row in rows]

    def _must_exist(self, function: str) -> None:
        names = [row["name"] for row in self._rows("cli_function_names")]
        if function not in names:
            near = difflib.get_close_matches(function, names, n=1)
            hint = f"did you mean {near[0]}?" if near else "see: jeet functions"
            raise NotFound(f"no function {quoted(function)}; {hint}")

    def _rows(self, query_name: str, **values: object) -> list[dict[str, Any]]:
        table = self._table(query_name, "", **values)
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    def _table(self, query_name: str, empty: str, **values: object) -> Table:
        from jeet.db.sql import query

        cursor = self.db.execute(query(query_name).encode(), values)
        columns = [column.name for column in cursor.description or ()]
        return Table(columns, cursor.fetchall(), empty)
