"""The process `jeet-schema`: checks events against input schemas, so that whatever a schema costs is paid here.

Started by schema_process.py as a file, not as a module: it imports nothing of Jeet's, and holds no secret and no
connection. A schema and an event can make it slow, large or dead; it ends with its parent and has limits of its own.

    argv: the parent's pid, the descriptor of the shared words, the bytes of address space
    request: u32 length of a head, u32 length of the values; head {"digest", "schema" or absent, "forget"}; values
    answer: u32 length; {"checked": n, "wrong": [[index, text], …]} or {"refused": text}
    words (i64, shared): AT, PHASE, and STOP, which the parent sets to have no further event begun
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

import jsonschema_rs

try:
    from setproctitle import setproctitle
except ImportError:  # a name only
    setproctitle = None  # type: ignore[assignment]

AT, PHASE, STOP = 0, 1, 2
READING, COMPILING, CHECKING, EXPLAINING = 0, 1, 2, 3
_PR_SET_PDEATHSIG = 1
_MOST_TEXT = 2000
_OUTSIDE = re.compile(r"Resource '(.*?)' is not present in a registry")


class _OutsideTheSchemaError(Exception):
    """Nothing is fetched and no file is read."""


def _fetch_nothing(uri: str) -> Any:
    raise _OutsideTheSchemaError(uri)


def _compile(schema: Any) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, retriever=_fetch_nothing)


def _refusal(error: BaseException) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    outside = _OUTSIDE.search(line)
    if outside:
        return (
            f"refers to {outside[1][:_MOST_TEXT]!r}, which is not in it, and nothing is fetched:"
            " put that schema under $defs and refer to it as '#/$defs/…'"
        )
    return f"is not a JSON Schema of 2020-12: {line[:_MOST_TEXT]}"


def _explain(validator: jsonschema_rs.Draft202012Validator, event: Any) -> str:
    try:
        validator.validate(event)
    except jsonschema_rs.ValidationError as first:
        path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first.instance_path)
        return f"{path}: {first.message[: _MOST_TEXT + 1]}"
    return "$: does not match config.input"


def _check(validator: jsonschema_rs.Draft202012Validator, values: bytes, words: memoryview) -> dict[str, Any]:
    wrong: list[tuple[int, str]] = []
    # What json.loads does to each text besides takes longer than to parse a small one; all have passed the gate.
    is_valid, parse, index = validator.is_valid, json.JSONDecoder().raw_decode, -1
    for index, text in enumerate(values.decode().split("\n")):
        words[AT] = index
        try:
            event, _ = parse(text.lstrip())
            if is_valid(event):
                if words[STOP]:
                    break
                continue
            words[PHASE] = EXPLAINING
            wrong.append((index, _explain(validator, event)))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - what the validator cannot check does not fit
            wrong.append((index, f"$: cannot be checked: {str(error)[:_MOST_TEXT]}"))
        words[PHASE] = CHECKING
        if words[STOP]:
            break
    return {"checked": index + 1, "wrong": wrong}


def _serve(requests: BinaryIO, answers: BinaryIO, words: memoryview) -> None:
    known: dict[str, jsonschema_rs.Draft202012Validator] = {}
    while head := requests.read(8):
        head_bytes, values_bytes = struct.unpack("<II", head)
        asked = json.loads(requests.read(head_bytes))
        values = requests.read(values_bytes)
        if asked["forget"]:
            known.clear()
        words[PHASE] = COMPILING
        answer: dict[str, Any]
        try:
            if asked["digest"] not in known:
                known[asked["digest"]] = _compile(asked["schema"])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, this schema cannot be used
            answer = {"refused": _refusal(error)}
        else:
            words[AT], words[PHASE] = 0, CHECKING
            answer = _check(known[asked["digest"]], values, words)
        words[PHASE] = READING
        text = json.dumps(answer).encode()
        answers.write(struct.pack("<I", len(text)) + text)
        answers.flush()


def main() -> None:
    """Serve until the parent closes its end, or ends."""
    parent, shared, memory_bytes = (int(argument) for argument in sys.argv[1:4])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes its end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if setproctitle is not None:
        setproctitle("jeet-schema")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    words = memoryview(mmap.mmap(shared, mmap.PAGESIZE)).cast("q")
    try:
        _serve(sys.stdin.buffer, sys.stdout.buffer, words)
    except MemoryError:
        os._exit(MEMORY_EXIT)


MEMORY_EXIT = 77

if __name__ == "__main__":
    main()
