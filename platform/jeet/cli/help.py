"""Help pages, made from the commands themselves: an overview by noun, a page a command."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

from jeet.cli.command import Parameter, is_command, parameters
from jeet.cli.group import Group

WIDTH = 118


def overview(groups: Sequence[tuple[str, type[Group]]]) -> str:
    """What `jeet --help` prints."""
    lines = [
        "Jeet runs JavaScript functions over partitioned event streams, exactly once, on Postgres.",
        "",
        "usage: jeet COMMAND [ARGUMENTS] [--FLAGS]       jeet COMMAND --help tells more",
    ]
    for prefix, group in groups:
        lines += ["", f"{heading(group)}:"]
        lines += _listing(group, prefix)
    lines += [
        "",
        "Every command takes --json. The database is JEET_DATABASE_URL, else the one that `jeet up` started here.",
    ]
    return "\n".join(lines)


def group_page(name: str, group: type[Group]) -> str:
    """What `jeet dlq --help` prints."""
    return "\n".join([f"{heading(group)}", "", f"usage: jeet {name} COMMAND …", "", *_listing(group, f"{name} ")])


def command_page(name: str, command: Callable[..., Any]) -> str:
    """What `jeet COMMAND --help` prints."""
    spec = parameters(getattr(command, "__func__", command))
    lines = [f"usage: jeet {usage(name, spec)}", "", *_paragraphs(inspect.getdoc(command) or "")]
    places = [parameter for parameter in spec if not parameter.flag]
    flags = [parameter for parameter in spec if parameter.flag]
    for heading, chosen in (("arguments", places), ("flags", flags)):
        if chosen:
            lines += ["", f"{heading}:"]
            width = min(max(len(_typed(parameter)) for parameter in chosen), 30)
            for parameter in chosen:
                lines += _entry(_typed(parameter), width, _described(parameter))
    return "\n".join(lines)


def usage(name: str, spec: Sequence[Parameter]) -> str:
    words = [name]
    for parameter in spec:
        if not parameter.flag:
            word = parameter.typed + ("…" if parameter.many else "")
            words.append(word if parameter.required else f"[{word}]")
        elif parameter.required:
            words.append(_typed(parameter))
    return " ".join(words) + (" [--FLAGS]" if any(p.flag for p in spec) else "")


def _listing(group: type[Group], prefix: str) -> list[str]:
    commands = [(name, member) for name, member in vars(group).items() if is_command(member)]
    shown = []
    for name, member in commands:
        places = [p for p in parameters(member) if not p.flag]
        words = [
            p.typed + ("…" if p.many else "") if p.required else f"[{p.typed}{'…' if p.many else ''}]" for p in places
        ]
        shown.append((" ".join([prefix + name.rstrip("_"), *words]), (inspect.getdoc(member) or "").partition("\n")[0]))
    return [line for left, right in shown for line in _entry(left, 34, right.rstrip("."))]


def _entry(left: str, width: int, right: str) -> list[str]:
    wrapped = textwrap.wrap(right, WIDTH - width - 4) or [""]
    lead = f"  {left:<{width}}  "
    if len(left) > width:
        return [f"  {left}", *(" " * (width + 4) + line for line in wrapped)]
    return [(lead + wrapped[0]).rstrip(), *(" " * (width + 4) + line for line in wrapped[1:])]


def heading(group: type[Group]) -> str:
    return (inspect.getdoc(group) or group.__name__).partition("\n")[0].rstrip(".")


def _typed(parameter: Parameter) -> str:
    if not parameter.flag:
        return parameter.typed
    if parameter.kind is bool:
        return parameter.typed if parameter.default is False else f"--[no_]{parameter.typed.removeprefix('--')}"
    if get_origin(parameter.kind) is Literal:
        return f"{parameter.typed}={'|'.join(str(choice) for choice in get_args(parameter.kind))}"
    name = {int: "N", float: "N"}.get(parameter.kind, parameter.name.rstrip("_").upper())
    return f"{parameter.typed}={name}"


def _described(parameter: Parameter) -> str:
    if parameter.required or parameter.kind is bool or parameter.default in (None, ""):
        return parameter.help
    return f"{parameter.help} (default {parameter.default})"


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for block in text.split("\n\n"):
        if lines:
            lines.append("")
        # An indented block is an example: kept as it stands.
        if block.startswith(" "):
            lines.extend(block.split("\n"))
        else:
            lines.extend(textwrap.wrap(" ".join(block.split()), WIDTH))
    return lines
