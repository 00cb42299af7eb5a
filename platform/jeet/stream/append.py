"""The producer: publishes events, and files of them, as fast as the database takes them.

Promise: what is reported as written is committed. A block of lines whose connection was lost is sent again under the
same token and written once; only when the database stays away for `patience_s` does PublishInterrupted end it, and it
says which lines are in. Lines are appended in the order of the input, so events of one key keep it. The gate is the
database's: a bad event is refused by name, the others go in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType

from jeet.clock import SYSTEM_CLOCK, Clock
from jeet.errors import NotFound, Refused, RetryLater, UsageError
from jeet.ids import Offset, Partition
from jeet.limits import DEFAULTS
from jeet.stream.delivery import Delivery, Unreachable
from jeet.stream.lines import Block, LineReader, Source


@dataclass(frozen=True)
class Published:
    """How far a publication has come, or what it came to."""

    lines: int = 0
    """lines read, blank ones included; all of them are accounted for"""
    size: int = 0
    """bytes read"""
    written: int = 0
    """events that are in the stream, repeated ones included"""
    repeated: int = 0
    """of those, events that were there before, by their id"""
    refused: int = 0


@dataclass(frozen=True)
class Placed:
    """Where an event is in its stream."""

    partition: Partition
    offset: Offset


class PublishInterrupted(RetryLater):
    """The database stayed away for longer than the producer's patience. `published` is what is certainly in."""

    def __init__(self, published: Published, in_doubt: int | None, cause: str) -> None:
        self.published = published
        doubt = f", lines {published.lines + 1} to {in_doubt} may be" if in_doubt is not None else ""
        super().__init__(
            f"lost the database ({cause}): lines up to {published.lines} are in{doubt}, later ones are not."
            " With --id_field the whole file can be published again without doubling an event"
        )


class Producer:
    """Publishes over one connection, opened when first needed and again when lost: `async with Producer(url)`."""

    def __init__(
        self,
        database_url: str,
        *,
        wait_when_full: bool = True,
        patience_s: float = 60.0,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self._delivery = Delivery(
            database_url,
            wait_when_full=wait_when_full,
            patience_s=patience_s,
            clock=clock,
            random=random or Random(),
        )

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._delivery.close()

    async def publish(
        self,
        stream: str,
        event: object,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> Placed:
        """Append one event, a JSON text or a value to be written as JSON; raise Refused if it breaks a rule."""
        placed = (await self.publish_many(stream, [event], keys=[key], ids=[id]))[0]
        if isinstance(placed, Refused):
            raise placed
        return placed

    async def publish_many(
        self,
        stream: str,
        events: Sequence[object],
        *,
        keys: Sequence[str | None] | None = None,
        ids: Sequence[str | None] | None = None,
    ) -> list[Placed | Refused]:
        """Append the good ones of these events, in order; say of each where it went or why it was refused.

        When the connection is lost, events that all have an id are sent again, which writes none twice; without, they
        may be in or not, and RetryLater says so.
        """
        for what, beside in (("keys", keys), ("ids", ids)):
            if beside is not None and len(beside) != len(events):
                raise UsageError(f"there are {len(events)} events but {len(beside)} {what}; nothing was published")
        sent, texts, result = [], [], list[Placed | Refused]()
        for index, event in enumerate(events):
            text = _json_text(event)
            if isinstance(text, str):
                beside_fault = _beside_fault(keys and keys[index], ids and ids[index])
                text = beside_fault if beside_fault is not None else text
            if isinstance(text, Refused):
                result.append(text)
            else:
                result.append(Placed(Partition(-1), Offset(-1)))
                sent.append(index)
                texts.append(text)
        sent_ids = None if ids is None else [ids[index] for index in sent]
        try:
            rows = await self._delivery.run(
                "publish_texts",
                (_check_name(stream), texts, None if keys is None else [keys[index] for index in sent], sent_ids),
                repeatable=sent_ids is not None and None not in sent_ids,
            )
        except Unreachable as error:
            what = "events may be in or not; give each an id to send them again safely"
            raise RetryLater(
                f"lost the database ({error}): {what if error.in_doubt else 'nothing was written'}"
            ) from error
        for index, row in zip(sent, rows, strict=True):
            if row["error"] is None:
                result[index] = Placed(Partition(row["partition"]), Offset(row["offset"]))
            else:
                result[index] = _refused(row["error"], None)
        return result

    async def publish_lines(
        self,
        stream: str,
        source: Source,
        *,
        key: str | None = None,
        id_field: str | None = None,
        on_refused: Callable[[Refused], None] = lambda refused: None,
        on_progress: Callable[[Published], None] = lambda published: None,
    ) -> Published:
        """Append the events of a file or pipe, one a line; `key` and `id_field` are paths in each event."""
        paths = (_path(key, "key"), _path(id_field, "id_field"))
        stream = _check_name(stream)
        reader = LineReader(source)
        published = Published()
        # The next block is read and decoded while the database works on this one.
        coming = _in_thread(reader.read)
        while (block := await coming) is not None:
            coming = _in_thread(reader.read)
            published = await self._publish_block(stream, block, paths, published, on_refused)
            on_progress(published)
        return published

    async def _publish_block(
        self,
        stream: str,
        block: Block,
        paths: tuple[list[str] | None, list[str] | None],
        before: Published,
        on_refused: Callable[[Refused], None],
    ) -> Published:
        refused = list(block.refused)
        written = repeated = 0
        if block.numbers:
            values = (stream, block.text, *paths, uuid.uuid4())
            try:
                row = (await self._delivery.run("publish_lines", values, repeatable=True))[0]
            except Unreachable as error:
                raise PublishInterrupted(before, block.end if error.in_doubt else None, str(error)) from error
            written, repeated = row["written"], row["repeated"]
            for n, reason in zip(row["refused"], row["reasons"], strict=True):
                refused.append(_refused(reason, block.numbers[n - 1]))
        for one in sorted(refused, key=lambda one: one.line or 0):
            on_refused(one)
        return Published(
            block.end,
            before.size + block.size,
            before.written + written,
            before.repeated + repeated,
            before.refused + len(refused),
        )


def _in_thread(read: Callable[[], Block | None]) -> asyncio.Future[Block | None]:
    """Run a read that may wait for ever. Its thread is a daemon: waiting for input must not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Block | None] = loop.create_future()

    def settle(block: Block | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(block)

    def work() -> None:
        block, failure = None, None
        try:
            block = read()
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits it
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, block, failure)

    threading.Thread(target=work, name="jeet-publish-read", daemon=True).start()
    return future


def _json_text(event: object) -> str | Refused:
    """The event as JSON text that can be sent; what else it holds is the database's to judge."""
    if isinstance(event, str):
        return _sendable(event)
    try:
        fault = _python_fault(event)
        text = json.dumps(event, ensure_ascii=False, allow_nan=False) if fault is None else ""
    except (ValueError, TypeError) as error:
        return Refused(f"cannot be written as JSON: {error}", code="not_json")
    return _sendable(text) if fault is None else fault


def _sendable(text: str) -> str | Refused:
    try:
        text.encode()
    except UnicodeEncodeError:
        return Refused("holds a lone surrogate (half of a character)", code="lone_surrogate")
    if "\0" in text:
        return Refused("is not JSON: holds a NUL character", code="not_json")
    return text


def _python_fault(event: object) -> Refused | None:
    """What json.dumps would bend (names that are no strings) or fail at in a way of its own (depth, cycles, digits)."""
    level, around = [event], 0
    while level:
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict | list | tuple) and around >= _DEPTH:
                return Refused(f"is nested deeper than {_DEPTH} levels (or refers to itself)", code="depth")
            if isinstance(value, dict):
                if not all(isinstance(name, str) for name in value):
                    return Refused("cannot be written as JSON: it has a name that is no string", code="not_json")
                inner.extend(value.values())
            elif isinstance(value, list | tuple):
                inner.extend(value)
            elif isinstance(value, int) and value.bit_length() > 4 * _DIGITS:
                return Refused(f"holds a number of more than {_DIGITS} digits", code="number_digits")
        level, around = inner, around + 1
    return None


_DEPTH, _DIGITS = DEFAULTS["depth"], DEFAULTS["number_digits"]


def _beside_fault(key: object, id: object) -> Refused | None:  # noqa: A002
    """What cannot be sent as a key or an id at all; the rest is the database's to judge."""
    for what, value in (("key", key), ("id", id)):
        if value is None:
            continue
        if not isinstance(value, str):
            return Refused(f"was given {what} {value!r:.40}, which is no string", code=f"{what}_type")
        if "\0" in value:
            return Refused(f"was given a {what} that holds a NUL character", code="nul")
        if not _is_utf8(value):
            return Refused(
                f"was given a {what} that holds a lone surrogate (half of a character)", code="lone_surrogate"
            )
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_name(stream: str) -> str:
    """A stream's name as it can be sent; one that cannot is the name of no stream."""
    if "\0" in stream or not _is_utf8(stream):
        raise NotFound(f"there is no stream {json.dumps(stream)}; nothing was published")
    return stream


def _refused(reason: str, line: int | None) -> Refused:
    code, _, message = reason.partition(": ")
    return Refused(message, code=code, line=line)


def _path(path: str | None, flag: str) -> list[str] | None:
    if path is None:
        return None
    names = path.split(".")
    if not all(names) or "\0" in path or not _is_utf8(path) or len(path.encode()) > DEFAULTS["key_path_bytes"]:
        raise UsageError(
            f"--{flag}={json.dumps(path)} is not a path: use names joined by dots, such as userId or user.id"
        )
    return names
