"""Bad input of our own making, as data: each case has a name, the input, and the verdict that every door must give.

Names: y_ is good and must come out as it went in; n_ is refused, by the code given; i_ is left open by RFC 8259, or
read differently by others, and docs/limits.md says which of the two Jeet makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Data = TypeVar("Data")


@dataclass(frozen=True)
class Case(Generic[Data]):
    name: str
    data: Data
    code: str | None = None
    """why it is refused; None: it is accepted"""


def table(rows: dict[str, Data | tuple[Data, str]]) -> list[Case[Data]]:
    """Cases from name → data, or (data, code) for what is refused."""
    cases = []
    for name, row in rows.items():
        data, code = row if isinstance(row, tuple) else (row, None)
        assert name.startswith({True: ("y_", "i_"), False: ("n_", "i_")}[code is None]), name
        cases.append(Case(name, data, code))
    return cases
