"""Connections for code that only needs some, and the pause before trying again.

Promise: a pool's sessions are set up as all of Jeet's are (db/connect.py) and carry a name in pg_stat_activity.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import asyncpg

from jeet.db.connect import SESSION, asyncpg_address

if TYPE_CHECKING:
    from asyncpg import Pool


def open_pool(database_url: str, application: str, *, size: int, timeout_s: float = 10.0) -> Pool:
    """A pool of at most `size` connections, opened when first used: `async with open_pool(…) as pool`."""
    return asyncpg.create_pool(
        asyncpg_address(database_url),
        min_size=0,
        max_size=size,
        timeout=timeout_s,
        server_settings={"application_name": application, **SESSION},
        max_cached_statement_lifetime=0,
    )


def pause_s(failures: int, random: Random, *, first_s: float = 0.05, most_s: float = 2.0) -> float:
    """The wait after so many failures in a row: doubling, bounded, jittered so that many do not return at once."""
    return min(most_s, first_s * 2.0 ** min(failures - 1, 16)) * (0.5 + random.random())
