"""Nexmark's events: persons open auctions and bid in them, as NDJSON, the same bytes from the same seed.

Of 50 events one is a person, three are auctions and 46 are bids; proportions, fields, hot auctions, sellers and bidders
are those of the Nexmark specification (the generators of Apache Beam and Flink). Each event has a `type` as well.
Event times advance at a steady rate from a start that is given; with disorder, an event comes by so much later than its
time at most: it is never further behind the highest time seen before it.

    python bench/nexmark.py --events=1000000 --seed=1 | jeet publish nexmark -
    python bench/nexmark.py --rate=5000 --realtime | jeet publish nexmark -     until it is stopped
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import string
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

PERSONS, AUCTIONS, EPOCH = 1, 3, 50
"""of each 50 events, first the person, then the auctions, then bids"""
FIRST_ID = 1000
"""of persons and auctions"""
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, AUCTIONS_IN_FLIGHT = 1000, 100
LEAD = 10
"""bids and auctions also name the next few auctions and persons, which are yet to come"""
HOT_SPAN = 100
"""one in so many auctions and persons is hot while it is among the latest so many"""
COLD_BIDS, COLD_SELLERS, COLD_BIDDERS, COLD_CHANNELS = 1 / 2, 1 / 4, 1 / 4, 1 / 2
"""share of those that do not go to what is hot"""
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
"""about the sum of an event's fields: `extra` fills up what is missing"""
START_MS = 1_436_918_400_000
"""2015-07-15 00:00 UTC, where other generators start"""

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


@dataclass(frozen=True)
class Workload:
    """Which events: `events` of them (None: no end) from number `first` on."""

    events: int | None = 100_000
    seed: int = 1
    rate: float = 10_000.0
    """events a second of event time"""
    start_ms: int = START_MS
    """time of event 0"""
    disorder_ms: int = 0
    first: int = 0


def lines(workload: Workload) -> Iterator[str]:
    """The events as JSON texts, in the order in which they arrive."""
    made = _Maker(workload).events()
    if workload.disorder_ms == 0:
        return (line for _, line in made)
    return _disordered(made, random.Random(f"{workload.seed} order"), workload.disorder_ms)


def _disordered(made: Iterator[tuple[int, str]], chance: random.Random, disorder_ms: int) -> Iterator[str]:
    """By time plus a random delay: what is ready by the time of the next event cannot be overtaken any more."""
    waiting: list[tuple[float, int, str]] = []
    for number, (at, line) in enumerate(made):
        while waiting and waiting[0][0] < at:
            yield heapq.heappop(waiting)[2]
        heapq.heappush(waiting, (at + chance.random() * disorder_ms, number, line))
    while waiting:
        yield heapq.heappop(waiting)[2]


class _Maker:
    """Makes events by number. Random text is cut out of a long one, which costs a tenth of making it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._chance = random.Random(workload.seed)
        text = random.Random(f"{workload.seed} text")
        self._text = "".join(text.choices(string.ascii_lowercase + " ", k=1 << 16))
        words = random.Random(f"{workload.seed} channels")
        self._channels = [f'"channel":"channel-{n}","url":"{_url(words)}&channel_id={n}"' for n in range(CHANNELS)]
        self._hot_channels = [f'"channel":"{name}","url":"{_url(words)}"' for name in HOT_CHANNELS]

    def events(self) -> Iterator[tuple[int, str]]:
        """(event time in ms, JSON text), by number."""
        workload = self._workload
        first, rate, start = workload.first, workload.rate, workload.start_ms
        numbers = itertools.count(first) if workload.events is None else range(first, first + workload.events)
        for number in numbers:
            at = start + int(number * 1000 / rate)
            epoch, place = divmod(number, EPOCH)
            if place >= PERSONS + AUCTIONS:
                yield at, self._bid(epoch, at)
            elif place >= PERSONS:
                yield at, self._auction(epoch, place - PERSONS, at)
            else:
                yield at, self._person(epoch, at)

    def _person(self, last: int, at: int) -> str:
        chance = self._chance
        first_name, last_name = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES)
        email = f"{self._word(7)}@{self._word(5)}.com"
        card = " ".join(f"{chance.randrange(10_000):04d}" for _ in range(4))
        city, state = chance.choice(CITIES), chance.choice(STATES)
        size = 8 + len(first_name) + 1 + len(last_name) + len(email) + len(card) + len(city) + len(state)
        return (
            f'{{"type":"person","id":{FIRST_ID + last},"name":"{first_name} {last_name}","emailAddress":"{email}",'
            f'"creditCard":"{card}","city":"{city}","state":"{state}","dateTime":{at},'
            f'"extra":"{self._extra(PERSON_BYTES - size)}"}}'
        )

    def _auction(self, epoch: int, place: int, at: int) -> str:
        chance = self._chance
        number = epoch * AUCTIONS + place
        hot = chance.random() >= COLD_SELLERS
        seller = epoch // HOT_SPAN * HOT_SPAN if hot else self._some_person(epoch)
        initial = self._price()
        # As long as it takes for twice the auctions in flight to come, at most.
        horizon_ms = AUCTIONS_IN_FLIGHT * EPOCH / AUCTIONS * 1000 / self._workload.rate
        expires = at + 1 + int(chance.random() * max(2 * horizon_ms, 1))
        name, description = self._cut(20), self._cut(100)
        return (
            f'{{"type":"auction","id":{FIRST_ID + number},"itemName":"{name}","description":"{description}",'
            f'"initialBid":{initial},"reserve":{initial + self._price()},"dateTime":{at},"expires":{expires},'
            f'"seller":{FIRST_ID + seller},"category":{FIRST_CATEGORY + chance.randrange(CATEGORIES)},'
            f'"extra":"{self._extra(AUCTION_BYTES - 168)}"}}'
        )

    def _bid(self, epoch: int, at: int) -> str:
        chance = self._chance.random
        last = epoch * AUCTIONS + AUCTIONS - 1
        if chance() >= COLD_BIDS:
            auction = last // HOT_SPAN * HOT_SPAN
        else:
            lowest = max(last - AUCTIONS_IN_FLIGHT, 0)
            auction = lowest + int(chance() * (last - lowest + 1 + LEAD))
        bidder = epoch // HOT_SPAN * HOT_SPAN + 1 if chance() >= COLD_BIDDERS else self._some_person(epoch)
        if chance() >= COLD_CHANNELS:
            channel = self._hot_channels[int(chance() * len(HOT_CHANNELS))]
        else:
            channel = self._channels[int(chance() * CHANNELS)]
        return (
            f'{{"type":"bid","auction":{FIRST_ID + auction},"bidder":{FIRST_ID + bidder},"price":{self._price()},'
            f'{channel},"dateTime":{at},"extra":"{self._extra(BID_BYTES - 32)}"}}'
        )

    def _some_person(self, last: int) -> int:
        active = min(last + 1, ACTIVE_PERSONS)
        return last + 1 - active + int(self._chance.random() * (active + LEAD))

    def _price(self) -> int:
        """In cents, from a dollar to a million, alike for each power of ten."""
        return round(10 ** (self._chance.random() * 6) * 100)

    def _extra(self, size: int) -> str:
        return self._cut(int(size * (0.8 + 0.4 * self._chance.random())))

    def _cut(self, size: int) -> str:
        at = int(self._chance.random() * ((1 << 16) - 1000))
        return self._text[at : at + size]

    def _word(self, size: int) -> str:
        return self._cut(size).replace(" ", "x")


def _url(chance: random.Random) -> str:
    path = "/".join("".join(chance.choices(string.ascii_lowercase, k=5)) for _ in range(3))
    return f"https://www.nexmark.com/{path}/item.htm?query=1"


def _paced(made: Iterator[str], rate: float) -> Iterator[str]:
    """Each event when its turn has come, by the clock."""
    began = time.monotonic()
    for number, line in enumerate(made):
        early_s = began + number / rate - time.monotonic()
        if early_s > 0.01:
            sys.stdout.flush()
            time.sleep(early_s)
        yield line


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, help="how many (without it 100,000; with --realtime: no end)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=10_000, help="events a second of event time (10,000)")
    parser.add_argument("--start", help="time of the first event, ISO (2015-07-15T00:00Z; with --realtime: now)")
    parser.add_argument("--disorder", type=int, default=0, metavar="MS", help="come by up to so much too late (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first event, to go on from before (0)")
    parser.add_argument("--realtime", action="store_true", help="write each event when its time has come")
    options = parser.parse_args()
    for name, least in (("events", 0), ("disorder", 0), ("first", 0)):
        if (getattr(options, name) or 0) < least:
            parser.error(f"--{name} must not be below {least}")
    if not options.rate > 0:
        parser.error("--rate must be above 0")
    try:
        options.start = options.start and datetime.fromisoformat(options.start)
    except ValueError:
        parser.error(f"--start is not an ISO time: {options.start!r}")
    return options


def main() -> None:
    options = _options()
    if options.start is not None:
        start = options.start if options.start.tzinfo else options.start.replace(tzinfo=UTC)
        start_ms = int(start.timestamp() * 1000)
    else:
        start_ms = int(time.time() * 1000) if options.realtime else START_MS
    events = options.events if options.events is not None or options.realtime else 100_000
    made = lines(Workload(events, options.seed, options.rate, start_ms, options.disorder, options.first))
    try:
        for line in _paced(made, options.rate) if options.realtime else made:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        # The reader has enough, and what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
