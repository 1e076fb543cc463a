"""Nexmark's events as messages of JSON: for each person, three auctions and 46 bids.

Fields, shares and hot keys are those of Nexmark's own generator. Times are out of order by up to two seconds, of the four
that the watermark allows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

__all__ = ["events"]

_FIRST, _FIRST_CATEGORY = 1100, 10  # with 1107, which q2 asks for, among the first auctions
_HOT = 100  # the hot auction, seller and bidder change with each 100 that are new
_IN_FLIGHT, _ACTIVE, _LEAD = 100, 1000, 10
_DISORDER_MS = 2000
_BEGIN_MS = 1_704_103_170_000  # 2024-01-01 09:59:30
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_SURNAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_URL = "https://www.nexmark.com/{}/{}/{}/item.htm?query=1"


def events(count: int, *, step_ms: int, extra: int, seed: int = 1) -> Iterator[bytes]:
    """Yield the first `count` messages. They are the same for the same arguments.

    Args:
        count: The number of messages.
        step_ms: The milliseconds from one event to the next one, without the disorder. With a multiple of 100, no two times
            are the same.
        extra: About how many letters the field `extra` of an event has.
        seed: What the random values begin with.
    """
    chosen = Random(seed)
    noise = "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=10_000))

    def text(length: int) -> str:
        begin = chosen.randrange(len(noise) - length)
        return noise[begin : begin + length]

    def url() -> str:
        return _URL.format(text(4), text(3), text(4))

    def price() -> int:
        return round(100 * 10 ** (6 * chosen.random()))

    hot = {channel: url() for channel in _CHANNELS}
    others = [url() + f"&channel_id={chosen.randrange(2**31)}" * (chosen.randrange(10) > 0) for _ in range(_HOT)]
    for i in range(count):
        epoch, place = divmod(i, 50)
        ms = _BEGIN_MS + i * step_ms + chosen.randrange(_DISORDER_MS // 100) * 100 + i % 100
        common = {"dateTime": _time(ms), "extra": text(chosen.randrange(extra // 2, 2 * extra))}
        people, auctions = epoch, 3 * epoch + min(place, 3) - 1  # the last ones, or the new one
        if place == 0:
            row: dict[str, object] = {
                "id": _FIRST + people,
                "name": f"{chosen.choice(_NAMES)} {chosen.choice(_SURNAMES)}",
                "emailAddress": f"{text(5)}@{text(4)}.com",
                "creditCard": " ".join(f"{chosen.randrange(10_000):04}" for _ in range(4)),
                "city": chosen.choice(_CITIES),
                "state": chosen.choice(_STATES),
            }
            kind = "person"
        elif place <= 3:
            first, life_ms = price(), 1 + chosen.randrange(2 * step_ms * _IN_FLIGHT * 50 // 3)
            seller = people // _HOT * _HOT if chosen.randrange(4) else _any(chosen, people, _ACTIVE)
            row = {
                "id": _FIRST + auctions,
                "itemName": text(extra // 2),
                "description": text(extra),
                "initialBid": first,
                "reserve": first + price(),
                "expires": _time(ms + life_ms),
                "seller": _FIRST + seller,
                "category": _FIRST_CATEGORY + chosen.randrange(5),
            }
            kind = "auction"
        else:
            auction = auctions // _HOT * _HOT if chosen.randrange(2) else _any(chosen, auctions, _IN_FLIGHT)
            bidder = people // _HOT * _HOT + 1 if chosen.randrange(4) else _any(chosen, people, _ACTIVE)
            number = chosen.randrange(2 * _HOT)
            channel = _CHANNELS[number % len(_CHANNELS)] if number >= _HOT else f"channel-{number}"
            row = {
                "auction": _FIRST + auction,
                "bidder": _FIRST + bidder,
                "price": price(),
                "channel": channel,
                "url": hot.get(channel) or others[number],
            }
            kind = "bid"
        yield json.dumps({"event_type": ("person", "auction", "bid").index(kind), kind: row | common}).encode()


def _any(chosen: Random, last: int, living: int) -> int:
    """Return one of the last ids, or of the next ones, as if events were out of order."""
    return chosen.randrange(max(last - living, 0), last + 1 + _LEAD)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
