"""Going back: commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from jeet.cli.command import command
from jeet.cli.functions import running, running_facts
from jeet.cli.group import Group
from jeet.cli.output import Done, Table, counted, quoted
from jeet.errors import DeployError, UsageError

if TYPE_CHECKING:
    from jeet.control.savepoints import Restored
    from jeet.control.spec import Start


class Savepoints(Group):
    """Going back"""

    @command
    def savepoint(
        self,
        name: Annotated[str, "the function"],
        *,
        note: Annotated[str | None, "what it is for; shown in the list"] = None,
    ) -> Done:
        """Keep a function as it stands now, to go back to: positions, state, timers, what is between its stages.

        It is of one moment between commits, of all tasks together, and stops nobody. It stays until it is dropped
        (jeet savepoints NAME --drop=ID). Before a change that touches state, Jeet takes one by itself.
        """
        from dataclasses import asdict

        from jeet.control import savepoints

        made = savepoints.take(self.db, name, note or "asked for")
        held = [
            counted(count, what, many)
            for count, what, many in (
                (made.entries, "state entry", "state entries"),
                (made.timers, "timer", None),
                (made.events, "event between stages", "events between stages"),
                (made.letters, "open dead letter", None),
            )
            if count
        ]
        return Done(
            f"savepoint {made.id} of {name} version {made.version}: {', '.join(held) or 'positions only'}", asdict(made)
        )

    @command
    def savepoints(
        self,
        name: Annotated[str, "the function"],
        *,
        drop: Annotated[int | None, "instead, give this one up"] = None,
    ) -> Table | Done:
        """List a function's savepoints, newest first."""
        from jeet.control import savepoints

        if drop is not None:
            savepoints.drop(self.db, name, drop)
            return Done(f"dropped savepoint {drop} of {name}", {"dropped": drop})
        columns = ("id", "version", "taken_at", "why", "positions", "entries", "timers", "events", "letters", "bytes")
        return Table(
            columns,
            [
                tuple(
                    each.positions
                    if self.out.json and column == "positions"
                    else _positions(each.positions)
                    if column == "positions"
                    else getattr(each, column)
                    for column in columns
                )
                for each in savepoints.savepoints(self.db, name)
            ],
            empty=f"no savepoint of {name} yet: jeet savepoint {name}",
        )

    @command
    def restore(
        self,
        name: Annotated[str, "the function"],
        id_: Annotated[int, "of a savepoint, as `jeet savepoints NAME` shows it"],
        *,
        into: Annotated[str | None, "instead, make another function of this name that goes on from there"] = None,
        sink: Annotated[str | None, "the sink of that one; default: a stream of its own"] = None,
        savepoint: Annotated[bool, "first keep what there is now in another one"] = True,
    ) -> Done:
        """Let a function go on from where a savepoint has it, with the version that it runs now.

        All of it comes back in one transaction; what came after it is gone, but for what was written to streams: that
        stays there, and what is read again is written again. State and timers that there are now are kept in another
        savepoint first, unless --no_savepoint says otherwise. With --into, the function goes on as it is, and a second
        one begins from the savepoint with the version that ran then. It reads the same sources, and for each stream
        that the first one writes, it has one of its own: OTHER.STREAM. docs/savepoints.md tells more.
        """
        from jeet.control import savepoints

        wait_s = self.settings.deploy_wait_s
        if into is None:
            if sink is not None:
                raise UsageError("--sink is of the function that --into makes: give --into=OTHER, too")
            done = savepoints.restore(self.db, name, id_, keep=savepoint, wait_s=wait_s)
            message = f"restored {name} to savepoint {id_}"
        else:
            done = savepoints.restore_into(self.db, name, id_, into, sink=sink, wait_s=wait_s)
            message = f"made {into} version {done.version} from savepoint {id_} of {name}"
        return self._restored(done, message)

    def _restored(self, done: Restored, message: str) -> Done:
        if done.before is not None:
            self.out.note(_way_back(done.name, done.before))
        for text in done.notes:
            self.out.note(f"note: {text}")
        facts = {
            "name": done.name,
            "version": done.version,
            "savepoint": done.savepoint,
            "savepoint_before": done.before,
            "status": done.status,
            "events_again": done.again,
            "events_skipped": done.skipped,
            "created_streams": done.streams,
            "notes": done.notes,
            **running_facts(done.progress),
        }
        if done.again:
            message += f"; {counted(done.again, 'event')} to process from there"
        if done.skipped:
            message += f"; {counted(done.skipped, 'event')} passed by"
        return Done(message + (f"; {running(done.progress)}" if done.status == "running" else ""), facts)

    @command
    def reset(
        self,
        name: Annotated[str, "the function"],
        *,
        to: Annotated[str, "earliest, latest, an offset, a time, or how long ago: 10m, 2h, 7d"],
        keep_state: Annotated[bool, "only move the positions; state, timers and dead letters stay"] = False,
        savepoint: Annotated[bool, "first keep state and positions in a savepoint"] = True,
    ) -> Done:
        """Let a function read its sources from another place, beginning with nothing.

        State, timers, what is between stages and open dead letters go, in the same transaction. What it wrote stays,
        and what it reads again it writes again. If it has state or timers, they are kept in a savepoint first, unless
        --no_savepoint says otherwise.
        """
        from jeet.control.reset import reset

        wait_s = self.settings.deploy_wait_s
        done = reset(self.db, name, _place(to), keep_state=keep_state, savepoint=savepoint, wait_s=wait_s)
        if done.savepoint is not None:
            self.out.note(_way_back(name, done.savepoint))
        notes = []
        if done.again and done.outputs:
            notes.append(
                f"{counted(done.again, 'event')} are processed again: what {name} made of them stays in"
                f" {', '.join(done.outputs)}, and comes there once more"
            )
        if done.late:
            notes.append("its event time does not go back: what it reads again may be late")
        if done.status == "paused":
            notes.append(f"it is paused; jeet resume {name} starts it")
        for text in notes:
            self.out.note(f"note: {text}")
        message = f"reset {name} to {to}"
        if done.skipped:
            message += f"; {counted(done.skipped, 'event')} passed by"
        if not keep_state:
            message += f"; {counted(done.entries, 'state entry', 'state entries')} gone"
        if done.letters:
            message += f"; {counted(done.letters, 'open dead letter')} dropped"
        if done.status == "running":
            message += f"; {running(done.progress)}"
        facts = {
            "name": name,
            "version": done.version,
            "status": done.status,
            "events_again": done.again,
            "events_skipped": done.skipped,
            "state_entries": done.entries,
            "dead_letters": done.letters,
            "savepoint": done.savepoint,
            "notes": notes,
            **running_facts(done.progress),
        }
        return Done(message, facts)

    @command
    def rebuild(
        self,
        name: Annotated[str, "the function"],
        *,
        outputs: Annotated[bool, "send what is made once more"] = False,
        partial: Annotated[bool, "also if retention has taken the first events"] = False,
        wait: Annotated[bool, "until it is over"] = False,
        progress: Annotated[bool, "begin nothing; say how far one is that was begun, or wait for that"] = False,
    ) -> Done:
        """Build a function's state again from its sources, and then go on; nothing is sent a second time.

        Sources stand still, what had been read goes through, and then all of it is processed again with the version
        that runs, from the first event in the log up to there. It goes on by itself, whoever dies; --progress says how
        far it is. Other functions go on. A savepoint is taken before: jeet restore ends a rebuild.
        docs/savepoints.md tells what counts as sent.
        """
        from jeet.control import rebuild

        if progress:
            if outputs or partial:
                raise UsageError("--progress begins nothing, so it takes neither --outputs nor --partial")
            under_way = rebuild.progress(self.db, name)
            if under_way is None:
                return Done(f"{name} is not being rebuilt", {"name": name, "phase": None})
            found = under_way
        else:
            found = rebuild.rebuild(self.db, name, outputs=outputs, partial=partial)
        facts = {
            "name": name,
            "phase": found.phase,
            "begun": found.begun,
            "begun_at": found.begun_at,
            "events": found.events,
            "savepoint": found.savepoint,
        }
        if found.savepoint is not None:
            self.out.note(_way_back(name, found.savepoint))
        if wait:
            rebuild.wait(self.db, name, self.out.note)
            return Done(f"rebuilt {name}" + (f" from {counted(found.events, 'event')}" if found.begun else ""), facts)
        if not found.begun:
            return Done(f"{name} is being rebuilt: {found.phase}, {counted(found.events, 'event')} to go", facts)
        return Done(f"rebuilding {name} from {counted(found.events, 'event')}", facts)


def _place(text: str) -> Start:
    from datetime import UTC, datetime

    from jeet.cli.when import since
    from jeet.control.spec import Start, parse_start

    try:
        if re.fullmatch(r"\d+(ms|s|m|h|d)", text):
            return Start("time", time=since(text, datetime.now(UTC)))
        return parse_start(text, "jeet reset")
    except (DeployError, UsageError) as error:
        raise UsageError(
            f"--to is {quoted(text)}: use earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z, or how long"
            " ago: 10m, 2h, 7d"
        ) from error


def _way_back(name: str, savepoint: int) -> str:
    return f"note: savepoint {savepoint} was taken: jeet restore {name} {savepoint} goes back to it"


def _positions(positions: object) -> str:
    """`orders 12,9,40`."""
    assert isinstance(positions, dict)
    return "; ".join(f"{stream} {','.join(map(str, offsets))}" for stream, offsets in positions.items())
