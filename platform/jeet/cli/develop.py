"""For those who write functions: no database, seconds to feedback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Record, Table, text_of
from jeet.errors import UsageError

if TYPE_CHECKING:
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
        The sandbox, its limits and the isolation of events are those of a worker; all events count as one partition.
        """
        from jeet.testing import LocalFunction

        if not file.is_file():
            raise UsageError(f"{file} is not a file")
        lines = self._lines(input)
        with LocalFunction.from_file(
            file, key=key, plugin_path=self.settings.javy_plugin, cache_dir=self.settings.sandbox_cache
        ) as function:
            counts = {"events": 0, "outputs": 0, "failures": 0, "refused": 0}
            number = 0
            while chunk := [line for _, line in zip(range(CHUNK), lines, strict=False)]:
                self._feed(function, chunk, number, counts)
                number += len(chunk)
            if state:
                self._show_state(function)
        if not self.out.json:
            self.out.note(", ".join(f"{text_of(count)} {name}" for name, count in counts.items()))

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

    def _lines(self, source: str) -> Iterator[str]:
        """The lines of the input, undecodable bytes kept apart so that they are refused by line, not all at once."""
        import sys

        if source == "-":
            yield from (line.decode("utf-8", "surrogateescape") for line in sys.stdin.buffer)
            return
        try:
            with open(source, encoding="utf-8", errors="surrogateescape") as file:
                yield from file
        except OSError as error:
            raise UsageError(f"{source} cannot be read: {error.strerror}") from error

    def _feed(self, function: LocalFunction, lines: list[str], before: int, counts: dict[str, int]) -> None:
        events: list[tuple[int, Any]] = []
        for index, line in enumerate(lines):
            if line.strip():
                try:
                    events.append((before + index + 1, _strict_json(line)))
                except ValueError as error:
                    self._refused(before + index + 1, str(error), counts)
        try:
            self._show(function.feed([event for _, event in events]), counts)
            counts["events"] += len(events)
        except ValueError:
            # Nothing was fed: one of them is not acceptable. One by one, the others go through.
            for number, event in events:
                try:
                    self._show(function.feed([event]), counts)
                    counts["events"] += 1
                except ValueError as error:
                    self._refused(number, str(error), counts)

    def _refused(self, line: int, reason: str, counts: dict[str, int]) -> None:
        counts["refused"] += 1
        self.out.item(f"refused  line {line}: {reason}", {"type": "refused", "line": line, "error": reason})

    def _show(self, run: Run, counts: dict[str, int]) -> None:
        import json

        shown: list[tuple[int, str, dict[str, object]]] = []
        for log in run.logs:
            facts: dict[str, object] = {"type": "log", "event": log.index, "level": log.level, "message": log.message}
            shown.append((log.index, f"{log.level:<8} event {log.index}: {log.message}", facts))
        for output in run.outputs:
            value = json.dumps(output.value, ensure_ascii=False)
            facts = {"type": "output", "event": output.event, "stream": output.stream, "key": output.key}
            text = f"{output.stream:<8} {value}" + (f"  (key {output.key})" if output.key is not None else "")
            shown.append((output.event, text, facts | {"value": output.value}))
        for failure in run.failures:
            facts = {"type": "failure", "event": failure.event, "error": failure.error, "stack": failure.stack}
            at = next((line.strip() for line in failure.stack.splitlines() if line.strip()), "")
            shown.append((failure.event, f"failed   event {failure.event}: {failure.error}  {at}".rstrip(), facts))
        counts["outputs"] += len(run.outputs)
        counts["failures"] += len(run.failures)
        for _, text, facts in sorted(shown, key=lambda item: item[0]):
            self.out.item(text, facts)

    def _show_state(self, function: LocalFunction) -> None:
        for name in function.collections():
            entries = function.state(name)
            if self.out.json:
                self.out.item("", {"type": "state", "collection": name, "entries": entries})
            elif entries:
                self.out.note(f"state.{name}:")
                self.out.show(Table(["key", "value"], list(entries.items())))


def _strict_json(text: str) -> Any:
    import json

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        text.encode()
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeEncodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
