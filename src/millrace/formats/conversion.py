"""Strict conversion of decoded values to the types of a schema, one small function a type, compiled once a schema.

A converter takes a value that is not None and gives what pyarrow takes for the type, or raises `Wrong`.
"""

from __future__ import annotations

import decimal
import math
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

from millrace.formats import instants
from millrace.pipeline.schema import Array, Decimal, Map, Struct, Type

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
    prec=80,
    rounding=decimal.ROUND_HALF_UP,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.InvalidOperation],
)


class Wrong(ValueError):
    """A value that its column cannot take; the path leads to it from the column, like `.lat` or `[2]`."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, step: str) -> Wrong:
        """The same, seen from one step further out."""
        return Wrong(self.reason, step + self.path)


def mismatch(expected: str, value: object) -> Wrong:
    """The value is of another type."""
    return Wrong(f"wrong type: expected {expected}, got {_KINDS.get(type(value), type(value).__name__)}")


def shown(value: object) -> str:
    """A value in a reason: short, and on one line."""
    text = value if isinstance(value, str) else str(value)
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
        fields = [(field.name, converter(field.type, leaves), field.nullable) for field in kind.fields]
        return _struct(fields)
    return leaves[kind.name]


def _array(element: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise mismatch("array", value)
        try:
            return [None if one is None else element(one) for one in value]
        except Wrong:
            raise _first_wrong(element, enumerate(value)) from None

    return convert


def _map(key: Converter, inner: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("object", value)
        try:
            return [(key(name), None if one is None else inner(one)) for name, one in value.items()]
        except Wrong:
            raise _first_wrong(inner, value.items()) from None

    return convert


def _first_wrong(inner: Converter, items: Any) -> Wrong:
    """Which of the inner values it was; found again, so that good ones need no counting."""
    for place, one in items:
        try:
            if one is not None:
                inner(one)
        except Wrong as wrong:
            return wrong.within(f"[{place if isinstance(place, int) else shown(place)}]")
    return Wrong("a key that its type cannot take")


def _struct(fields: list[tuple[str, Converter, bool]]) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("object", value)
        row = {}
        for name, inner, nullable in fields:
            one = value.get(name)
            if one is not None:
                try:
                    row[name] = inner(one)
                except Wrong as wrong:
                    raise wrong.within(f".{name}") from None
            elif not nullable:
                raise Wrong("missing", f".{name}")
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
            raise Wrong(f"does not fit {kind.ddl()}")
        return rounded

    return convert


def integer(name: str) -> Converter:
    """Whole numbers of so many bits."""
    limit = 1 << (_BITS[name] - 1)

    def convert(value: Any) -> Any:
        if type(value) is int:
            if -limit <= value < limit:
                return value
            raise Wrong(f"out of range for {name}")
        if type(value) in (float, decimal.Decimal):
            raise Wrong(f"out of range for {name}" if abs(value) >= limit else f"not an integer: {value}")
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
        raise Wrong("out of range for float")
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
        raise Wrong(f"not a number: {shown(text)}")
    return decimal.Decimal(text)


def _instance(kind: type, name: str) -> Converter:
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
            raise Wrong(f"{name} out of range") from None
        except ValueError:
            raise Wrong(f"not a {name}: {shown(value)}") from None

    return convert


_timestamp_of_text = text_leaf("timestamp", instants.micros_of_text)


def _timestamp(value: Any) -> Any:
    if type(value) is not int:
        return _timestamp_of_text(value)
    try:
        return instants.micros_of_seconds(value)
    except OverflowError:
        raise Wrong("timestamp out of range (a number is in seconds)") from None


def base64(value: Any) -> Any:
    """Bytes, which JSON and CSV hold in base64."""
    if type(value) is not str:
        raise mismatch("base64 string", value)
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        raise Wrong("not base64") from None


JSON_LEAVES: dict[str, Converter] = {
    "string": _instance(str, "string"),
    "boolean": _instance(bool, "boolean"),
    **{name: integer(name) for name in _BITS},
    "double": _double,
    "float": lambda value: as_float(_double(value)),
    "decimal": _exactly,
    "date": text_leaf("date", instants.days_of_text),
    "timestamp": _timestamp,
    "timestamp_ntz": text_leaf("timestamp_ntz", instants.local_micros_of_text),
    "binary": base64,
}
