"""Events of an auction house, as Nexmark has them: people register, open auctions and bid.

    millrace feed examples/nexmark/events.py --topic nexmark --rate 100/s

An event is JSON with its time `at` and one of `person`, `auction` and `bid`. The pipelines beside this file rely on
four facts about the events: an auction is open for at most 40 seconds, it gets bids for at most a minute after it was
opened (so some come too late), a seller opens auctions for at most a minute after registering, and nobody registers or
opens an auction twice.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import orjson

from millrace.extend import Record, option
from millrace.feeds.simulation.simulator import Scene, Simulated, iso

SELLING_MS = 60_000
BIDDING_MS = 60_000
SHORTEST_MS, LONGEST_MS = 5_000, 40_000

_ROUND = 50
"""Of this many events, one is a person, three are auctions, and the others bids: the shares of Nexmark."""
_AUCTIONS_A_ROUND = 3
_REMEMBERED = 100
"""How many of the newest people and auctions take part; it bounds the cost of an event."""
_LARGE_SELLER = 6
"""One in this many people sells most of the auctions."""

_NAMES = ("Ada", "Bela", "Chidi", "Dana", "Emre", "Freya", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena")
_SURNAMES = ("Archer", "Brook", "Castle", "Dale", "Easton", "Field", "Grove", "Hill")
_CITIES = (("Portland", "OR"), ("Boise", "ID"), ("Fresno", "CA"), ("Seattle", "WA"), ("Reno", "NV"), ("Mesa", "AZ"))
_ITEMS = ("clock", "teapot", "lantern", "globe", "violin", "camera", "atlas", "mirror")
_CATEGORIES = range(10, 15)
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu")
_OTHER_CHANNELS = 200
_SHELVES = ("attic", "cellar", "garden", "library", "workshop")
_LETTERS = "abcdefgh"


@dataclass(frozen=True, kw_only=True)
class Events(Simulated):
    """Nexmark: people register, open auctions and bid.

    Of 50 events, 1 is a person, 3 are auctions, and 46 are bids. The key is the id of the person or the auction.
    """

    schema: ClassVar[str] = (
        "at timestamp, "
        "person struct<id: bigint, name: string, email: string, card: string, city: string, state: string>, "
        "auction struct<id: bigint, item: string, description: string, initial_bid: bigint, reserve: bigint, "
        "expires: timestamp, seller: bigint, category: bigint>, "
        "bid struct<auction: bigint, bidder: bigint, price: bigint, channel: string, url: string, extra: string>"
    )
    moment: ClassVar[str] = "at"

    first: int = option(1000, "The id of the first person, and of the first auction.")

    def scene(self, rng: random.Random) -> Scene:
        """An auction house that has just opened."""
        return AuctionHouse(rng, self.first).records


class AuctionHouse:
    """The people and the auctions so far; each event happens in the order of event time."""

    def __init__(self, rng: random.Random, first: int) -> None:
        self._rng = rng
        self._numbers = count()
        self._person_ids, self._auction_ids = count(first), count(first)
        self._people: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._auctions: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)

    def records(self, times: Sequence[int]) -> Iterator[Record]:
        """Yield a record for each time, in the order of the times as they are given."""
        records = {index: self._record(times[index]) for index in sorted(range(len(times)), key=times.__getitem__)}
        return (records[index] for index in range(len(times)))

    def _record(self, at: int) -> Record:
        turn = next(self._numbers) % _ROUND
        sellers = _recent(self._people, at, SELLING_MS)
        auctions = _recent(self._auctions, at, BIDDING_MS)
        people = _recent(self._people, at)
        if turn == 0 or not sellers:
            return self._person(at)
        if turn <= _AUCTIONS_A_ROUND or not auctions:
            return self._auction(at, sellers)
        return self._bid(at, auctions, people)

    def _person(self, at: int) -> Record:
        number = next(self._person_ids)
        self._people.append((number, at))
        name, surname = self._rng.choice(_NAMES), self._rng.choice(_SURNAMES)
        city, state = self._rng.choice(_CITIES)
        person = {
            "id": number,
            "name": f"{name} {surname}",
            "email": f"{name}.{surname}@mail.example".lower(),
            "card": " ".join(f"{self._rng.randrange(10_000):04d}" for _ in range(4)),
            "city": city,
            "state": state,
        }
        return _event(at, "person", person, number)

    def _auction(self, at: int, sellers: list[int]) -> Record:
        number = next(self._auction_ids)
        self._auctions.append((number, at))
        large = [seller for seller in sellers if seller % _LARGE_SELLER == 0]
        item, opening = self._rng.choice(_ITEMS), self._price() // 10
        auction = {
            "id": number,
            "item": item,
            "description": f"a {item} from the {self._rng.choice(_SHELVES)}",
            "initial_bid": opening,
            "reserve": 2 * opening,
            "expires": iso(at + self._rng.randrange(SHORTEST_MS, LONGEST_MS)),
            "seller": self._rng.choice(large if large and self._rng.random() < 0.75 else sellers),
            "category": self._rng.choice(_CATEGORIES),
        }
        return _event(at, "auction", auction, number)

    def _bid(self, at: int, auctions: list[int], people: list[int]) -> Record:
        auction = auctions[-1] if self._rng.random() < 0.4 else self._rng.choice(auctions)
        shelf = f"https://auctions.example/{self._rng.choice(_SHELVES)}/{self._rng.choice(_ITEMS)}"
        channel, query = self._rng.choice(_CHANNELS), ""
        if self._rng.random() < 0.5:
            number = self._rng.randrange(_OTHER_CHANNELS)
            channel = f"channel-{number}"
            query = f"&channel_id={number * 37}" if number % 3 else ""
        bid = {
            "auction": auction,
            "bidder": self._rng.choice(people[-10:] if self._rng.random() < 0.7 else people),
            "price": self._price(),
            "channel": channel,
            "url": f"{shelf}/{auction}/item.htm?query=1{query}" if self._rng.random() < 0.9 else shelf,
            "extra": "".join(self._rng.choices(_LETTERS, k=self._rng.randrange(5, 20))),
        }
        return _event(at, "bid", bid, auction)

    def _price(self) -> int:
        """Return a price between 100 and 100,000,000, all magnitudes equally likely, and round as people like it."""
        return int(float(f"{10 ** self._rng.uniform(2, 8):.1e}"))


def _recent(events: deque[tuple[int, int]], at: int, within_ms: float = float("inf")) -> list[int]:
    """Return the ids of what happened before a time, and not too long before it."""
    return [number for number, happened in events if 0 <= at - happened < within_ms]


def _event(at: int, kind: str, content: dict[str, Any], key: int) -> Record:
    return Record(orjson.dumps({"at": iso(at), kind: content}), b"%d" % key)
