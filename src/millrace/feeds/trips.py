"""Simulated trips of a bike share."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import exp
from typing import ClassVar

from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption
from millrace.feeds.simulation.samples import bell, spread, with_draws, zipf
from millrace.feeds.simulation.simulator import DAY, Scene, Simulated, iso
from millrace.plugins import option

_HOMES = (
    *("Orchard Lane", "Linden Crescent", "Chapel Hill", "Weavers Row", "Meadow Gate", "Canal Cottages"),
    *("Almond Street", "Windmill Rise", "Kingfisher Way", "Old Brewery", "Rosemary Court", "Tanners Yard"),
)
_OFFICES = (
    *("Central Station", "Exchange Square", "City Hall", "Harbour Tower", "University North", "Law Courts"),
    *("Foundry Park", "Customs House", "General Hospital", "Printworks", "Bridge Street", "Science Quarter"),
)
_SIGHTS = (
    *("Lighthouse Pier", "Botanic Garden", "Market Hall", "Castle Steps", "Boating Lake", "Museum Island"),
    *("Stadium West", "Beach Pavilion"),
)
_FIRST_TERMINAL = 2
_FIRST_TRIP = 400_000
_BIKES = 900
_LONGEST = 24 * 3600
_FORMATS = ("json", "csv")


def parse_format(text: str) -> str:
    """The name of a form in which trips are written."""
    if text not in _FORMATS:
        raise InvalidOption(f"{text!r} is not a format of trips", hint="write json or csv")
    return text


@dataclass(frozen=True, kw_only=True)
class Trips(Simulated):
    """Bike trips between 32 stations of a city, with its rush hours, as JSON or CSV.

    A trip is reported when it ends, so EndDate is the event time. On the mornings of workdays (UTC) people
    ride from homes to offices, in the evenings back. CSV lines have no header. The key is StartTerminal.
    """

    schema: ClassVar[str] = (
        "TripID bigint, Duration int, StartDate timestamp, StartStation string, StartTerminal int, "
        "EndDate timestamp, EndStation string, EndTerminal int, BikeNo int, SubscriberType string, ZipCode string"
    )
    moment: ClassVar[str] = "EndDate"

    format: str = option("json", "How a trip is written: json, or csv without a header.", parse=parse_format)

    def scene(self, rng: random.Random) -> Scene:
        """A city whose stations differ in how busy they are."""
        write = (_CSV if self.format == "csv" else _JSON).format
        numbers = count(_FIRST_TRIP)
        zips = spread([f"{rng.randrange(501, 99951):05d}" for _ in range(60)], zipf(60, 1.0))
        stretch = [exp(0.55 * deviation) for deviation in bell()]
        busy = [rng.uniform(0.3, 1.7) for _ in _STATIONS]
        morning = _Traffic(busy, (12, 2, 1), (1, 12, 1), 94)
        evening = _Traffic(busy, (1, 12, 2), (10, 2, 3), 90)
        noon = _Traffic(busy, (2, 3, 3), (2, 3, 3), 72)
        night = _Traffic(busy, (2, 1, 4), (5, 1, 1), 60)
        workday = [night] * 6 + [morning] * 4 + [noon] * 6 + [evening] * 4 + [night] * 4
        weekend = [night] * 8 + [noon] * 12 + [night] * 4

        def trips(times: Sequence[int]) -> Iterator[Record]:
            for end, here, there, who, long, bike, home in with_draws(times, rng, 6):
                day = weekend if (end // DAY + 3) % 7 >= 5 else workday  # the first day of 1970 was a Thursday
                traffic = day[end % DAY * 24 // DAY]
                start, finish, (rider, median) = traffic.origins[here], traffic.destinations[there], traffic.riders[who]
                duration = min(_LONGEST, 60 + int(median * stretch[long]))
                began = iso(end - 1000 * duration)
                value = write(
                    *(next(numbers), duration, began, *start, iso(end), *finish),
                    *(1 + bike % _BIKES, rider, zips[home]),
                )
                yield Record(value.encode(), b"%d" % start[1])

        return trips


# Names and terminals.
_STATIONS = [(name, number) for number, name in enumerate(_HOMES + _OFFICES + _SIGHTS, _FIRST_TERMINAL)]
# Riders, and the median of their trips' durations in seconds.
_SUBSCRIBER = ("Subscriber", 510.0)
_CUSTOMER = ("Customer", 1250.0)
_CSV = "{},{},{},{},{},{},{},{},{},{},{}"
_JSON = (
    '{{"TripID":{},"Duration":{},"StartDate":"{}","StartStation":"{}","StartTerminal":{},"EndDate":"{}",'
    '"EndStation":"{}","EndTerminal":{},"BikeNo":{},"SubscriberType":"{}","ZipCode":"{}"}}'
)


class _Traffic:
    """Who rides from where to where at one time of the day."""

    def __init__(self, busy: list[float], leave: tuple[int, int, int], reach: tuple[int, int, int], loyal: int) -> None:
        self.origins = spread(_STATIONS, _weighted(busy, leave))
        self.destinations = spread(_STATIONS, _weighted(busy, reach))
        self.riders = spread((_SUBSCRIBER, _CUSTOMER), (loyal, 100 - loyal))


def _weighted(busy: list[float], pull: tuple[int, int, int]) -> list[float]:
    """Each station's weight from how busy it is and how its district (homes, offices, sights) pulls."""
    districts = [pull[0]] * len(_HOMES) + [pull[1]] * len(_OFFICES) + [pull[2]] * len(_SIGHTS)
    return [weight * district for weight, district in zip(busy, districts, strict=True)]
