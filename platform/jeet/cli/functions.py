"""Functions: commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Done, Record, Table, counted
from jeet.errors import UsageError

if TYPE_CHECKING:
    from jeet.control.code import Code
    from jeet.control.lifecycle import Changed
    from jeet.control.registry import Progress
    from jeet.control.takeover import Graph


class Functions(Group):
    """Functions"""

    @command
    def deploy(
        self,
        file: Annotated[Path, "the function, .js or .wasm"],
        *,
        name: Annotated[str | None, "what to call it; default: config.name, or the file's name"] = None,
        source: Annotated[str | None, "the stream to read; created if it is not there"] = None,
        sink: Annotated[str | None, "the stream for its results; created if it is not there"] = None,
        key: Annotated[str | None, "path of the key in the source's events, such as userId or user.id"] = None,
        partitions: Annotated[int | None, "of streams that this deploy creates; default 8"] = None,
        on_error: Annotated[str | None, "dead-letter (default), halt, or retry:3:1s"] = None,
        start: Annotated[str | None, "where a new function begins: earliest (default), latest, offset or time"] = None,
        emits: Annotated[str | None, "other streams that context.emit may write to, joined by commas"] = None,
        cycle: Annotated[bool | None, "its outputs may lead back to its source"] = None,
        hold_ttl: Annotated[bool | None, "state's time to live stands still while nobody runs it"] = None,
        drain: Annotated[bool, "if its stages change, the old version first uses up what is under way"] = False,
        reset: Annotated[bool, "discard its state and begin anew from --start"] = False,
        savepoint: Annotated[bool, "first keep state and positions in a savepoint"] = True,
    ) -> Done:
        """Deploy a function, or a new version of it, and wait until it runs.

        What is exported as `config` in the file counts, flags win over it. The same file with the same settings makes
        no new version. A new version keeps state and goes on where the one before stands; what that one had not
        committed is run again. A changed ttl counts for entries written from then on.

        A version whose stages, keys or operators are others than before is refused with what does not fit, unless it
        may --drain (sources stand still until the old version has used up what lies between its stages and closed its
        windows; then the new one goes on there) or --reset. docs/graph.md tells more.

        If the version before has state or timers, they are kept in a savepoint first (docs/savepoints.md), unless
        --no_savepoint says otherwise. What an earlier version wrote, `export function migrate` brings to the new form.
        """
        from jeet.control.deploy import deploy

        code = self._read(
            file,
            name=name,
            source=source,
            sink=sink,
            key=key,
            partitions=partitions,
            on_error=on_error,
            start=start,
            emits=emits,
            cycle=cycle,
            hold_ttl=hold_ttl,
        )
        for lint in code.lints:
            self.out.note(f"note: {lint}")
        result = deploy(
            self.db,
            code,
            wait_s=self.settings.deploy_wait_s,
            graph=_graph(drain, reset),
            savepoint=savepoint,
            tell=self.out.note,
        )
        for text in result.notes:
            self.out.note(f"note: {text}")
        what = f"version {result.version}" + ("" if result.new_version else " (unchanged)")
        made = (
            f"; created stream{'s' if len(result.streams) > 1 else ''} {', '.join(result.streams)}"
            if result.streams
            else ""
        )
        how = "" if result.status == "paused" else f"; {running(result.progress)}"
        facts = {
            "name": result.name,
            "version": result.version,
            "new_function": result.new_function,
            "new_version": result.new_version,
            "created_streams": result.streams,
            "status": result.status,
            "lints": code.lints,
            "notes": result.notes,
            **running_facts(result.progress),
        }
        return Done(f"deployed {result.name} {what}{made}{how}", facts)

    @command
    def functions(self) -> Table:
        """List functions."""
        from jeet.control import registry

        return Table(
            (
                "name",
                "version",
                "status",
                "source",
                "sink",
                "partitions",
                "tasks",
                "running",
                "lag",
                "dead_letters",
                "deployed_at",
            ),
            [
                (
                    each.name,
                    each.version,
                    each.status,
                    each.source,
                    each.sink,
                    each.partitions,
                    each.tasks,
                    each.running,
                    each.lag,
                    each.dead_letters,
                    each.deployed_at,
                )
                for each in registry.functions(self.db)
            ],
            empty="no function is deployed yet; try: jeet deploy FILE --source=STREAM",
        )

    @command
    def show(self, name: Annotated[str, "the function"]) -> Record:
        """Show a function's settings, collections and tasks."""
        from jeet.control import registry

        found = registry.show(self.db, name)
        spec = dict(found.spec)
        values: dict[str, object] = {
            "name": found.name,
            "version": found.version,
            "status": f"{found.status}, draining for another version"
            if found.draining
            else f"{found.status}, being rebuilt ({found.rebuilding})"
            if found.rebuilding
            else f"{found.status}; its rebuild ended, and changed nothing: {found.rebuild_failed}"
            if found.rebuild_failed
            else found.status,
            "source": spec.get("source"),
            "sink": spec.get("sink"),
            "key": spec.get("key"),
            "outputs": ", ".join(found.outputs) or None,
            "on_error": spec.get("on_error"),
            "input": spec.get("input"),
            "start": spec.get("start"),
            "hold_ttl": found.hold_ttl,
            "file": found.filename,
            "plugin": found.plugin_hash,
            "created_at": found.created_at,
            "deployed_at": found.deployed_at,
        }
        if found.collections:
            values["collections"] = Table(
                ("name", "ttl", "refresh"), [(each.name, each.ttl, each.refresh) for each in found.collections]
            )
        values["tasks"] = Table(
            (
                "stage",
                "partition",
                "stream",
                "status",
                "worker",
                "host",
                "version",
                "epoch",
                "next_offset",
                "lag",
                "dead_letters",
                "halt_reason",
            ),
            [
                (
                    each.stage,
                    each.partition,
                    each.stream,
                    each.status,
                    each.worker,
                    each.host,
                    each.version,
                    each.epoch,
                    each.next_offset,
                    each.lag,
                    each.dead_letters,
                    each.halt_reason,
                )
                for each in found.tasks
            ],
        )
        return Record(values)

    @command
    def graph(
        self,
        function: Annotated[str, "a deployed function, or a file"],
        *,
        format: Annotated[Literal["text", "mermaid", "svg"], "how to draw it"] = "text",
        live: Annotated[bool, "with rates and lag, measured for a second"] = False,
        source: Annotated[str | None, "of a file that does not name its source"] = None,
        sink: Annotated[str | None, "of a file that does not name its sink"] = None,
        key: Annotated[str | None, "of a file that does not name its key"] = None,
    ) -> Record | None:
        """Show a function's stages and the streams around them.

        A stage runs without moving events to another partition: keyBy ends one and begins the next, with a stream of
        the function's own between them. A file needs no database; the partitions of its streams are then assumed. Put
        SVG into a file: jeet graph NAME --format=svg > graph.svg. docs/graph.md tells what stages are.
        """
        from dataclasses import asdict

        from jeet.cli import drawing
        from jeet.control import graphs

        file = Path(function)
        if file.suffix in (".js", ".mjs", ".wasm") or (file.is_file() and "/" in function):
            if live:
                raise UsageError("--live is of a function that is deployed: jeet graph NAME --live")
            picture = graphs.of_file(self._read(file, source=source, sink=sink, key=key))
        else:
            if source or sink or key:
                raise UsageError(f"{function} is no file: what is deployed has its source, sink and key")
            picture = graphs.of_function(self.db, function, live=live)
        if self.out.json:
            return Record(asdict(picture))
        draw = {"text": drawing.as_text, "mermaid": drawing.as_mermaid, "svg": drawing.as_svg}[format]
        self.out.text(draw(picture))
        return None

    @command
    def versions(self, name: Annotated[str, "the function"]) -> Table:
        """List a function's versions, newest first."""
        from jeet.control import registry

        return Table(
            ("version", "current", "deployed_at", "file", "source", "sink", "digest"),
            [
                (each.version, each.current, each.deployed_at, each.filename, each.source, each.sink, each.digest[:12])
                for each in registry.versions(self.db, name)
            ],
        )

    @command
    def rollback(
        self,
        name: Annotated[str, "the function"],
        version: Annotated[int | None, "default: the one before the present one"] = None,
        *,
        drain: Annotated[bool, "if its stages differ, the present version first uses up what is under way"] = False,
        reset: Annotated[bool, "discard state and begin anew"] = False,
        savepoint: Annotated[bool, "first keep state and positions in a savepoint"] = True,
    ) -> Done:
        """Run an earlier version again; state and progress stay as they are."""
        from jeet.control import lifecycle

        done = lifecycle.rollback(
            self.db,
            name,
            version,
            wait_s=self.settings.deploy_wait_s,
            graph=_graph(drain, reset),
            savepoint=savepoint,
            tell=self.out.note,
        )
        for text in done.notes:
            self.out.note(f"note: {text}")
        return _done(done, "runs version")

    @command
    def pause(self, name: Annotated[str, "the function"]) -> Done:
        """Stop a function where it stands; nothing of it commits from the moment this returns."""
        from jeet.control import lifecycle

        return _done(lifecycle.pause(self.db, name), "is paused at version")

    @command
    def resume(self, name: Annotated[str, "the function"]) -> Done:
        """Let a paused function go on, or one that halted try again; or call off a drain that was cut short."""
        from jeet.control import lifecycle

        resumed = lifecycle.resume(self.db, name, wait_s=self.settings.deploy_wait_s)
        for text in resumed.notes:
            self.out.note(f"note: {text}")
        return _done(resumed, "runs version")

    @command
    def delete(self, name: Annotated[str, "the function"]) -> Done:
        """Delete a function with its state, checkpoints, dead letters and internal streams; its other streams stay."""
        from dataclasses import asdict

        from jeet.control import lifecycle

        gone = lifecycle.delete(self.db, name)
        return Done(
            f"deleted {gone.name}: {counted(gone.tasks, 'task')},"
            f" {counted(gone.state_entries, 'state entry', 'state entries')},"
            f" {counted(gone.open_dead_letters, 'open dead letter')}; its streams are still there",
            asdict(gone),
        )

    def _read(self, file: Path, **flags: Any) -> Code:
        """A function's code, described in the sandbox."""
        from jeet.control.code import read_code
        from jeet.control.spec import Flags
        from jeet.sandbox.engine import Engine

        engine = Engine(self.settings.sandbox_cache)
        try:
            return read_code(file, engine.load_plugin(self.settings.javy_plugin), Flags(**flags))
        finally:
            engine.close()


def _graph(drain: bool, reset: bool) -> Graph:
    if drain and reset:
        raise UsageError("--drain keeps what is under way and --reset discards it: choose one")
    return "drain" if drain else "reset" if reset else "same"


def _done(result: Changed, words: str) -> Done:
    message = f"{result.name} {words} {result.version}" + ("" if result.changed else " (already)")
    facts = {
        "name": result.name,
        "status": result.status,
        "version": result.version,
        "changed": result.changed,
        "notes": result.notes,
    }
    if result.progress is None:
        return Done(message, facts)
    if result.status == "running":
        message += f"; {running(result.progress)}"
    return Done(message, {**facts, **running_facts(result.progress)})


def running(progress: Progress) -> str:
    """How many tasks run what they should, and why not all."""
    if progress.complete:
        return f"{progress.tasks} of {counted(progress.tasks, 'task')} run{'s' if progress.tasks == 1 else ''} it"
    if progress.workers == 0:
        return "no worker is running: its tasks start when one does (jeet worker)"
    if not progress.coordinator:
        return "no coordinator is running: nobody hands its tasks out (jeet coordinator)"
    stages = dict.fromkeys(progress.stages)
    missing = "; ".join(
        (f"stage {stage} " if len(stages) > 1 or stage else "")
        + f"partition{'s' if progress.stages.count(stage) > 1 else ''} "
        + ", ".join(str(p) for s, p in zip(progress.stages, progress.missing, strict=True) if s == stage)
        for stage in stages
    )
    return (
        f"{progress.tasks - len(progress.missing)} of {counted(progress.tasks, 'task')} run it; not yet: {missing}"
        " (jeet status tells more)"
    )


def running_facts(progress: Progress) -> dict[str, object]:
    """The same for --json."""
    return {
        "tasks": progress.tasks,
        "not_running": progress.missing,
        "not_running_stages": progress.stages,
        "workers": progress.workers,
        "coordinator": progress.coordinator,
    }
