"""How quantities are written and read: `5s`, `500/s`, `1%`, `512m`, a point in time."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from millrace.errors import InvalidOption

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WORDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?", re.ASCII)
_HEAP = re.compile(r"[1-9]\d*[mg]", re.ASCII | re.IGNORECASE)


def parse_duration(text: str) -> float:
    """`500ms`, `5s`, `2m`, `1h`, `7d`, or several together (`1h30m`), as seconds."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidOption(f"{text!r} is not a duration", hint="write it as 500ms, 5s, 2m, 1h or 7d")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if math.isinf(seconds):
        raise InvalidOption("the duration is too long", hint="write it as 500ms, 5s, 2m, 1h or 7d")
    return seconds


def parse_interval(text: str) -> float:
    """A duration in our words (`10s`) or in SQL's (`10 seconds`, `1 minute 30 seconds`), as seconds."""
    words = text.split()
    if len(words) < 2:
        return parse_duration(text)
    seconds = 0.0
    for number, unit in zip(words[::2], words[1::2], strict=False):
        factor = _WORDS.get(unit.lower().removesuffix("s"))
        if len(words) % 2 or factor is None or not re.fullmatch(r"\d+(\.\d+)?", number, re.ASCII):
            raise InvalidOption(f"{text!r} is not a duration", hint="write it as 10s, 5m or 10 seconds")
        seconds += float(number) * factor
    return seconds


def parse_rate(text: str) -> float:
    """`500/s` (or `30/m`, `10/h`, plain `500`) as records a second."""
    match = _RATE.fullmatch(text)
    if not match or not 0 < float(match[1]) < math.inf:
        raise InvalidOption(f"{text!r} is not a rate", hint="write it as 500/s, 30/m or 10/h, above zero")
    return float(match[1]) / _SECONDS[match[2] or "s"]


def parse_rate_with_unit(text: str) -> float:
    """The same where a plain number could be taken for either: `10/m`, `1/s`."""
    rate = parse_rate(text)
    if "/" not in text:
        raise InvalidOption(f"{text!r} does not say in which time", hint=f"write it as {text}/s, {text}/m or {text}/h")
    return rate


class Backlog(NamedTuple):
    """A lag, in records or in seconds."""

    records: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return format_duration(self.seconds) if self.seconds is not None else format_count(self.records or 0, "record")


def parse_backlog(text: str) -> Backlog:
    """`10000` (records) or `30s`."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Backlog(records=int(text))
    try:
        return Backlog(seconds=parse_duration(text))
    except InvalidOption:
        raise InvalidOption(f"{text!r} is no lag", hint="write it as 10000 (records), 30s or 5m") from None


def parse_share(text: str) -> float:
    """`1%` or `0.01` as a fraction between 0 and 1."""
    number, percent = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        share = float(number) / percent
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise InvalidOption(f"{text!r} is not a share", hint="write it as 1% or 0.01, between 0 and 1")
    return share


def parse_heap(text: str) -> str:
    """`512m` or `2g`: a heap size that Java accepts."""
    if not _HEAP.fullmatch(text):
        raise InvalidOption(f"{text!r} is not a heap size", hint="write it as 512m or 2g")
    return text.lower()


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """An ISO 8601 time, `now`, milliseconds since 1970, or how long ago (`5m ago`)."""
    now = now or datetime.now(UTC)
    try:
        if text == "now":
            return now
        if text.endswith(" ago"):
            return now - timedelta(seconds=parse_duration(text.removesuffix(" ago").strip()))
        if text.isdigit() and len(text) > 4:
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.astimezone()
    except (ValueError, OverflowError, OSError, InvalidOption):
        hint = "write it as 2026-01-31T12:00:00Z, as milliseconds since 1970, as now, or as '5m ago'"
        raise InvalidOption(f"{text!r} is not a point in time", hint=hint) from None


def parse_start(text: str) -> str | int | datetime:
    """`earliest`, `latest`, an offset, or a time."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal() and len(text) < 12:
        return int(text)
    try:
        return parse_time(text)
    except InvalidOption:
        hint = "write earliest, latest, an offset, or a time as '5m ago'"
        raise InvalidOption(f"{text!r} is not a place in a topic", hint=hint) from None


def format_count(number: int, noun: str) -> str:
    """A number of something: `1 row`, `2,000 rows`, `3 batches`, `0 queries`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('ch', 'sh', 's', 'x')) else 's'}"


def format_duration(seconds: float) -> str:
    """A duration for people: `340 ms`, `12.4 s`, `3 m 20 s`, `2 h 5 m`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    return f"{minutes // 60} h {minutes % 60} m"


def format_bytes(count: float) -> str:
    """A size for people: `12 B`, `3.4 KB`, `1.2 GB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
