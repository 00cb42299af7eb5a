"""A command: a method whose arguments arrive as the text that was typed, checked and converted by its annotations.

Promise: nothing runs before every argument was understood. Calling a command returns an inert `Call`; the text `1e5`,
`None`, `0x10` or `a,b` stays that text wherever the annotation says `str`.

    class Streams(Group):
        \"\"\"Streams and events\"\"\"                      # the heading in `jeet --help`

        @command
        def publish(
            self,
            stream: Annotated[str, "the stream to append to"],      # before `*`: positional, in order
            file: Annotated[str, "NDJSON, or - for stdin"] = "-",
            *,                                                       # after `*`: flags
            key: Annotated[str | None, "path of the key in each event"] = None,
            async_: Annotated[bool, "…"] = False,                    # typed as --async
        ) -> Result:
            \"\"\"Append the events of a file to a stream.

            What follows the first line is shown by `jeet publish --help`.\"\"\"
            from jeet.stream import append                           # heavy imports wait until the command runs
            …

Annotations that are understood: str, int, float, bool, Path, Literal["a", "b"], each also with `| None`; `*ids: str`
takes all that is left. A command returns a `Result` of cli/output.py (or None) and raises JeetError if it fails.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from jeet.cli.output import quoted
from jeet.errors import UsageError

LITERAL = "\x1e"
"""leads a text that fire must take as it is, though it may look like a flag"""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Parameter:
    """One argument of a command, as its annotation describes it."""

    name: str
    """as in Python"""
    kind: Any
    """str, int, float, bool, Path or a Literal"""
    help: str
    flag: bool
    many: bool
    required: bool
    default: Any

    @property
    def typed(self) -> str:
        """As it is typed: `--on_error`, `--async`, `STREAM`."""
        return f"--{self.name.rstrip('_')}" if self.flag else self.name.rstrip("_").upper()

    def convert(self, text: str) -> Any:
        """The value that `text` stands for; raise UsageError that names the argument."""
        if get_origin(self.kind) is Literal:
            choices = [str(choice) for choice in get_args(self.kind)]
            if text not in choices:
                raise UsageError(f"{self.typed} must be one of {', '.join(choices)}, not {quoted(text)}")
            return text
        if self.kind is bool:
            return self._truth(text)
        if self.kind is int:
            return self._number(text, int, "a whole number")
        if self.kind is float:
            return self._number(text, float, "a number")
        if self.kind is Path:
            return Path(text).expanduser()
        return text

    def _truth(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{self.typed} is on or off and takes no value (got {quoted(text)})")
        return text.lower() == "true"

    def _number(self, text: str, parse: Callable[[str], Any], expected: str) -> Any:
        try:
            value = parse(text if "_" not in text else "")
            if not math.isfinite(value):
                raise ValueError(text)
        except (ValueError, OverflowError):
            raise UsageError(f"{self.typed} must be {expected}, not {quoted(text)}") from None
        return value


@dataclass(frozen=True)
class Call:
    """A command and its converted arguments, not yet run."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    json: bool

    def run(self) -> Any:
        return self.function(*self.args, **self.kwargs)


def command(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method a command: every argument arrives as text, `--json` is added, and calling it returns a Call.

    In Python the plain function is `method.__wrapped__`; to its type checker nothing changes.
    """

    @functools.wraps(method)
    def make_call(self: Any, /, *args: str, json: str = "false", **kwargs: str) -> Call:
        spec = parameters(make_call)
        positional = [parameter for parameter in spec if not parameter.flag]
        values = []
        for index, text in enumerate(args):
            parameter = positional[min(index, len(positional) - 1)]
            values.append(text if parameter.default is text else parameter.convert(text.removeprefix(LITERAL)))
        flags = {p.name: p for p in spec}
        named = {
            name: text if flags[name].default is text else flags[name].convert(text) for name, text in kwargs.items()
        }
        return Call(method, (self, *values), named, flags["json"].convert(json))

    signature = inspect.signature(method)
    as_json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default="false")
    make_call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), as_json])  # type: ignore[attr-defined]
    # What fire would do to the text (`1e5` a float, `a,b` a tuple), it must not.
    make_call.FIRE_METADATA = {  # type: ignore[attr-defined]
        "ACCEPTS_POSITIONAL_ARGS": True,
        "FIRE_PARSE_FNS": {"default": str, "positional": [], "named": {}},
    }
    make_call.is_command = True  # type: ignore[attr-defined]
    return make_call  # type: ignore[return-value]


def is_command(member: object) -> bool:
    return getattr(member, "is_command", False) is True


@functools.cache
def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """What a command takes, `--json` last; `self` is left out."""
    method = getattr(function, "__wrapped__", function)
    hints = get_type_hints(method, include_extras=True)
    found = []
    for name, parameter in inspect.signature(method).parameters.items():
        if name == "self":
            continue
        hint = hints.get(name, str)
        text = ""
        if hasattr(hint, "__metadata__"):
            text = str(hint.__metadata__[0])
            hint = hint.__origin__
        found.append(
            Parameter(
                name=name,
                kind=_without_none(hint),
                help=text,
                flag=parameter.kind is inspect.Parameter.KEYWORD_ONLY,
                many=parameter.kind is inspect.Parameter.VAR_POSITIONAL,
                required=parameter.default is inspect.Parameter.empty
                and parameter.kind is not inspect.Parameter.VAR_POSITIONAL,
                default=None if parameter.default is inspect.Parameter.empty else parameter.default,
            )
        )
    found.append(Parameter("json", bool, "print JSON", True, False, False, False))
    return tuple(found)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint
