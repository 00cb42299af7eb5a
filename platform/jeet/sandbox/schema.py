"""The input schema: events that break it are condemned before any state is touched.

JSON Schema 2020-12, checked on the host, only for functions that have `config.input`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from jeet.errors import DeployError
from jeet.sandbox.call import BatchInput, Fault
from jeet.sandbox.gate import cut_text

_MAX_MESSAGE = 2000


def check_schema(schema: object) -> None:
    """DeployError if this is not a JSON Schema of 2020-12."""
    if not isinstance(schema, dict | bool):
        raise DeployError("config.input must be a JSON Schema (an object)")
    try:
        jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise DeployError(f"config.input is not a JSON Schema of 2020-12: {str(error).splitlines()[0]}") from error


class InputSchema:
    """A compiled schema."""

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        self._validator = jsonschema_rs.Draft202012Validator(
            schema if isinstance(schema, bool) else dict(schema), validate_formats=True
        )

    def condemn(self, batch: BatchInput) -> dict[int, Fault]:
        """The events that break the schema, each with a fault that names the failing path."""
        condemned: dict[int, Fault] = {}
        for index, line in enumerate(batch.values.split(b"\n")):
            event = json.loads(line)
            if self._validator.is_valid(event):
                continue
            first = next(iter(self._validator.iter_errors(event)))
            path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first.instance_path)
            what = cut_text(f"InputError: {path}: {first.message}", _MAX_MESSAGE)
            condemned[index] = Fault(index=index, error=what, stack="", state_key=None)
        return condemned
