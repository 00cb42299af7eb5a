"""JeetError and its family: the class says how a caller should react, attributes carry the facts.

Promise: every error that leaves a Jeet module is one of these. The message is one line that says what happened, what
became of the data, and what to do next; it never holds a password.
"""

from __future__ import annotations


class JeetError(Exception):
    """Base of all errors that Jeet raises on purpose."""


class UsageError(JeetError):
    """The person or program asked for something that cannot be done as asked: report the line, exit 1."""


class SettingsError(UsageError):
    """One or more settings are wrong; the message lists every fault."""


class DeployError(UsageError):
    """A function cannot be deployed as it is; the message names file and line where it can."""


class NotFound(UsageError):
    """A stream, function, version, event or dead letter of that name does not exist."""


class Refused(UsageError):
    """An event breaks a limit or a rule of its stream and was not accepted.

    `code` is the name of the limit or rule, `line` the 1-based line of the input (None when there is only one event),
    `reason` says what is wrong and ends with the code.
    """

    def __init__(self, message: str, *, code: str, line: int | None = None) -> None:
        self.code = code
        self.line = line
        self.reason = f"{message} ({code})"
        super().__init__(self.reason if line is None else f"line {line}: {self.reason}")


class RetryLater(JeetError):
    """Nothing was changed; the same call may succeed later (connection lost before COMMIT, serialization failure)."""


class StopTask(JeetError):
    """This worker must give the task up and write nothing more for it."""


class StopWorker(JeetError):
    """This worker process must stop every task and start over under a new incarnation."""


class SandboxError(JeetError):
    """The guest failed as a whole; its instance is gone and none of the batch's effects may be used."""


class PluginError(JeetError):
    """A Javy plugin cannot be loaded, built or used."""
