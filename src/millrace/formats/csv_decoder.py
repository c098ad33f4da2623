"""Lines of CSV to columns: all lines without quotes at once, the others one by one.

Columns of text cast to the types of a schema: all at once, and value by value where that is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats import conversion
from millrace.formats.arrow_types import Mask, TextLayout, arrow_schema, arrow_type
from millrace.formats.base import DecodedRecords, Decoder
from millrace.formats.conversion import (
    ConversionError,
    Converter,
    as_float,
    base64,
    converter,
    decimal_of_text,
    integer,
    preview,
    text_leaf,
)
from millrace.formats.row_builder import ColumnCollector, Indices, binary_portions, note_missing
from millrace.pipeline.schema import Decimal, Field, Schema, Type
from millrace.units import format_count

_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
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
        if not self._nullable:
            note_missing(texts, self._name, bad)
        if self._cast:
            with suppress(pa.ArrowInvalid):
                return self._cast(texts)
        values: list[Any] = []
        for row, text in enumerate(texts.to_pylist()):
            try:
                values.append(None if text is None else self._convert(text))
            except ConversionError as wrong:
                bad.setdefault(row, f"column {self._name}: {wrong.reason}")
                values.append(None)
        return pa.array(values, self._kind)


def _cast(kind: Type) -> Callable[[pa.Array], pa.Array] | None:
    if isinstance(kind, Decimal):
        return _decimals(kind)
    casts: dict[str, Callable[[pa.Array], pa.Array]] = {
        "string": lambda texts: texts,
        "double": _doubles,
        "float": lambda texts: conversion.are_finite(_doubles(texts).cast(pa.float32())),
        "date": conversion.days_of,
        "timestamp": conversion.moments_of,
        "timestamp_ntz": conversion.local_times_of,
    }
    if kind.ddl() in ("tinyint", "smallint", "int", "bigint"):
        return _integers(arrow_type(kind))
    return casts.get(kind.ddl())


def _integers(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def cast(texts: pa.Array) -> pa.Array:
        if np.isin(TextLayout.of(texts).data, np.frombuffer(b"xX", np.uint8)).any():
            raise pa.ArrowInvalid("pyarrow would take 0x1F for a number")
        return texts.cast(kind)

    return cast


def _doubles(texts: pa.Array) -> pa.Array:
    return conversion.are_finite(texts.cast(pa.float64()))


def _decimals(kind: Decimal) -> Callable[[pa.Array], pa.Array]:
    wide, exact = pa.decimal256(76, kind.scale), arrow_type(kind)

    def cast(texts: pa.Array) -> pa.Array:
        layout = TextLayout.of(texts)
        long = len(layout.lengths) and layout.lengths.max() > _MOST_DIGITS
        if long or np.isin(layout.data, np.frombuffer(b"eE", np.uint8)).any():
            raise pa.ArrowInvalid("pyarrow may wrap numbers around that are too large")
        return texts.cast(wide).cast(exact)

    return cast


def _integer(name: str) -> Converter:
    within = integer(name)

    def convert(text: Any) -> Any:
        if not _INTEGER.fullmatch(text):
            raise ConversionError(f"not an integer: {preview(text)}")
        return within(int(text))

    return convert


def _double(text: Any) -> Any:
    number = float(decimal_of_text(text))
    if math.isinf(number):
        raise ConversionError("out of range for double")
    return number


def _boolean(text: Any) -> Any:
    if text.lower() not in ("true", "false"):
        raise ConversionError(f"not true or false: {preview(text)}")
    return text.lower() == "true"


_LEAVES: dict[str, Converter] = {
    "string": lambda text: text,
    "boolean": _boolean,
    **{name: _integer(name) for name in ("tinyint", "smallint", "int", "bigint")},
    "double": _double,
    "float": lambda text: as_float(_double(text)),
    "decimal": decimal_of_text,
    "date": text_leaf("date", conversion.days_of_text),
    "timestamp": text_leaf("timestamp", conversion.micros_of_text),
    "timestamp_ntz": text_leaf("timestamp_ntz", conversion.local_micros_of_text),
    "binary": base64,
}
_ENDS = "\r\n"


class CsvDecoder(Decoder):
    """Decodes messages that are one line each."""

    def __init__(self, schema: Schema, separator: str, quote: str, null: str) -> None:
        self._arrow = arrow_schema(schema)
        self._columns = [TextColumn(field) for field in schema.fields]
        self._separator = separator
        self._null = null
        self._quote = quote
        mark, end = re.escape(quote), re.escape(separator)
        quoted = rf"{mark}((?:[^{mark}]|{mark}{mark})*){mark}" if quote else r"(?!)()"
        self._field = re.compile(rf"(?:{quoted}|([^{mark}{end}\r\n]*))({end}|\Z)")

    def decode(self, values: pa.Array) -> DecodedRecords:
        collector = ColumnCollector(self._arrow)
        for portion, indices in binary_portions(values):
            texts, good = collector.texts(portion, indices)
            self._lines(pc.ascii_rtrim(texts, _ENDS), good, collector)
        return collector.decoded()

    def _lines(self, texts: pa.Array, indices: Indices, collector: ColumnCollector) -> None:
        # Lines with quotes or line ends in them, and empty ones.
        layout = TextLayout.of(texts)
        odd: Mask = layout.lengths == 0
        for sign in filter(None, (self._quote, *_ENDS)):
            odd[layout.with_word(sign.encode())] = True
        if odd.any():
            self._one_by_one(texts.filter(pa.array(odd)), indices[odd], collector)
            texts, indices = texts.filter(pa.array(~odd)), indices[~odd]
        self._at_once(texts, indices, collector)

    def _at_once(self, texts: pa.Array, indices: Indices, collector: ColumnCollector) -> None:
        fields = pc.split_pattern(texts, self._separator)
        counts = pc.list_value_length(fields).to_numpy(zero_copy_only=False)
        width = len(self._columns)
        uneven = counts != width
        for row in np.flatnonzero(uneven).tolist():
            collector.refuse(indices[row], _uneven(int(counts[row]), width))
        if uneven.any():
            fields, indices = fields.filter(pa.array(~uneven)), indices[~uneven]
        flat = fields.flatten()
        flat = pc.if_else(pc.equal(flat, self._null), pa.scalar(None, pa.string()), flat)
        places = np.arange(0, len(flat), width)
        self._typed([flat.take(pa.array(places + column)) for column in range(width)], indices, collector)

    def _one_by_one(self, texts: pa.Array, indices: Indices, collector: ColumnCollector) -> None:
        records, kept = [], []
        for row, text in enumerate(texts.to_pylist()):
            try:
                fields = self._split(text)
                if len(fields) != len(self._columns):
                    raise ConversionError(_uneven(len(fields), len(self._columns)))
                records.append(fields)
                kept.append(row)
            except ConversionError as wrong:
                collector.refuse(indices[row], wrong.reason)
        if records:
            columns = [pa.array(column, pa.string()) for column in zip(*records, strict=True)]
            self._typed(columns, indices[kept], collector)

    def _split(self, line: str) -> list[str | None]:
        """The fields of a line; a quoted one is never null."""
        if not line:
            raise ConversionError("empty")
        fields: list[str | None] = []
        start = 0
        while match := self._field.match(line, start):
            quoted, unquoted, end = match.groups()
            if quoted is not None:
                fields.append(quoted.replace(self._quote * 2, self._quote))
            else:
                fields.append(None if unquoted == self._null else unquoted)
            if not end:
                return fields
            start = match.end()
        raise ConversionError(f"not one line of CSV from character {start + 1} on")

    def _typed(self, texts: list[pa.Array], indices: Indices, collector: ColumnCollector) -> None:
        bad: dict[int, str] = {}
        arrays = [column.array(values, bad) for column, values in zip(self._columns, texts, strict=True)]
        collector.add(pa.RecordBatch.from_arrays(arrays, schema=self._arrow), indices, bad)


def _uneven(count: int, wanted: int) -> str:
    return f"{format_count(count, 'field')} instead of {wanted:,}"
