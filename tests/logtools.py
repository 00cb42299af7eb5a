"""Names that tests of the log share."""

from __future__ import annotations

from typing import Protocol


class MakeStream(Protocol):
    """The fixture `make_stream`; `small` makes segments of 1,000 offsets a partition."""

    def __call__(self, name: str, partitions: int = 8, *, key: str | None = None, small: bool = False) -> int: ...
