"""What `jeet tail` prints: each event as it was published, or with --json what the log knows about it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from jeet.cli.output import Output, sentence
from jeet.db.connect import connect
from jeet.errors import JeetError
from jeet.stream.tail import Start, Tail

if TYPE_CHECKING:
    from jeet.stream.tail import Event


def tail(
    out: Output, url: str, stream: str, *, start: str, partition: int | None, limit: int | None, follow: bool
) -> None:
    """Print events until there are no more, or `limit` of them, or for ever with `follow`."""
    position = cast(Start, int(start) if start.isdigit() else start)
    asyncio.run(_tail(out, url, stream, position, partition, limit, follow))


async def _tail(
    out: Output, url: str, stream: str, start: Start, partition: int | None, limit: int | None, follow: bool
) -> None:
    try:
        db = await connect(url, "jeet tail")
    except OSError as error:
        raise JeetError(
            f"the database cannot be reached: {sentence(error)}; check JEET_DATABASE_URL, and that its server runs"
        ) from error
    try:
        left = limit
        lines = Output()  # each line is JSON already, and is not read and written again, which might round a number
        events = Tail(db, stream, partition).events(start, follow=follow)
        while left is None or left > 0:
            event = await anext(events, None)
            if event is None:
                return
            lines.item(_with_place(stream, event) if out.json else event.value, {})
            left = None if left is None else left - 1
    finally:
        db.terminate()


def _with_place(stream: str, event: Event) -> str:
    place = {
        "stream": stream,
        "partition": event.partition,
        "offset": event.offset,
        "key": event.key,
        "timestamp": datetime.fromtimestamp(event.timestamp_ms / 1000, UTC).isoformat(),
    }
    rest = f', "headers": {event.headers or "null"}, "value": {event.value}}}'
    return json.dumps(place, ensure_ascii=False).removesuffix("}") + rest
