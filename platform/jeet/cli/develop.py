"""For those who write functions: no database, seconds to feedback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Record, Table, counted
from jeet.errors import UsageError
from jeet.stream.lines import LineReader

if TYPE_CHECKING:
    from jeet.stream.lines import Block
    from jeet.testing import LocalFunction, Run

CHUNK = 500
"""events that are fed at once; results are shown after each"""


class Develop(Group):
    """Write functions"""

    @command
    def dev(
        self,
        file: Annotated[Path, "the function: a .js file"],
        *,
        input: Annotated[str, "events as NDJSON, or - for stdin"],
        key: Annotated[str | None, "path of the key in each event (default: as in the function's config)"] = None,
        state: Annotated[bool, "show the state at the end"] = True,
    ) -> None:
        """Run a function on a file of events, without a database.

        Shows what it emits, what it logs, which events would become dead letters and why, and its state at the end.
        At the end of the input all windows close, and the timers that are set fire. The exit code is 1 if lines were
        refused or events failed.
        The sandbox, its limits and the isolation of events are those of a worker; all events count as one partition.
        """
        from jeet.cli.publishing import source
        from jeet.testing import LocalFunction

        if not file.is_file():
            raise UsageError(f"{file} is not a file")
        with (
            source(input) as events,
            LocalFunction.from_file(
                file, key=key, plugin_path=self.settings.javy_plugin, cache_dir=self.settings.sandbox_cache
            ) as function,
        ):
            counts = {"events": 0, "outputs": 0, "failed": 0, "refused": 0}
            for block in LineReader(events):
                self._feed(function, block, counts)
            self._show(function.finish(), counts)
            if state:
                self._show_state(function)
        summary = (
            f"{counted(counts['events'], 'event')}, {counted(counts['outputs'], 'output')},"
            f" {counts['failed']:,} failed, {counts['refused']:,} refused"
        )
        self.out.item(summary, {"type": "summary", **counts})
        faults = [
            text
            for text in (
                f"{counted(counts['failed'], 'event')} failed" if counts["failed"] else "",
                f"{counted(counts['refused'], 'line was', 'lines were')} refused" if counts["refused"] else "",
            )
            if text
        ]
        if faults:
            raise UsageError("; ".join(faults))

    @command
    def plugin(self) -> Record:
        """Show which Javy plugin compiles and runs functions.

        JEET_JAVY_PLUGIN names another one. Bytecode is tied to the plugin's hash: functions deployed from source are
        compiled anew when it changes.
        """
        import json

        from jeet.sandbox.engine import Engine
        from jeet.sandbox.plugin import BUILT_IN

        engine = Engine(self.settings.sandbox_cache)
        try:
            plugin = engine.load_plugin(self.settings.javy_plugin)
        finally:
            engine.close()
        described = BUILT_IN.with_name("plugin.json")
        known = json.loads(described.read_text()) if plugin.path == BUILT_IN and described.exists() else {}
        return Record(
            {
                "path": str(plugin.path),
                "sha256": plugin.hash,
                "namespace": plugin.namespace,
                "quickjs": known.get("quickjs", "unknown: this plugin does not tell"),
                "built_in": plugin.path == BUILT_IN,
            }
        )

    def _feed(self, function: LocalFunction, block: Block, counts: dict[str, int]) -> None:
        refused = list(block.refused)
        good: list[str] = []
        for number, text in zip(block.numbers, block.text.split("\n") if block.numbers else (), strict=True):
            if (fault := function.refusal(text, line=number)) is None:
                good.append(text)
            else:
                refused.append(fault)
        counts["refused"] += len(refused)
        for one in sorted(refused, key=lambda one: one.line or 0):
            facts = {"type": "refused", "line": one.line, "code": one.code, "error": one.reason}
            self.out.item(f"refused  {one}", facts)
        for start in range(0, len(good), CHUNK):
            chunk = good[start : start + CHUNK]
            self._show(function.feed_texts(chunk), counts)
            counts["events"] += len(chunk)

    def _show(self, run: Run, counts: dict[str, int]) -> None:
        import json

        shown: list[tuple[float, str, dict[str, object]]] = []  # with its place: what timers made comes last
        for log in run.logs:
            facts: dict[str, object] = {"type": "log", "event": log.index, "level": log.level, "message": log.message}
            shown.append((log.index, f"{log.level:<8} event {log.index}: {log.message}", facts))
        for output in run.outputs:
            value = json.dumps(output.value, ensure_ascii=False)
            facts = {"type": "output", "event": _event(output.event), "stream": output.stream, "key": output.key}
            text = f"{output.stream:<8} {value}" + (f"  (key {output.key})" if output.key is not None else "")
            shown.append((_place(output.event), text, facts | {"value": output.value}))
        for failure in run.failures:
            facts = {"type": "failure", "event": _event(failure.event), "error": failure.error, "stack": failure.stack}
            at = next((line.strip() for line in failure.stack.splitlines() if line.strip()), "")
            who = "a timer" if failure.event < 0 else f"event {failure.event}"
            shown.append((_place(failure.event), f"failed   {who}: {failure.error}  {at}".rstrip(), facts))
        for late in run.late:
            facts = {"type": "late", "event": late.event, "message": late.message}
            shown.append((late.event, f"late     event {late.event}: {late.message}", facts))
        counts["outputs"] += len(run.outputs)
        counts["failed"] += len(run.failures)
        for _, text, facts in sorted(shown, key=lambda item: item[0]):
            self.out.item(text, facts)

    def _show_state(self, function: LocalFunction) -> None:
        for name in function.collections():
            entries = function.state(name)
            if self.out.json:
                self.out.item("", {"type": "state", "collection": name, "entries": entries})
            elif entries:
                self.out.text(f"state.{name}:")
                self.out.show(Table(["key", "value"], list(entries.items())))


def _event(number: int) -> int | None:
    """Its number among those fed; None: a timer."""
    return number if number >= 0 else None


def _place(number: int) -> float:
    return number if number >= 0 else float("inf")
