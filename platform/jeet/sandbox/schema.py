"""The input schema: events that break it are condemned before any state is touched.

JSON Schema 2020-12, only for functions that have `config.input`, checked outside this process (schema_process.py).
A schema refers to nothing outside itself: nothing is fetched, and no file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jeet.errors import DeployError, StopTask
from jeet.sandbox.call import BatchInput, Fault
from jeet.sandbox.gate import cut_text
from jeet.sandbox.limits import Limits
from jeet.sandbox.machine import SLICE_PATIENCE
from jeet.sandbox.schema_process import Schema, SchemaProcess, SchemaRefused

_MAX_MESSAGE = 2000
_SAMPLES = (b"null", b"true", b"0", b'""', b"[]", b"{}")


def check_schema(schema: object, process: SchemaProcess, limits: Limits) -> None:
    """DeployError if this is not a JSON Schema of 2020-12, or not one that can be checked within the limits."""
    if not isinstance(schema, dict | bool):
        raise DeployError("config.input must be a JSON Schema (an object)")
    try:
        checked = process.check(Schema(schema), b"\n".join(_SAMPLES), limits, float("inf"))
    except SchemaRefused as refused:
        raise DeployError(f"config.input {refused}") from None
    for index, sample in enumerate(_SAMPLES):
        if (text := checked.wrong.get(index, "")).startswith("checking"):
            raise DeployError(
                f"config.input cannot be used: {text}, for the event {sample.decode()} already;"
                " look for definitions that refer to each other more than once"
            )


class InputSchema:
    """The schema of a version, and how its events are checked."""

    def __init__(
        self, schema: Mapping[str, Any] | bool, process: SchemaProcess, limits: Limits, slice_ms: float
    ) -> None:
        self._schema = Schema(schema)
        self._process = process
        self._limits = limits
        self._slice_s = slice_ms / 1000 * SLICE_PATIENCE

    def condemn(self, batch: BatchInput) -> BatchInput:
        """The batch, or as much of it as there was time for, with what breaks the schema condemned: each event with a
        fault that names the failing path. StopTask if the schema cannot be used, which is no event's fault."""
        try:
            checked = self._process.check(self._schema, batch.values, self._limits, self._slice_s)
        except SchemaRefused as refused:
            raise StopTask(f"config.input {refused}; deploy the function again with another one") from None
        wrong = {
            index: Fault(index=index, error=cut_text(f"InputError: {text}", _MAX_MESSAGE), stack="", state_key=None)
            for index, text in checked.wrong.items()
        }
        batch = _first(batch, checked.count)
        return replace(batch, condemned={**wrong, **batch.condemned})


def _first(batch: BatchInput, count: int) -> BatchInput:
    """Its first events."""
    if count >= batch.count:
        return batch

    def cut(column: bytes) -> bytes:
        return b"\n".join(column.split(b"\n", count)[:count])

    return replace(
        batch,
        count=count,
        values=cut(batch.values),
        keys=cut(batch.keys),
        timestamps=cut(batch.timestamps),
        headers=cut(batch.headers),
        offsets=None if batch.offsets is None else batch.offsets[:count],
        condemned={index: fault for index, fault in batch.condemned.items() if index < count},
    )
