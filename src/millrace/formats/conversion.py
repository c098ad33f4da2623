"""Strict conversion of decoded values to the types of a schema, one small function a type, compiled once a schema.

A converter takes a value that is not None and gives what pyarrow takes for the type, or raises `ConversionError`.

Whole Arrow columns of text cast to times and dates; what cannot be cast refuses the column.

Times and dates as text (ISO 8601) and as the numbers that Arrow keeps: microseconds and days since 1970.

What is accepted here is what pyarrow's JSON reader accepts, and fractions of up to nine digits besides.
"""

from __future__ import annotations

import decimal
import math
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millrace.pipeline.schema import Array, Decimal, Map, Struct, Type

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MILLION = 1_000_000
# Years 1 to 9999: beyond them neither Python nor SQL can show a time.
FIRST_MICROS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
LAST_MICROS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
FIRST_DAY = date.min.toordinal() - _EPOCH_DAY
LAST_DAY = date.max.toordinal() - _EPOCH_DAY

_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?"
_IS_DATE = re.compile(_DATE, re.ASCII).fullmatch
_IS_LOCAL = re.compile(f"{_DATE}(?:[T ]{_TIME})?", re.ASCII).fullmatch
_IS_TIMESTAMP = re.compile(f"{_DATE}(?:[T ]{_TIME}{_ZONE})?", re.ASCII).fullmatch


def micros_of_text(text: str, form: Callable[[str], object] = _IS_TIMESTAMP) -> int:
    """A moment; a text without a zone is in UTC."""
    if not form(text):
        raise ValueError(text)
    return micros_of_datetime(datetime.fromisoformat(text))


def local_micros_of_text(text: str) -> int:
    """A time on the wall, without a zone."""
    return micros_of_text(text, _IS_LOCAL)


def days_of_text(text: str) -> int:
    """A date."""
    if not _IS_DATE(text):
        raise ValueError(text)
    return days_of_date(date.fromisoformat(text))


def micros_of_datetime(moment: datetime) -> int:
    """A moment; one without a zone is in UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return within_calendar((aware - EPOCH) // _MICROSECOND)


def days_of_date(day: date) -> int:
    """A date."""
    return day.toordinal() - _EPOCH_DAY


def within_calendar(micros: int) -> int:
    """The same moment, if it is in the years that can be shown."""
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise OverflowError
    return micros


Converter: TypeAlias = Callable[[Any], Any]

_KINDS = {
    str: "string",
    int: "number",
    float: "number",
    decimal.Decimal: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
    bytes: "bytes",
    datetime: "timestamp",
    date: "date",
}
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FIRST_BEYOND_FLOAT = 3.4028235677973366e38  # half way between the largest float and what would be the next
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_EXACT = decimal.Context(
    80, decimal.ROUND_HALF_UP, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=[decimal.InvalidOperation]
)


class ConversionError(ValueError):
    """A value that its column cannot take; the path leads to it from the column, like `.lat` or `[2]`."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, step: str) -> ConversionError:
        """The same, seen from one step further out."""
        return ConversionError(self.reason, step + self.path)


def mismatch(expected: str, value: object) -> ConversionError:
    """The value is of another type."""
    return ConversionError(f"wrong type: expected {expected}, got {_KINDS.get(type(value), type(value).__name__)}")


def preview(value: object) -> str:
    """A value in a reason: short, and on one line."""
    text = str(value)
    return repr(text if len(text) <= 40 else text[:39] + "…")


def converter(kind: Type, leaves: Mapping[str, Converter]) -> Converter:
    """The converter of a type; `leaves` has those of simple types, and of `decimal` one that makes them exact."""
    if isinstance(kind, Decimal):
        return _decimal(kind, leaves["decimal"])
    if isinstance(kind, Array):
        return _array(converter(kind.element, leaves))
    if isinstance(kind, Map):
        return _map(converter(kind.key, leaves), converter(kind.value, leaves))
    if isinstance(kind, Struct):
        return _struct([(field.name, converter(field.type, leaves), field.nullable) for field in kind.fields])
    return leaves[kind.name]


def _array(element: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise mismatch("array", value)
        try:
            return [None if item is None else element(item) for item in value]
        except ConversionError:
            raise _first_wrong(element, enumerate(value)) from None

    return convert


def _map(key: Converter, inner: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("object", value)
        try:
            return [(key(name), None if item is None else inner(item)) for name, item in value.items()]
        except ConversionError:
            raise _first_wrong(inner, value.items()) from None

    return convert


def _first_wrong(inner: Converter, items: Any) -> ConversionError:
    """Which of the inner values it was; found again, so that good ones need no counting."""
    for place, item in items:
        try:
            if item is not None:
                inner(item)
        except ConversionError as wrong:
            return wrong.within(f"[{place if isinstance(place, int) else preview(place)}]")
    return ConversionError("a key that its type cannot take")


def _struct(fields: list[tuple[str, Converter, bool]]) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("object", value)
        row = {}
        for name, inner, nullable in fields:
            field_value = value.get(name)
            if field_value is not None:
                try:
                    row[name] = inner(field_value)
                except ConversionError as wrong:
                    raise wrong.within(f".{name}") from None
            elif not nullable:
                raise ConversionError("missing", f".{name}")
        return row

    return convert


def _decimal(kind: Decimal, exact: Converter) -> Converter:
    """Rounded half up to the scale, as Spark does; what then has too many digits does not fit."""
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    beyond = decimal.Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Any:
        try:
            rounded = exact(value).quantize(unit, context=_EXACT)
        except decimal.InvalidOperation:
            rounded = beyond
        if not -beyond < rounded < beyond:
            raise ConversionError(f"does not fit {kind.ddl()}")
        return rounded

    return convert


def integer(name: str) -> Converter:
    """Return the converter of integers of a type."""
    limit = 1 << (_BITS[name] - 1)

    def convert(value: Any) -> Any:
        if type(value) is int:
            if -limit <= value < limit:
                return value
            raise ConversionError(f"out of range for {name}")
        if type(value) in (float, decimal.Decimal):
            raise ConversionError(f"out of range for {name}" if abs(value) >= limit else f"not an integer: {value}")
        raise mismatch(name, value)

    return convert


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) in (int, decimal.Decimal):
        return float(value)
    raise mismatch("number", value)


def as_float(value: float) -> float:
    """A double that a float can hold, with less precision."""
    if abs(value) >= _FIRST_BEYOND_FLOAT and math.isfinite(value):
        raise ConversionError("out of range for float")
    return value


def _exactly(value: Any) -> Any:
    if type(value) is str:
        return decimal_of_text(value)
    if type(value) in (int, decimal.Decimal):
        return decimal.Decimal(value)
    if type(value) is float and math.isfinite(value):
        return decimal.Decimal(repr(value))
    raise mismatch("number", value)


def decimal_of_text(text: str) -> decimal.Decimal:
    """A number written out."""
    if not _NUMBER.fullmatch(text):
        raise ConversionError(f"not a number: {preview(text)}")
    return decimal.Decimal(text)


def instance_of(kind: type, name: str) -> Converter:
    """Return the converter of a type whose values are taken as they are."""

    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise mismatch(name, value)

    return convert


def text_leaf(name: str, read: Callable[[str], int]) -> Converter:
    """A leaf that is written as text: a date, a time."""

    def convert(value: Any) -> Any:
        if type(value) is not str:
            raise mismatch(name, value)
        try:
            return read(value)
        except OverflowError:
            raise ConversionError(f"{name} out of range") from None
        except ValueError:
            raise ConversionError(f"not a {name}: {preview(value)}") from None

    return convert


_timestamp_of_text = text_leaf("timestamp", micros_of_text)


def _timestamp(value: Any) -> Any:
    """A moment; a number is in seconds, as Spark reads it."""
    if type(value) is not int:
        return _timestamp_of_text(value)
    try:
        return within_calendar(value * _MILLION)
    except OverflowError:
        raise ConversionError("timestamp out of range (a number is in seconds)") from None


def base64(value: Any) -> Any:
    """Bytes, which JSON and CSV hold in base64."""
    if type(value) is not str:
        raise mismatch("base64 string", value)
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        raise ConversionError("not base64") from None


JSON_LEAVES: dict[str, Converter] = {
    "string": instance_of(str, "string"),
    "boolean": instance_of(bool, "boolean"),
    **{name: integer(name) for name in _BITS},
    "double": _double,
    "float": lambda value: as_float(_double(value)),
    "decimal": _exactly,
    "date": text_leaf("date", days_of_text),
    "timestamp": _timestamp,
    "timestamp_ntz": text_leaf("timestamp_ntz", local_micros_of_text),
    "binary": base64,
}
_MOMENT = pa.timestamp("us", tz="UTC")
_SAMPLE = 16  # texts
_LENGTH = 40  # of a text, to see how times are written
_ENDS_IN_ZONE = re.compile(r".{11}.*(?:Z|[+-][\d:]+)").fullmatch
_IS_FINE = re.compile(r".*\.\d{7,9}\D.*|.*\.\d{7,9}").fullmatch


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


def failing_indices(screen: Callable[[Any], Any], values: Iterable[Any]) -> list[int]:
    """The indices of the values for which a screen raises ValueError."""
    indices = []
    for index, value in enumerate(values):
        try:
            if value is not None:
                screen(value)
        except ValueError:
            indices.append(index)
    return indices


def local_times_of(texts: pa.Array) -> pa.Array:
    """Texts that say a time on the wall."""
    return in_range(texts.cast(pa.timestamp("us")))


def days_of(texts: pa.Array) -> pa.Array:
    """Texts that say a date."""
    days = texts.cast(pa.date32())
    _between(days.view(pa.int32()), FIRST_DAY, LAST_DAY)
    return days


def moments_of_seconds(seconds: pa.Array) -> pa.Array:
    """Numbers that say a moment."""
    _between(seconds, FIRST_MICROS // _MILLION, LAST_MICROS // _MILLION)
    return seconds.cast(pa.timestamp("s", tz="UTC")).cast(_MOMENT)


def in_range(times: pa.Array) -> pa.Array:
    """The same times, if all are in the years that can be shown."""
    _between(times.view(pa.int64()), FIRST_MICROS, LAST_MICROS)
    return times


def are_finite(numbers: pa.Array) -> pa.Array:
    """The same numbers, if all are some."""
    if numbers.null_count < len(numbers) and not pc.all(pc.is_finite(numbers)).as_py():
        raise pa.ArrowInvalid("not finite")
    return numbers


def _between(numbers: pa.Array, first: int, last: int) -> None:
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and (ends["min"] < first or ends["max"] > last):
        raise pa.ArrowInvalid("out of range")
