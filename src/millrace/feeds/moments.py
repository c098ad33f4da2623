"""Event times: when simulated events happen, in which order they arrive, and how they are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count

from millrace.errors import InvalidOption

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
