"""Intervals as Spark reads them from text: `10 minutes`, `1 day 2 hours`.

- `interval_us` reads one, and raises InvalidOption with what is wrong.
- `window_mistake` is what is wrong with the durations of `window(…)` or `session_window(…)`.
"""

from __future__ import annotations

import re

from millrace.errors import InvalidOption, did_you_mean

_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_MONTHS = {"month": 1, "year": 12}
UNITS = (*_US, *_MONTHS)
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s+([A-Za-z]+)(?=\s|$)")
_PREFIX = re.compile(r"\s*interval\s+", re.IGNORECASE)
_EXAMPLE = "write a number and a unit, as '10 minutes' or '1 hour 30 minutes'"


def unit_of(word: str) -> str:
    """Return a unit without its plural s; raise InvalidOption if there is none of that name."""
    unit = word.lower()
    unit = unit if unit in UNITS else unit.removesuffix("s")
    if unit not in UNITS:
        hint = did_you_mean(word.lower(), [*UNITS, *(f"{unit}s" for unit in UNITS)])
        if not hint.startswith("did"):
            hint = f"the units are {', '.join(UNITS)}, with or without an s"
        raise InvalidOption(f"{word!r} is no unit of time", hint=hint)
    return unit


def interval_us(text: str) -> tuple[int, int]:
    """Return an interval in months and microseconds; raise InvalidOption if Spark could not read it."""
    prefix = _PREFIX.match(text)
    at, months, total = prefix.end() if prefix else 0, 0, 0
    parts = 0
    while text[at:].strip():
        part = _PART.match(text, at)
        if part is None:
            raise InvalidOption(f"{text!r} is no interval", hint=_EXAMPLE)
        sign, number, unit = -1 if part[1] == "-" else 1, part[2], unit_of(part[3])
        if "." in number and unit != "second":
            hint = "only seconds may have a fraction; take a smaller unit"
            raise InvalidOption(f"{text!r} is no interval: {number} {part[3]}", hint=hint)
        if unit in _MONTHS:
            months += sign * int(number) * _MONTHS[unit]
        else:
            total += sign * int(float(number) * _US[unit] if "." in number else int(number) * _US[unit])
        at, parts = part.end(), parts + 1
    if not parts:
        raise InvalidOption(f"{text!r} is no interval", hint=_EXAMPLE)
    return months, total


def duration_us(text: str) -> int:
    """Return a duration of a fixed length; raise InvalidOption."""
    months, total = interval_us(text)
    if months:
        hint = "months and years have no fixed length: write days, as '30 days'"
        raise InvalidOption(f"{text!r} is no duration of a window", hint=hint)
    return total


def duration_text(text: str) -> str | None:
    """Return a duration of one unit as it is written for a window, as `10 seconds`; None if it is no such."""
    number, _, unit = text.strip().partition(" ")
    try:
        duration_us(text)
        unit = unit_of(unit.strip())
    except InvalidOption:
        return None
    return f"{number} {unit}{'' if number == '1' else 's'}"


def window_mistake(name: str, texts: list[str]) -> InvalidOption | None:
    """Return what is wrong with the durations that `window` or `session_window` is given after its time.

    Spark itself takes any gap of a session, and then drops the rows whose gap it cannot read.
    """
    try:
        if name == "session_window":
            months, gap = interval_us(texts[0])
            return None if months > 0 or gap > 0 else InvalidOption(f"{texts[0]!r} is no gap", hint=_EXAMPLE)
        size, *others = [duration_us(text) for text in texts]
    except InvalidOption as error:
        return error
    if size <= 0:
        return InvalidOption(f"a window of {texts[0]!r} has no length", hint=_EXAMPLE)
    slide = others[0] if others else size
    if not 0 < slide <= size:
        hint = "the second argument is the length, the third how often a window begins, which is not longer"
        return InvalidOption(f"a window of {texts[0]!r} cannot begin every {texts[1]!r}", hint=hint)
    if any(abs(start) >= slide for start in others[1:]):
        return InvalidOption(f"windows cannot be shifted by {texts[2]!r}", hint=f"by less than {texts[1]!r}")
    return None
