"""What must come out, computed from the generator alone, never from Jeet.

Each event has a unique id, a key and an amount. For each key the outputs must be exactly the prefix sums,
in order, once. Of a mixed load some events are filtered out (amount 0) and some fail after they changed state (amount
below 0): those are dead letters, once, and leave no trace elsewhere.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from itertools import accumulate
from typing import Any

import psycopg

TOTALS_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId' };
stream.map(event => {
  state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
  return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
});
"""

MIXED_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId' };
stream.filter(event => event.amount !== 0).map(event => {
  state.totals[event.userId] = (state.totals[event.userId] || 0) + event.amount;
  if (event.amount < 0) throw new Error('an amount below zero');
  return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
});
"""


class Generator:
    """Makes events from a seed and remembers, per key, what the outputs have to be."""

    def __init__(self, seed: int, keys: int, *, mixed: bool = False) -> None:
        self.mixed = mixed
        self.filtered: set[int] = set()
        self.failing: set[int] = set()
        self.random = random.Random(seed)
        names = [f"u{number}" for number in range(max(1, keys - 3))]
        self.keys = [*names, "__proto__", "constructor", "user 'é' \n"][:keys] if keys > 3 else names
        self.made = 0
        self.expected: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def events(self, count: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(count):
            key, amount = self.random.choice(self.keys), self.random.randrange(1, 1000)
            fate = self.random.random() if self.mixed else 1.0
            if fate < 0.02:
                amount = 0
                self.filtered.add(self.made)
            elif fate < 0.03:
                amount = -1
                self.failing.add(self.made)
            else:
                self.expected[key].append((self.made, amount))
            made.append({"id": self.made, "userId": key, "amount": amount})
            self.made += 1
        return made

    def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """key → (id, running total) of each of its events, in order."""
        return {
            key: list(zip((i for i, _ in rows), accumulate(amount for _, amount in rows), strict=True))
            for key, rows in self.expected.items()
        }


class Load:
    """Publishes the generator's events at a steady rate from a thread of its own until told to stop.

    A call whose outcome is unknown is made again, with the same ids, until it is answered: as producers should.
    """

    def __init__(self, url: str, generator: Generator, stream: str = "events", per_tick: int = 100) -> None:
        self.url, self.generator, self.stream, self.per_tick = url, generator, stream, per_tick
        self.stopping = threading.Event()
        self.repeats = 0
        self.thread = threading.Thread(target=self._run, name="load")
        self.error: BaseException | None = None

    def _run(self) -> None:
        db: psycopg.Connection[Any] | None = None
        try:
            while not self.stopping.wait(0.02):
                events = self.generator.events(self.per_tick)
                while True:
                    try:
                        if db is None:
                            db = psycopg.connect(self.url, autocommit=True, connect_timeout=5)
                        publish(db, self.stream, events, with_ids=True)
                        break
                    except psycopg.OperationalError:
                        self.repeats += 1
                        if db is not None:
                            db.close()
                        db = None
                        time.sleep(0.05)
        except BaseException as error:
            self.error = error
            raise
        finally:
            if db is not None:
                db.close()

    def __enter__(self) -> Load:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No event is published from now on."""
        self.stopping.set()
        self.thread.join()
        self.check()

    def check(self) -> None:
        assert self.error is None, self.error


def publish(db: psycopg.Connection[Any], stream: str, events: list[dict[str, Any]], *, with_ids: bool = False) -> None:
    refused = db.execute(
        "select error from jeet.publish_many(%s, %s::json[], null, %s::text[]) where error is not null",
        (stream, [json.dumps(event) for event in events], [str(e["id"]) for e in events] if with_ids else None),
    ).fetchall()
    assert refused == [], refused


def check_exact(
    db: psycopg.Connection[Any], generator: Generator, function: str = "totals", sink: str = "totals"
) -> None:
    """Each event once: an output, a dead letter or filtered; prefix sums exact and in order; state the last output."""
    wanted = generator.outputs()
    got: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rows = db.execute(
        'select value::text from jeet.stream_events where stream = %s order by partition, "offset"', (sink,)
    ).fetchall()
    for (text,) in rows:
        value = json.loads(text)
        got[value["userId"]].append((value["id"], value["currentTotal"]))
    due = generator.made - len(generator.filtered) - len(generator.failing)
    assert len(rows) == due, f"{len(rows)} outputs for {due} events"
    assert set(got) == set(wanted)
    for key, outputs in wanted.items():
        assert got[key] == outputs, f"outputs of {key!r} are not the prefix sums in order"
    state = dict(
        db.execute(
            "select key, value from jeet.state where function = %s and collection = 'totals'", (function,)
        ).fetchall()
    )
    assert state == {key: outputs[-1][1] for key, outputs in wanted.items()}
    dead = db.execute("select event::json ->> 'id' from jeet.dead_letters where function = %s", (function,)).fetchall()
    assert sorted(int(row[0]) for row in dead) == sorted(generator.failing)
