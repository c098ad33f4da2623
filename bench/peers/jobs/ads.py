"""A: ad analytics, the query of the Yahoo streaming benchmark: views, joined to campaigns, counted in 10 s windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import orjson

from peers.answers import Counts, Entry
from peers.contract import Job

CAMPAIGNS, ADS_EACH = 100, 10
BEGIN = 1_767_225_600_000
"""Event time starts with the year 2026, in milliseconds."""
WINDOW = 10_000
PER_SECOND = 10_000
"""Events a second of event time."""
LATER = 3_600_000
"""How much later than the events before it a marker is: it closes every window before it."""
KINDS = ("view", "click", "purchase")


class Ads(Job):
    """Seven fields in JSON, every third event a view. A half ends with a marker of every campaign in each partition."""

    name = "ads"
    letter = "A"
    about = "ad analytics (Yahoo): filter, join, count in 10 s windows"

    def __init__(self, records: int) -> None:
        self.records = records

    def sizes(self) -> tuple[int, int]:
        """Without the markers, which are few."""
        return self.records, self.records

    def first(self) -> Iterable[tuple[int, bytes]]:
        """From the beginning."""
        return self._half(0, BEGIN)

    def second(self) -> Iterable[tuple[int, bytes]]:
        """Later than the markers of the first."""
        return self._half(self.records, self._later)

    def answer(self) -> Counts:
        """The count of each campaign and window; the windows of markers are nobody's business."""
        first, second = self._counted

        def read(said: dict[str, object]) -> Entry | None:
            window = int(str(said["window"]))
            ours = window < self._end(BEGIN) or self._later <= window < self._end(self._later)
            return ((str(said["campaign"]), window), int(str(said["count"]))) if ours else None

        return Counts(first, second, read, (self.records + self._markers, self.records + self._markers))

    @property
    def _markers(self) -> int:
        return CAMPAIGNS * self.partitions

    @property
    def _later(self) -> int:
        return self._end(BEGIN) + 2 * LATER

    def _end(self, begin: int) -> int:
        """The end of the last window of a half."""
        windows = -(-self.records * 1000 // (PER_SECOND * WINDOW))
        return begin + windows * WINDOW

    @cached_property
    def _counted(self) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        first = counted(range(self.records), BEGIN)
        return first, first + counted(range(self.records, 2 * self.records), self._later, self.records)

    def _half(self, start: int, begin: int) -> Iterable[tuple[int, bytes]]:
        for number in range(start, start + self.records):
            yield number % self.partitions, event(number, at(number - start, begin))
        for number in range(self._markers):
            ad = number // self.partitions * ADS_EACH
            yield number % self.partitions, event(ad * 3, self._end(begin) + LATER, ad)


def at(number: int, begin: int) -> int:
    """The event time of the number-th event of a half."""
    return begin + number * 1000 // PER_SECOND


def ad_of(number: int) -> int:
    """Which of the ads an event is about."""
    return number * 7919 % (CAMPAIGNS * ADS_EACH)


def event(number: int, time: int, ad: int | None = None) -> bytes:
    """An event of about 200 bytes; every third is a view."""
    return (
        b'{"user_id":"%032x","page_id":"%032x","ad_id":"%s","ad_type":"%s","event_type":"%s","event_time":%d,'
        b'"ip_address":"10.0.%d.%d"}'
        % (
            number * 2654435761 % 2**128,
            number % 1000,
            ad_name(ad_of(number) if ad is None else ad).encode(),
            (b"banner", b"modal", b"mail", b"mobile")[number % 4],
            KINDS[number % 3].encode(),
            time,
            number % 250,
            number % 199,
        )
    )


def ad_name(ad: int) -> str:
    """An ad as events name it."""
    return f"ad-{ad:08d}"


def campaign_of(ad: int) -> str:
    """The campaign that an ad belongs to."""
    return f"campaign-{ad // ADS_EACH:03d}"


def counted(numbers: range, begin: int, start: int = 0) -> Counter[tuple[str, int]]:
    """Views by campaign and window."""
    found: Counter[tuple[str, int]] = Counter()
    for number in numbers:
        if number % 3 == 0:
            found[campaign_of(ad_of(number)), at(number - start, begin) // WINDOW * WINDOW] += 1
    return found


def write_campaigns(path: Path) -> None:
    """Which ad belongs to which campaign, a line each."""
    rows = ({"ad_id": ad_name(ad), "campaign_id": campaign_of(ad)} for ad in range(CAMPAIGNS * ADS_EACH))
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
