"""Times and dates as text (ISO 8601) and as the numbers that Arrow keeps: microseconds and days since 1970.

What is accepted here is what pyarrow's JSON reader accepts, and fractions of up to nine digits besides.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MILLION = 1_000_000
# Years 1 to 9999: beyond them neither Python nor SQL can show a time.
FIRST_MICROS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
LAST_MICROS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
FIRST_DAY = date.min.toordinal() - _EPOCH_DAY

_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?"
_IS_DATE = re.compile(_DATE, re.ASCII).fullmatch
_IS_LOCAL = re.compile(f"{_DATE}(?:[T ]{_TIME})?", re.ASCII).fullmatch
_IS_TIMESTAMP = re.compile(f"{_DATE}(?:[T ]{_TIME}{_ZONE})?", re.ASCII).fullmatch


def micros_of_text(text: str) -> int:
    """A moment; a text without a zone is in UTC."""
    if not _IS_TIMESTAMP(text):
        raise ValueError(text)
    return micros_of_datetime(datetime.fromisoformat(text))


def local_micros_of_text(text: str) -> int:
    """A time on the wall, without a zone."""
    if not _IS_LOCAL(text):
        raise ValueError(text)
    return micros_of_datetime(datetime.fromisoformat(text))


def days_of_text(text: str) -> int:
    """A date."""
    if not _IS_DATE(text):
        raise ValueError(text)
    return days_of_date(date.fromisoformat(text))


def micros_of_datetime(moment: datetime) -> int:
    """A moment; one without a zone is in UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return within((aware - EPOCH) // _MICROSECOND)


def micros_of_seconds(seconds: int) -> int:
    """A moment as Spark reads a number: in seconds."""
    return within(seconds * _MILLION)


def days_of_date(day: date) -> int:
    """A date."""
    return day.toordinal() - _EPOCH_DAY


def within(micros: int) -> int:
    """The same moment, if it is in the years that can be shown."""
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise OverflowError
    return micros
