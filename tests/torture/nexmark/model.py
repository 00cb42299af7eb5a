"""The Nexmark queries once more, as plain loops over the events: what the oracles' SQL is compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]
STEP_MS, WINDOW_MS, DAY_MS = 2_000, 10_000, 86_400_000


@dataclass(frozen=True)
class Events:
    """Everything that was published, each with its time of publishing; `at` and `published_ms` are the last of each."""

    persons: Sequence[Row]
    auctions: Sequence[Row]
    bids: Sequence[Row]
    published: Sequence[int]
    """of the bids"""
    at: int
    published_ms: int

    @classmethod
    def of(cls, events: Iterable[tuple[Row, int]]) -> Events:
        all_of: dict[str, list[Row]] = defaultdict(list)
        published: list[int] = []
        last, last_published = 0, 0
        for event, at in events:
            all_of[event["type"]].append(event)
            if event["type"] == "bid":
                published.append(at)
            last, last_published = max(last, event["dateTime"]), max(last_published, at)
        return cls(all_of["person"], all_of["auction"], all_of["bid"], published, last, last_published)


def rows(query: str, events: Events) -> list[Row]:
    """What the query puts out in the end, in no order."""
    return _MODELS[query](events)


def _some(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def _q0(events: Events) -> list[Row]:
    return [_some(bid, "auction", "bidder", "price", "dateTime", "extra") for bid in events.bids]


def _q1(events: Events) -> list[Row]:
    return [{**bid, "price": 0.908 * bid["price"]} for bid in _q0(events)]


def _q2(events: Events) -> list[Row]:
    return [_some(bid, "auction", "price") for bid in events.bids if bid["auction"] % 123 == 0]


def _q3(events: Events) -> list[Row]:
    found = []
    for auction in events.auctions:
        if auction["category"] != 10:
            continue
        for person in events.persons:
            if person["id"] != auction["seller"] or person["state"] not in ("OR", "ID", "CA"):
                continue
            if abs(person["dateTime"] - auction["dateTime"]) <= DAY_MS:
                found.append({**_some(person, "name", "city", "state"), "id": auction["id"]})
    return found


def _q4(events: Events) -> list[Row]:
    prices: dict[int, list[int]] = defaultdict(list)
    for auction in events.auctions:
        highest = 0
        for bid in events.bids:
            if bid["auction"] == auction["id"] and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
                highest = max(highest, bid["price"])
        if highest:
            prices[auction["category"]].append(highest)
    return [{"category": category, "average": sum(all_) / len(all_)} for category, all_ in prices.items()]


def _q5(events: Events) -> list[Row]:
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for bid in events.bids:
        for start in range(0, WINDOW_MS, STEP_MS):
            counts[bid["dateTime"] // STEP_MS * STEP_MS - start][bid["auction"]] += 1
    return [
        {"auction": auction, "bids": bids, "start": start, "end": start + WINDOW_MS}
        for start, window in counts.items()
        if start + WINDOW_MS <= events.at
        for auction, bids in window.items()
        if bids == max(window.values())
    ]


def _q7(events: Events) -> list[Row]:
    windows: dict[int, list[Row]] = defaultdict(list)
    for bid in _q0(events):
        windows[bid["dateTime"] // WINDOW_MS].append(bid)
    return [
        bid
        for number, bids in windows.items()
        if (number + 1) * WINDOW_MS <= events.at
        for bid in bids
        if bid["price"] == max(other["price"] for other in bids)
    ]


def _q8(events: Events) -> list[Row]:
    sold = {(auction["seller"], auction["dateTime"] // WINDOW_MS) for auction in events.auctions}
    found = []
    for person in events.persons:
        number = person["dateTime"] // WINDOW_MS
        if (person["id"], number) in sold and (number + 1) * WINDOW_MS <= events.at:
            found.append({**_some(person, "id", "name"), "start": number * WINDOW_MS})
    return found


def _q11(events: Events) -> list[Row]:
    times: dict[int, list[int]] = defaultdict(list)
    for bid in events.bids:
        times[bid["bidder"]].append(bid["dateTime"])
    found: list[Row] = []
    for bidder, all_ in times.items():
        sessions: list[Row] = []
        for at in sorted(all_):
            if not sessions or at >= sessions[-1]["end"]:
                sessions.append({"bidder": bidder, "bids": 0, "start": at})
            sessions[-1]["bids"] += 1
            sessions[-1]["end"] = at + WINDOW_MS
        found += [session for session in sessions if session["end"] <= events.at]
    return found


def _q12(events: Events) -> list[Row]:
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for bid, at in zip(events.bids, events.published, strict=True):
        counts[bid["bidder"], at // WINDOW_MS * WINDOW_MS] += 1
    return [
        {"bidder": bidder, "bids": bids, "start": start, "end": start + WINDOW_MS}
        for (bidder, start), bids in counts.items()
        if start + WINDOW_MS <= events.published_ms
    ]


def _q14(events: Events) -> list[Row]:
    found = []
    for bid in _q1(events):
        if not 1_000_000 < bid["price"] < 50_000_000:
            continue
        hour = datetime.fromtimestamp(bid["dateTime"] // 1000, UTC).hour
        part = "dayTime" if 8 <= hour <= 18 else "otherTime" if hour in (7, 19) else "nightTime"
        found.append({**bid, "bidTimeType": part, "c_counts": bid["extra"].count("c")})
    return found


_MODELS: dict[str, Callable[[Events], list[Row]]] = {
    "q0": _q0,
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q4": _q4,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q11": _q11,
    "q12": _q12,
    "q14": _q14,
}
