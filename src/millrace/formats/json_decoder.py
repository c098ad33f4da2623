"""JSON messages to columns: a batch at once where pyarrow reads it, record by record where something is wrong.

- `json_lines` finds the messages that pyarrow may read as JSON lines, and those that must be parsed one by one.
- `JsonReader` reads JSON lines by pyarrow. What pyarrow would let through is kept from it (NaN, deep nesting), read as
  another type that is then cast (dates, floats, decimals that would wrap around), or refused afterwards (times out of
  range).
- `JsonDecoder` joins both ways. The result of a record is the same in both; tests compare them with random records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millrace.formats import conversion
from millrace.formats.arrow_types import Mask, TextLayout, arrow_schema, arrow_type, byte_set, not_text_reason, texts_of
from millrace.formats.base import DecodedRecords, Decoder
from millrace.formats.conversion import JSON_LEAVES, ConversionError, base64, failing_indices
from millrace.formats.row_builder import (
    BULK_CONVERTERS,
    ColumnCollector,
    Indices,
    Rows,
    binary_portions,
    note_missing,
    without_places,
)
from millrace.pipeline.schema import Array, Decimal, Map, Schema, Simple, Struct, Type, inner_types

_DIGITS = 38  # of a decimal as it is read; with any scale it stays within the 76 that cannot wrap around
_EARLIEST_BLOCK = 64
TIMES = ("text", "seconds")
"""How timestamps may be written."""


class Unreadable(Exception):
    """This way does not read these lines; the strict way must say which are bad, and why."""


class _Reading(NamedTuple):
    """The type in which pyarrow reads a column, and the conversion to the type of the schema."""

    kind: pa.DataType
    finish: Callable[[Any], Any] = lambda column: column
    screen: Callable[[Any], Any] | None = None
    """Raises ValueError for values that spoil the column, so that the others can be read."""


class JsonReader:
    """Reads lines of one schema, with timestamps written in one of the ways of `TIMES`."""

    def __init__(self, schema: Schema, times: str = TIMES[0]) -> None:
        self._schema = arrow_schema(schema)
        self._readings = [_reading(field.type, times) for field in schema.fields]
        fields_ = [pa.field(field.name, way.kind) for field, way in zip(schema.fields, self._readings, strict=True)]
        self._options = pj.ParseOptions(explicit_schema=pa.schema(fields_), unexpected_field_behavior="ignore")

    def read(self, lines: pa.Array) -> tuple[pa.RecordBatch, set[int]]:
        """The columns of lines that each start with `{` and end with `}`; required ones may have nulls.

        With them come the places of lines that must be looked at again, one by one.

        As no JSON text has a `}` before a `{`, and none a raw line end within a string, each line is one or more
        whole objects; as there are as many objects as lines, each line is exactly one.
        """
        offsets = pa.array([0, len(lines)], pa.int32())
        text = pc.binary_join(pa.ListArray.from_arrays(offsets, lines), "\n")[0].as_buffer()
        block = pj.ReadOptions(use_threads=False, block_size=max(text.size + 1, _EARLIEST_BLOCK))
        try:
            table = pj.open_json(pa.BufferReader(text), block, self._options).read_all()
            if table.num_rows != len(lines):
                raise Unreadable
            return self._finished(table)
        except pa.ArrowInvalid:
            raise Unreadable from None

    def _finished(self, table: pa.Table) -> tuple[pa.RecordBatch, set[int]]:
        arrays = []
        odd: set[int] = set()
        for name, reading in zip(self._schema.names, self._readings, strict=True):
            arrays.append(_without_odd(reading, table.column(name).combine_chunks(), odd))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), odd


def _without_odd(reading: _Reading, column: pa.Array, odd: set[int]) -> pa.Array:
    try:
        return reading.finish(column)
    except pa.ArrowInvalid:
        places = failing_indices(reading.screen, column.to_pylist()) if reading.screen else []
        if not places:
            raise
    mask = np.zeros(len(column), np.bool_)
    mask[places] = True
    odd.update(places)
    return reading.finish(pc.if_else(pa.array(mask), pa.scalar(None, column.type), column))


def _reading(kind: Type, times: str) -> _Reading:
    if isinstance(kind, Simple):
        if kind.name == "timestamp":
            return _TIMESTAMPS[times]
        return _SIMPLE.get(kind.name) or _Reading(arrow_type(kind))
    if isinstance(kind, Decimal):
        exact = arrow_type(kind)
        return _Reading(pa.decimal256(_DIGITS, kind.scale), lambda column: column.cast(exact))
    if isinstance(kind, Array):
        return _array(kind, times)
    if isinstance(kind, Struct):
        return _struct(kind, times)
    raise TypeError(f"pyarrow reads no {kind.ddl()}")


def _array(kind: Array, times: str) -> _Reading:
    element, whole = _reading(kind.element, times), arrow_type(kind)

    def finish(column: Any) -> Any:
        inner = [element.finish(column.values)]
        return pa.Array.from_buffers(whole, len(column), column.buffers()[:2], column.null_count, column.offset, inner)

    return _Reading(pa.list_(element.kind), finish)


def _struct(kind: Struct, times: str) -> _Reading:
    readings = [_reading(field.type, times) for field in kind.fields]
    fields = list(arrow_type(kind))

    def finish(column: Any) -> Any:
        empty = column.is_null()
        inner = []
        for index, (field, reading) in enumerate(zip(fields, readings, strict=True)):
            values = column.field(index)
            if not field.nullable and pc.any(pc.and_not(values.is_null(), empty)).as_py():
                raise Unreadable
            inner.append(reading.finish(values))
        return pa.StructArray.from_arrays(inner, fields=fields, mask=empty)

    fields_ = [pa.field(field.name, reading.kind) for field, reading in zip(fields, readings, strict=True)]
    return _Reading(pa.struct(fields_), finish)


def _of_base64(column: Any) -> Any:
    try:
        return pa.array([None if text is None else base64(text) for text in column.to_pylist()], pa.binary())
    except ConversionError:
        raise Unreadable from None


_TIMESTAMPS = {
    "text": _Reading(pa.string(), conversion.moments_of, datetime.fromisoformat),
    "seconds": _Reading(pa.int64(), conversion.moments_of_seconds),
}
_SIMPLE = {
    "double": _Reading(pa.float64(), conversion.are_finite),
    "float": _Reading(pa.float64(), lambda column: conversion.are_finite(column.cast(pa.float32()))),
    "date": _Reading(pa.string(), conversion.days_of, date.fromisoformat),
    "timestamp_ntz": _Reading(pa.string(), conversion.local_times_of, datetime.fromisoformat),
    "binary": _Reading(pa.string(), _of_base64),
}
_BLANKS = " \t\r\n"
_IS_BLANK = byte_set(_BLANKS.encode())
_MAY_FOLLOW_BRACE = byte_set(b'"}' + _BLANKS.encode())
_NOT_FINITE = (b"NaN", b"Inf")  # pyarrow takes these for numbers, also in fields that nobody asked for
_GLUED = b"}{"  # needed only to be quick, and only where there are such records: looking for it takes long
_LONG = 800  # bytes: a shorter record cannot be nested so deep that parsers disagree about it
_MANY = 400  # opening brackets


def json_lines(values: pa.Array, odd_words: Iterable[bytes] = _NOT_FINITE) -> tuple[pa.Array, Mask]:
    """Messages as texts without blanks around them, and which of them pyarrow's reader must not see."""
    texts, odd = texts_of(values)
    layout = TextLayout.of(texts)
    if any(_IS_BLANK[edge].any() for edge in layout.edges()):
        texts = pc.ascii_trim(texts, _BLANKS)
        layout = TextLayout.of(texts)
    odd |= _no_objects(layout)
    for word in odd_words:
        odd[layout.with_word(word)] = True
    for row in np.flatnonzero(layout.lengths > _LONG).tolist():
        text = layout.text(row)
        odd[row] |= text.count(b"[") + text.count(b"{") > _MANY
    return texts, odd


def _no_objects(layout: TextLayout) -> Mask:
    """Texts that are not `{"…}` or `{}`, as far as their edges show."""
    first, last = layout.edges()
    second, _ = layout.edges(1)
    objects: Mask = (first == ord("{")) & _MAY_FOLLOW_BRACE[second] & (last == ord("}")) & (layout.lengths > 1)
    return ~objects


_CUT = 8
MIN_PIECE_ROWS = 1024
"""So many records go the slow way together when one of them must: with fewer, pyarrow's overhead would show."""
_LARGEST = MIN_PIECE_ROWS * _CUT * _CUT


class _Piece(NamedTuple):
    """Texts without blanks around, the messages as they came, and their indices in the batch."""

    texts: pa.Array
    values: pa.Array
    indices: Indices

    def slice(self, start: int, size: int) -> _Piece:
        end = start + size
        return _Piece(self.texts.slice(start, size), self.values.slice(start, size), self.indices[start:end])

    def filter(self, mask: Mask) -> _Piece:
        kept = pa.array(mask)
        return _Piece(self.texts.filter(kept), self.values.filter(kept), self.indices[mask])


class JsonDecoder(Decoder):
    """Decodes messages that are one JSON object each."""

    def __init__(self, schema: Schema) -> None:
        types = {kind for field in schema.fields for kind in _with_inner(field.type)}
        self._rows = Rows(schema, JSON_LEAVES, BULK_CONVERTERS)
        self._load = _load_exactly if any(isinstance(kind, Decimal) for kind in types) else orjson.loads
        self._required = [field.name for field in schema.fields if not field.nullable]
        times = TIMES if Simple("timestamp") in types else TIMES[:1]
        # pyarrow's reader has no maps.
        has_map = any(isinstance(kind, Map) for kind in types)
        self._readers = [] if has_map else [JsonReader(schema, way) for way in times]
        self._size = _LARGEST
        self._odd_words: tuple[bytes, ...] = _NOT_FINITE

    def decode(self, values: pa.Array) -> DecodedRecords:
        collector = ColumnCollector(self._rows.arrow)
        for portion, indices in binary_portions(values):
            if self._readers:
                self._sorted_out(portion, indices, collector)
                continue
            for start in range(0, len(portion), MIN_PIECE_ROWS):
                end = start + MIN_PIECE_ROWS
                self._slowly(portion.slice(start, MIN_PIECE_ROWS), indices[start:end], collector)
        return collector.decoded()

    def _sorted_out(self, values: pa.Array, indices: Indices, collector: ColumnCollector) -> None:
        texts, odd = json_lines(values, self._odd_words)
        even = self._even(_Piece(texts, values, indices), odd, collector)
        refused = self._pieces(even, self._size, collector)
        if not refused:
            self._size = min(self._size * _CUT, _LARGEST)
        elif refused * self._size * 2 > len(even.texts):
            self._size = max(self._size // _CUT, MIN_PIECE_ROWS)

    def _even(self, whole: _Piece, odd: Mask, collector: ColumnCollector) -> _Piece:
        """Those that are not odd; the odd ones are decoded record by record."""
        if not odd.any():
            return whole
        self._slowly(whole.values.filter(pa.array(odd)), whole.indices[odd], collector)
        return whole.filter(~odd)

    def _pieces(self, whole: _Piece, size: int, collector: ColumnCollector) -> int:
        """How many pieces of a size could not be read at once; they are cut into smaller ones."""
        refused = 0
        for start in range(0, len(whole.texts), size):
            piece = whole.slice(start, size)
            if self._quickly(piece, collector):
                continue
            glued = np.zeros(len(piece.texts), np.bool_)
            glued[TextLayout.of(piece.texts).with_word(_GLUED)] = True
            if glued.any():
                self._odd_words = (*_NOT_FINITE, _GLUED)
                refused += self._pieces(self._even(piece, glued, collector), size, collector)
                continue
            refused += 1
            if len(piece.texts) > MIN_PIECE_ROWS:
                self._pieces(piece, max(size // _CUT, MIN_PIECE_ROWS), collector)
            elif self._slowly(piece.values, piece.indices, collector):
                # Nothing is wrong with them, so perhaps times are written in another way from now on.
                self._readers.append(self._readers.pop(0))
        return refused

    def _quickly(self, piece: _Piece, collector: ColumnCollector) -> bool:
        try:
            rows, odd = self._readers[0].read(piece.texts)
        except Unreadable:
            return False
        indices = piece.indices
        if odd:
            self._slowly(piece.values.take(pa.array(sorted(odd))), indices[sorted(odd)], collector)
            rows, indices = without_places(rows, indices, odd)
        collector.add(rows, indices, self._missing(rows))
        return True

    def _missing(self, rows: pa.RecordBatch) -> dict[int, str]:
        missing: dict[int, str] = {}
        for name in self._required:
            note_missing(rows.column(name), name, missing)
        return missing

    def _slowly(self, values: pa.Array, indices: Indices, collector: ColumnCollector) -> bool:
        """Decode record by record; return whether all were valid."""
        records, bad = self._records(values.to_pylist())
        for row, reason in bad.items():
            collector.refuse(indices[row], reason)
        rows, unfit = self._rows.of_records(records)
        collector.add(rows, np.delete(indices, list(bad)) if bad else indices, unfit)
        return not bad and not unfit

    def _records(self, values: list[bytes | None]) -> tuple[list[dict[str, Any]], dict[int, str]]:
        """The objects in messages, and why there is none in the others."""
        records: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        load, append = self._load, records.append
        for row, value in enumerate(values):
            try:
                record = load(value)  # type: ignore[arg-type]  # orjson refuses None as it does garbage
            except (orjson.JSONDecodeError, RecursionError) as error:
                bad[row] = _why(value, error)
                continue
            if type(record) is dict:
                append(record)
            else:
                bad[row] = f"not a JSON object: {_NAMES[type(record)]}"
        return records, bad


_NAMES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"} | dict.fromkeys(
    (int, float, Number), "a number"
)


def _why(value: bytes | None, error: Exception) -> str:
    broken = not_text_reason(value)
    if broken or not value:
        return broken or "empty"
    if isinstance(error, orjson.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos + 1}"
    return "not JSON: nested too deep"


def _load_exactly(value: bytes) -> Any:
    """Parse as orjson does, but with all digits of a number, for decimals."""
    orjson.loads(value)
    return json.loads(value.decode(), parse_float=_number)


def _number(text: str) -> Number | float:
    try:
        return Number(text)
    except InvalidOperation:  # nearer to 0 than a Decimal can be
        return 0.0


def _with_inner(kind: Type) -> Iterator[Type]:
    """A type and all types within it."""
    yield kind
    for inner in inner_types(kind):
        yield from _with_inner(inner)
