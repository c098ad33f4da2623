"""What all simulations share: a seed, event times, disorder and malformed records.

Event times: when simulated events happen, in which order they arrive, and how they are written.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from typing import ClassVar

from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.simulation.malformed_records import MalformedShape, malform
from millrace.plugins import option
from millrace.units import parse_duration, parse_rate, parse_share, parse_time

CHUNK = 500
"""How many events are made at a time. It is fixed because the order of draws, and so every byte, hangs on it."""

DAY = 86_400_000
_EPOCH = datetime(1970, 1, 1)  # without a zone: `isoformat` then writes none, and ours is always Z
# What `datetime` can write, less a year at each end for what a simulation adds to an event's time.
_EARLIEST, _LATEST = -62_104_000_000_000, 253_370_000_000_000
_MILLIS = [f"{number:03d}Z" for number in range(1000)]

_PUNCTUAL = 0.97
_JITTER = 0.1


def event_times(rng: random.Random, start: int, pace: float, disorder: float) -> Iterator[list[int]]:
    """Event times in order of arrival, in milliseconds: the first at `start`, then `pace` a second.

    Most events are late by up to a tenth of `disorder` (seconds). A few are later, by up to all of it, and
    the later the rarer. None is from before `start`.
    """
    step, reach = 1000 / pace, disorder * 1000
    settled = disorder * pace
    draw = rng.random
    for first in count(0, CHUNK):
        _check_range(start + first * step, start + (first + CHUNK) * step)
        shares = [
            u * (_JITTER / _PUNCTUAL) if (u := draw()) < _PUNCTUAL else _JITTER ** ((1 - u) / (1 - _PUNCTUAL))
            for _ in range(CHUNK)
        ]
        yield [
            int(start + i * step - share * (reach if i > settled else i * step))
            for i, share in enumerate(shares, first)
        ]


def iso(moment: int) -> str:
    """Milliseconds since 1970 in ISO 8601: `2026-01-31T12:00:00.000Z`."""
    return _second(moment // 1000) + _MILLIS[moment % 1000]


@lru_cache(maxsize=1 << 14)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat() + "."


def _check_range(first: float, last: float) -> None:
    if first < _EARLIEST or last > _LATEST:
        raise InvalidOption("event times leave the years 2 to 9998", hint="choose another --start or a higher --pace")


Scene = Callable[[Sequence[int]], Iterator[Record]]
"""Makes one record for each event time (milliseconds since 1970, in order of arrival)."""

_DEFAULT_PACE = 1000.0


@dataclass(frozen=True, kw_only=True)
class Simulated(Feed):
    """Events that nobody sent.

    Every byte follows from the options alone: with a seed, a start and a pace, each run sends the same
    records, however the sink takes them and however long it takes. Malformed records take the place of
    good ones and leave the rest as they are.
    """

    schema: ClassVar[str]
    """The columns of a good record, in its order, as Spark DDL."""
    moment: ClassVar[str]
    """The column that holds the event time."""

    seed: int | None = option(
        None, "The same number gives the same events again.", shown_default="another one at each run"
    )
    start: datetime | None = option(  # noqa: RUF009 - a field specifier, as `field` is
        None,
        "Event time of the first event.",
        parse=parse_time,
        shown_default="now; with a count and no rate, such that the last event is now",
    )
    pace: float | None = option(
        None, "Events for each second of event time.", parse=parse_rate, shown_default="the rate, or 1000/s"
    )
    disorder: float = option(
        2.0,
        "How late an event may arrive, in event time; most are late by less than a tenth of it.",
        parse=parse_duration,
        shown_default="2s",
    )
    malformed: float = option(0.0, "Share of records to break, in many ways.", parse=parse_share, shown_default="0%")

    @abstractmethod
    def scene(self, rng: random.Random) -> Scene:
        """A new world; it is asked for records of ever later chunks and draws only on this generator."""

    def batches(self, run: Run) -> Iterator[Batch]:
        seed = self.seed
        if seed is None:
            seed = random.SystemRandom().getrandbits(32)
            run.notify(f"seed {seed}")
        rng, dice = random.Random(seed), random.Random(f"{seed} malformed")
        scene = self.scene(rng)
        pace = self.pace or run.rate or _DEFAULT_PACE
        for times in event_times(rng, self._start(run, pace), pace, self.disorder):
            if run.stop.is_set():
                return
            yield Batch(self._break_some(list(scene(times)), dice))

    def _start(self, run: Run, pace: float) -> int:
        if self.start is not None:
            return round(self.start.timestamp() * 1000)
        history = (run.count - 1) / pace if run.count and run.rate is None else 0.0
        return round((time.time() - history) * 1000)

    def _break_some(self, records: list[Record], dice: random.Random) -> list[Record]:
        if not self.malformed:
            return records
        shape = MalformedShape.of(self.schema, self.moment)
        return [
            record._replace(value=malform(record.value, shape, dice))
            if record.value is not None and dice.random() < self.malformed
            else record
            for record in records
        ]
