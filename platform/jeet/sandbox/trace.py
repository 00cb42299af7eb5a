"""What the engine says of a failure, read: messages, and stack lines that name the user's file and no others."""

from __future__ import annotations

import re

from jeet.errors import DeployError
from jeet.sandbox.module import DRIVER_FIRST_LINE

_PLACE = re.compile(r"\(?function\.mjs:(\d+)(:\d+)?\)?")


class SyntaxFault(Exception):
    def __init__(self, what: str, line: int) -> None:
        self.what = what
        self.line = line
        super().__init__(what)


class ModuleFailed(Exception):
    """A module's top level threw."""

    def __init__(self, error: str, stack: str) -> None:
        self.error = error
        self.stack = stack
        super().__init__(error)


def module_failed(text: str) -> ModuleFailed:
    first, _, rest = text.partition("\n")
    return ModuleFailed(first.strip(), rest)


def syntax_fault(message: str) -> SyntaxFault:
    first, _, rest = message.partition("\n")
    found = _PLACE.search(rest) or _PLACE.search(first)
    what = re.sub(r"^(Error|SyntaxError): ", "SyntaxError: ", first.strip())
    if not what.startswith("SyntaxError"):
        what = f"SyntaxError: {what}"
    # QuickJS names the token that it met, and the end of the input is an empty one.
    what = re.sub(r"(unexpected token(?: in expression)?:|got) ''(?=$|\s)", r"\1 end of input", what)
    return SyntaxFault(what, int(found.group(1)) if found else 1)


def deploy_error(filename: str, error: str, stack: str) -> DeployError:
    found = next((match for match in _PLACE.finditer(stack) if int(match.group(1)) < DRIVER_FIRST_LINE), None)
    where = f"{filename}:{found.group(1)}" if found else filename
    return DeployError(f"{where}: {error.splitlines()[0] if error else 'the module failed'}")


def place(stack: str, filename: str) -> str:
    """A stack of the guest with the driver's frames taken out and the user's file named."""
    kept: list[str] = []
    for line in stack.splitlines():
        found = _PLACE.search(line)
        if found is not None:
            if int(found.group(1)) >= DRIVER_FIRST_LINE:
                continue
            line = line.replace("function.mjs", filename)
        elif "(native)" in line and not kept:
            continue
        if line.strip():
            kept.append(line)
    return "\n".join(kept)
