"""Whole Arrow columns of text cast to times and dates; what cannot be cast refuses the column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats import instants

_MOMENT = pa.timestamp("us", tz="UTC")
_SAMPLE = 16  # texts
_LENGTH = 40  # of a text, to see how times are written
_ENDS_IN_ZONE = re.compile(r".{11}.*(?:Z|[+-][\d:]+)").fullmatch
_IS_FINE = re.compile(r".*\.\d{7,9}\D.*|.*\.\d{7,9}").fullmatch


def moments(texts: Sequence[Any], _: pa.DataType) -> pa.Array:
    """Texts that say a moment."""
    return moments_of(pa.array(texts, pa.string()))


def moments_of(texts: pa.Array) -> pa.Array:
    """Texts that say a moment: all with a zone or all without, with up to nine digits of fraction."""
    sample = next((text for text in texts.slice(0, _SAMPLE).to_pylist() if text), "")[:_LENGTH]
    zone = "UTC" if _ENDS_IN_ZONE(sample) else None
    ways = [_of_microseconds, _of_nanoseconds]
    if _IS_FINE(sample):
        ways.reverse()  # a cast that fails takes long, as it notes every failure
    try:
        return ways[0](texts, zone)
    except pa.ArrowInvalid:
        return ways[1](texts, zone)


def _of_microseconds(texts: pa.Array, zone: str | None) -> pa.Array:
    return in_range(texts.cast(pa.timestamp("us", tz=zone))).cast(_MOMENT)


def _of_nanoseconds(texts: pa.Array, zone: str | None) -> pa.Array:
    finer = texts.cast(pa.timestamp("ns", tz=zone))
    first = pc.min(finer.view(pa.int64())).as_py()
    if first is not None and first < 0:
        raise pa.ArrowInvalid("before 1970 cutting digits off is not dividing")
    return finer.cast(pa.timestamp("us", tz=zone), safe=False).cast(_MOMENT)


def caught(screen: Callable[[Any], Any], values: Iterable[Any]) -> list[int]:
    """Places of the values for which a screen raises ValueError."""
    places = []
    for place, value in enumerate(values):
        try:
            if value is not None:
                screen(value)
        except ValueError:
            places.append(place)
    return places


def local_times_of(texts: pa.Array) -> pa.Array:
    """Texts that say a time on the wall."""
    return in_range(texts.cast(pa.timestamp("us")))


def days_of(texts: pa.Array) -> pa.Array:
    """Texts that say a date."""
    days = texts.cast(pa.date32())
    first = pc.min(days.view(pa.int32())).as_py()
    if first is not None and first < instants.FIRST_DAY:
        raise pa.ArrowInvalid("before the year 1")
    return days


def moments_of_seconds(seconds: pa.Array) -> pa.Array:
    """Numbers that say a moment."""
    million = 1_000_000
    _between(seconds, instants.FIRST_MICROS // million, instants.LAST_MICROS // million)
    return seconds.cast(pa.timestamp("s", tz="UTC")).cast(_MOMENT)


def in_range(times: pa.Array) -> pa.Array:
    """The same times, if all are in the years that can be shown."""
    _between(times.view(pa.int64()), instants.FIRST_MICROS, instants.LAST_MICROS)
    return times


def finite(numbers: pa.Array) -> pa.Array:
    """The same numbers, if all are some."""
    if numbers.null_count < len(numbers) and not pc.all(pc.is_finite(numbers)).as_py():
        raise pa.ArrowInvalid("not finite")
    return numbers


def _between(numbers: pa.Array, first: int, last: int) -> None:
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and (ends["min"] < first or ends["max"] > last):
        raise pa.ArrowInvalid("out of range")
