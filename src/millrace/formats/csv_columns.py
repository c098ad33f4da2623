"""Columns of text cast to the types of a schema: all at once, and value by value where that is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.formats import columns, instants
from millrace.formats.arrow import arrow_type
from millrace.formats.layout import Layout
from millrace.formats.values import (
    Converter,
    Wrong,
    as_float,
    base64,
    converter,
    decimal_of_text,
    integer,
    shown,
    text_leaf,
)
from millrace.pipeline.schema import Decimal, Field, Type

_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_MOST_DIGITS = 38  # with as many behind the point it stays within the 76 that cannot wrap around


class TextColumn:
    """One column of texts that becomes one of its type."""

    def __init__(self, field: Field) -> None:
        self._name = field.name
        self._kind = arrow_type(field.type)
        self._nullable = field.nullable
        self._convert = converter(field.type, _LEAVES)
        self._cast = _cast(field.type)

    def array(self, texts: pa.Array, bad: dict[int, str]) -> pa.Array:
        """The column; a record that it cannot take is noted, unless an earlier column has done so."""
        if not self._nullable and texts.null_count:
            for place in np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist():
                bad.setdefault(place, f"column {self._name}: missing")
        try:
            return self._cast(texts) if self._cast else self._one_by_one(texts, bad)
        except pa.ArrowInvalid:
            return self._one_by_one(texts, bad)

    def _one_by_one(self, texts: pa.Array, bad: dict[int, str]) -> pa.Array:
        values: list[Any] = []
        for place, text in enumerate(texts.to_pylist()):
            try:
                values.append(None if text is None else self._convert(text))
            except Wrong as wrong:
                bad.setdefault(place, f"column {self._name}: {wrong.reason}")
                values.append(None)
        return pa.array(values, self._kind)


def _cast(kind: Type) -> Callable[[pa.Array], pa.Array] | None:
    if isinstance(kind, Decimal):
        return _decimals(kind)
    casts: dict[str, Callable[[pa.Array], pa.Array]] = {
        "string": lambda texts: texts,
        "double": _doubles,
        "float": lambda texts: columns.finite(_doubles(texts).cast(pa.float32())),
        "date": columns.days_of,
        "timestamp": columns.moments_of,
        "timestamp_ntz": columns.local_times_of,
    }
    if kind.ddl() in ("tinyint", "smallint", "int", "bigint"):
        return _integers(arrow_type(kind))
    return casts.get(kind.ddl())


def _integers(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def cast(texts: pa.Array) -> pa.Array:
        if np.isin(Layout.of(texts).data, np.frombuffer(b"xX", np.uint8)).any():
            raise pa.ArrowInvalid("pyarrow would take 0x1F for a number")
        return texts.cast(kind)

    return cast


def _doubles(texts: pa.Array) -> pa.Array:
    return columns.finite(texts.cast(pa.float64()))


def _decimals(kind: Decimal) -> Callable[[pa.Array], pa.Array]:
    wide, exact = pa.decimal256(76, kind.scale), arrow_type(kind)

    def cast(texts: pa.Array) -> pa.Array:
        layout = Layout.of(texts)
        long = len(layout.lengths) and layout.lengths.max() > _MOST_DIGITS
        if long or np.isin(layout.data, np.frombuffer(b"eE", np.uint8)).any():
            raise pa.ArrowInvalid("pyarrow may wrap numbers around that are too large")
        return texts.cast(wide).cast(exact)

    return cast


def _integer(name: str) -> Converter:
    within = integer(name)

    def convert(text: Any) -> Any:
        if not _INTEGER.fullmatch(text):
            raise Wrong(f"not an integer: {shown(text)}")
        return within(int(text))

    return convert


def _double(text: Any) -> Any:
    number = float(decimal_of_text(text))
    if number in (float("inf"), float("-inf")):
        raise Wrong("out of range for double")
    return number


def _boolean(text: Any) -> Any:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise Wrong(f"not true or false: {shown(text)}") from None


_LEAVES: dict[str, Converter] = {
    "string": lambda text: text,
    "boolean": _boolean,
    **{name: _integer(name) for name in ("tinyint", "smallint", "int", "bigint")},
    "double": _double,
    "float": lambda text: as_float(_double(text)),
    "decimal": decimal_of_text,
    "date": text_leaf("date", instants.days_of_text),
    "timestamp": text_leaf("timestamp", instants.micros_of_text),
    "timestamp_ntz": text_leaf("timestamp_ntz", instants.local_micros_of_text),
    "binary": base64,
}
