"""Dead letters: commands."""

from __future__ import annotations

from typing import Annotated, Literal

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Done, Record, Table


class DeadLetters(Group):
    """Dead letters"""

    @command
    def list(
        self,
        name: Annotated[str | None, "the function; all without it"] = None,
        *,
        status: Annotated[
            Literal["open", "queued", "redriven", "dropped", "all"], "which ones; queued: open and about to run again"
        ] = "open",
        limit: Annotated[int, "at most so many, newest first"] = 50,
    ) -> Table:
        """List events whose processing failed."""
        from jeet.control import deadletters

        found = deadletters.letters(self.db, name, status=None if status == "all" else status, limit=limit)
        columns = (
            "id",
            "function",
            "partition",
            "offset",
            "key",
            "error",
            "attempts",
            "version",
            "failed_at",
            "status",
        )
        return Table(
            columns,
            [
                (
                    each.id,
                    each.function,
                    each.partition,
                    each.offset,
                    each.key,
                    each.error if self.out.json else _short(each.error),
                    each.attempts,
                    each.version,
                    each.failed_at,
                    "queued" if each.queued else each.status,
                )
                for each in found
            ],
            empty="no dead letters" if status == "all" else f"no {status} dead letters",
        )

    @command
    def show(self, number: Annotated[str, "as `jeet dlq list` shows it"]) -> Record:
        """Show one with its event, error and stack."""
        from dataclasses import asdict

        from jeet.control import deadletters

        found = deadletters.letter(self.db, deadletters.parse_number(number))
        values = asdict(found)
        # What a person reads last stands where the eye ends.
        for long in ("event", "stack"):
            values[long] = values.pop(long)
        return Record(values)

    @command
    def redrive(
        self,
        which: Annotated[str, "a number, or a function's name with --all"],
        *,
        all: Annotated[bool, "all open ones of the function"] = False,
    ) -> Done:
        """Run failed events again.

        Each is run by the task that failed, with the present version and state, out of its order. If that goes well it
        is `redriven`; if it fails again it stays open, with one attempt more.
        """
        from jeet.control import deadletters

        result = (
            deadletters.redrive(self.db, function=which)
            if all
            else deadletters.redrive(self.db, number=deadletters.parse_number(which))
        )
        message = f"{result.queued} queued to run again"
        if result.waiting:
            message += f", {result.waiting} waited already"
        if result.paused:
            message += f"; {', '.join(result.paused)} must be resumed first"
        return Done(message, {"queued": result.queued, "waiting": result.waiting, "paused": result.paused})

    @command
    def drop(
        self,
        which: Annotated[str, "a number, or a function's name with --all"],
        *,
        all: Annotated[bool, "all open ones of the function"] = False,
    ) -> Done:
        """Give failed events up: they stay listed as dropped and are not run again."""
        from jeet.control import deadletters

        dropped = (
            deadletters.drop(self.db, function=which)
            if all
            else deadletters.drop(self.db, number=deadletters.parse_number(which))
        )
        return Done(f"{dropped} dropped", {"dropped": dropped})


def _short(error: str) -> str:
    first = error.partition("\n")[0]
    return first if len(first) <= 80 else first[:79] + "…"
