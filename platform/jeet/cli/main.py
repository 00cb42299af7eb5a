"""The command line `jeet`: finds the command, checks every argument, runs it, prints what it returned.

Promise: nothing runs before every argument was understood; arguments stay the text that was typed; an error is one line
on stderr that says what to do, with exit code 1; Ctrl-C ends with 130; `jeet --help` imports nothing heavy.

How to add commands: write a class derived from `cli/group.py:Group` whose methods carry `@command` (`cli/command.py`
opens with an example), and name it in GROUPS below as `module:Class`. A group that is typed as a word of its own
(`jeet dlq list`) goes to NESTED. Command modules import only light things at their top, all else inside the method.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from jeet.cli.command import LITERAL, Call, Parameter, is_command, parameters
from jeet.cli.group import Group
from jeet.cli.output import Output, Page, Unwritable, discard_stdout, quoted, sentence, visible
from jeet.cli.refusals import refusal
from jeet.errors import JeetError, UsageError

GROUPS = (
    "jeet.cli.start:Start",
    "jeet.cli.functions:Functions",
    "jeet.cli.savepoints:Savepoints",
    "jeet.cli.streams:Streams",
    "jeet.cli.watch:Watch",
    "jeet.cli.inspect:Inspect",
    "jeet.cli.develop:Develop",
    "jeet.cli.processes:Processes",
)
NESTED = {"dlq": "jeet.cli.deadletters:DeadLetters"}

Command = Callable[..., Any]


def main() -> None:
    """The entry point of the `jeet` command."""
    if sys.stdout is None:  # whoever started us closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    code = run(sys.argv[1:])
    # Flushing here, not at exit, turns a reader that has gone into an exit code instead of a complaint.
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_gone()
    except OSError as error:
        discard_stdout()
        code = _fail(str(Unwritable(error)))
    sys.exit(code)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run(list(argv))
    except BrokenPipeError:
        return _reader_gone()
    except KeyboardInterrupt:
        return 130
    except JeetError as error:
        return _fail(str(error))
    except Exception as error:  # noqa: BLE001 - the last line of defence: nobody sees a traceback
        return _fail(_unexpected(error))


def _run(argv: list[str]) -> int:
    from jeet.cli import help as help_pages

    out = Output()
    if not argv or argv[0] in ("--help", "-h", "help"):
        out.text(help_pages.overview(headed_groups()) if len(argv) < 2 else _page(argv[1:]))
        return 0
    if argv[0] in ("--version", "-V", "version"):
        from importlib.metadata import version

        out.text(f"jeet {version('jeet')}")
        return 0
    if _asks_for_help(argv):
        out.text(_page([word for word in argv if not word.startswith("-")]))
        return 0
    path, target, words = _find(argv, out)
    call = _consume(path, target, words)
    out.json = call.json
    result = call.run()
    out.show(result)
    return result.code if isinstance(result, Page) else 0


def _consume(path: list[str], target: Command, words: list[str]) -> Call:
    """Let fire take every argument; nothing of the command has run when this returns."""
    typed = _name_arguments(" ".join(path), parameters(target), words)
    import fire

    calls: list[Call] = []
    words = [path[-1], *typed, "--", "--separator=\x1f"]
    try:
        # What fire would say about a mistake takes many lines; nothing of ours runs in this block.
        with contextlib.redirect_stderr(io.StringIO()):
            fire.Fire({path[-1]: target}, command=words, name="jeet", serialize=calls.append)
    except SystemExit as error:
        raise UsageError(
            f"jeet {' '.join(path)}: these arguments could not be understood; see jeet {path[0]} --help"
        ) from error
    return calls[0]


def _find(argv: list[str], out: Output) -> tuple[list[str], Command, list[str]]:
    """The command that the words name, its full name, and the words that are left."""
    word = argv[0].replace("-", "_")
    if argv[0] in NESTED:
        group = _load(NESTED[argv[0]])
        commands = _commands(group)
        if len(argv) == 1 or argv[1].startswith("-"):
            raise UsageError(f"jeet {argv[0]} needs one of: {', '.join(commands)}")
        name = argv[1].replace("-", "_")
        if name not in commands:
            raise UsageError(
                f"no command {argv[0]} {quoted(argv[1])}{_nearest(argv[1], commands)}; see jeet {argv[0]} --help"
            )
        return [argv[0], name], getattr(group(out), commands[name]), argv[2:]
    known: list[str] = list(NESTED)
    for group in _all_groups():
        commands = _commands(group)
        if word in commands:
            return [word], getattr(group(out), commands[word]), argv[1:]
        known.extend(commands)
    raise UsageError(f"no command {quoted(argv[0])}{_nearest(argv[0], known)}; see jeet --help")


def _name_arguments(name: str, spec: tuple[Parameter, ...], words: list[str]) -> list[str]:
    """The words with every argument named (`--stream=…`), so that no text can be taken for a flag or a value.

    Raises UsageError for what is unknown, missing, given twice or too many.
    """
    flags = {parameter.typed: parameter for parameter in spec if parameter.flag}
    places = [parameter for parameter in spec if not parameter.flag]
    # A command that takes any words for another program takes that one's flags, too, and all that follows them.
    hands_on = any(parameter.many and parameter.kind is str for parameter in places)
    values: dict[str, str] = {}
    rest: list[str] = []
    queue = list(words)

    def give(parameter: Parameter, text: str) -> None:
        if parameter.name in values:
            raise UsageError(f"jeet {name}: {parameter.typed} is given twice")
        values[parameter.name] = text

    while queue:
        word = queue.pop(0)
        if word == "--":
            rest.extend(queue)
            break
        if word == "-" or not word.startswith("-") or _is_number(word):
            rest.append(word)
            continue
        typed, equals, text = word.partition("=")
        dashed = "--" + typed.lstrip("-").replace("-", "_").rstrip("_")
        parameter = flags.get(dashed) or next((p for p in places if f"--{p.name}" == dashed and not p.many), None)
        negated = (
            flags.get("--" + dashed.removeprefix("--no_").removeprefix("--no")) if dashed.startswith("--no") else None
        )
        if parameter is None and negated is not None and negated.kind is bool and not equals:
            give(negated, "false")
        elif parameter is None and hands_on:
            rest += [word, *queue]
            break
        elif parameter is None or len(typed) - len(typed.lstrip("-")) != 2:
            raise UsageError(f"jeet {name} has no flag {typed}{_nearest(dashed, flags)}; see jeet {name} --help")
        elif parameter.kind is bool:
            give(parameter, text if equals else "true")
        elif equals:
            give(parameter, text)
        elif queue and (queue[0] == "-" or not queue[0].startswith("-") or _is_number(queue[0])):
            give(parameter, queue.pop(0))
        else:
            raise UsageError(f"jeet {name}: {typed} needs a value: {typed}={parameter.name.rstrip('_').upper()}")
    many: list[str] = []
    for parameter in places:
        if parameter.many:
            many, rest = rest, []
        elif parameter.name not in values and rest:
            values[parameter.name] = rest.pop(0)
        elif parameter.name not in values and parameter.required:
            raise UsageError(f"jeet {name} needs {parameter.typed}: {parameter.help or 'see jeet ' + name + ' --help'}")
    for parameter in flags.values():
        if parameter.required and parameter.name not in values:
            raise UsageError(f"jeet {name} needs {parameter.typed}={parameter.name.upper()}: {parameter.help}")
    if rest:
        raise UsageError(f"jeet {name} takes no further argument {quoted(rest[0])}; see jeet {name} --help")
    return [*(f"--{argument}={text}" for argument, text in values.items()), *(LITERAL + text for text in many)]


def _is_number(word: str) -> bool:
    return word[1:2].isdigit()


def _page(words: list[str]) -> str:
    from jeet.cli import help as help_pages

    if words and words[0] in NESTED and len(words) == 1:
        return help_pages.group_page(words[0], _load(NESTED[words[0]]))
    path, target, _ = _find(words, Output())
    return help_pages.command_page(" ".join(path), target)


def _asks_for_help(argv: list[str]) -> bool:
    before = argv[: argv.index("--")] if "--" in argv else argv
    return "--help" in before or "-h" in before


def _load(where: str) -> type[Group]:
    module, _, name = where.partition(":")
    group: type[Group] = getattr(import_module(module), name)
    return group


def _all_groups() -> list[type[Group]]:
    return [_load(where) for where in GROUPS]


def headed_groups() -> list[tuple[str, type[Group]]]:
    """All groups with the word that their commands begin with, in the order of the overview."""
    plain = [("", group) for group in _all_groups()]
    nested = [(f"{word} ", _load(where)) for word, where in NESTED.items()]
    return [*plain[:5], *nested, *plain[5:]]


def _commands(group: type[Group]) -> dict[str, str]:
    """Typed name → name in Python, in the order of the source."""
    return {name.rstrip("_"): name for name, member in vars(group).items() if is_command(member)}


def _nearest(word: str, known: Sequence[str] | dict[str, Any]) -> str:
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def _unexpected(error: Exception) -> str:
    """The line for an error that no part of Jeet raised on purpose."""
    from jeet.telemetry import without_secrets

    whole = error
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    refused = refusal(error)
    text = refused or (sentence(error) if isinstance(error, OSError) else " ".join(str(error).split()))
    module = type(error).__module__
    if os.environ.get("JEET_LOG_LEVEL", "").lower() == "debug":
        import traceback

        text += "\n" + "".join(traceback.format_exception(whole))
    if refused is not None:
        return without_secrets(text)
    if module.startswith("psycopg") and type(error).__name__ == "OperationalError":
        return without_secrets(_no_database(text))
    if isinstance(error, OSError):
        return without_secrets(text)
    return without_secrets(f"{type(error).__name__}: {text} (JEET_LOG_LEVEL=debug shows where)")


def _no_database(text: str) -> str:
    return f"the database cannot be reached: {text}; check JEET_DATABASE_URL, and that its server runs and has it"


def _fail(text: str) -> int:
    # One line, whatever the text held; the stack of the debug level alone keeps its lines.
    keep = os.environ.get("JEET_LOG_LEVEL", "").lower() == "debug"
    print(f"jeet: {visible(text if keep else ' '.join(text.split()), keep_lines=keep)}", file=sys.stderr)
    return 1


def _reader_gone() -> int:
    """Nobody reads stdout any more (`jeet tail … | head`): stop quietly, with the code of SIGPIPE."""
    discard_stdout()
    return 141
