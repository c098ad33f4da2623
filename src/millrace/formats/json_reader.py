"""JSON lines through pyarrow's reader: quick, all or nothing, and made to accept no more than the strict way does.

What pyarrow's reader would let through is kept from it (NaN and deep nesting, see `json_decoder`), read as another
type that is then cast (dates, floats, decimals that would wrap around), or refused afterwards (times out of range).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millrace.formats import columns
from millrace.formats.arrow import arrow_schema, arrow_type
from millrace.formats.values import Wrong, base64
from millrace.pipeline.schema import Array, Decimal, Map, Schema, Simple, Struct, Type

_DIGITS = 38  # of a decimal as it is read; with any scale it stays within the 76 that cannot wrap around
_EARLIEST_BLOCK = 64
TIMES = ("text", "seconds")
"""How timestamps may be written."""


class Unreadable(Exception):
    """This way does not read these lines; the strict way must say which are bad, and why."""


class _Reading(NamedTuple):
    """A type as the reader is told to read it, and what then makes it the type it should be."""

    kind: pa.DataType
    finish: Callable[[Any], Any] | None = None
    screen: Callable[[Any], Any] | None = None
    """Raises ValueError for values that spoil the column, so that the others can be read."""


class JsonReader:
    """Reads lines of one schema, with timestamps written in one of the ways of `TIMES`."""

    def __init__(self, schema: Schema, times: str = TIMES[0]) -> None:
        self._schema = arrow_schema(schema)
        self._readings = [_reading(field.type, times) for field in schema.fields]
        told = [pa.field(field.name, way.kind) for field, way in zip(schema.fields, self._readings, strict=True)]
        self._options = pj.ParseOptions(explicit_schema=pa.schema(told), unexpected_field_behavior="ignore")

    @staticmethod
    def reads(schema: Schema) -> bool:
        """Whether pyarrow's reader has all of the types."""
        return not any(_has_map(field.type) for field in schema.fields)

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
            column = table.column(name).combine_chunks()
            arrays.append(_without_odd(reading, column, odd) if reading.finish else column)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), odd


def _without_odd(reading: _Reading, column: pa.Array, odd: set[int]) -> pa.Array:
    finish = reading.finish or (lambda same: same)
    try:
        return finish(column)
    except pa.ArrowInvalid:
        places = columns.caught(reading.screen, column.to_pylist()) if reading.screen else []
        if not places:
            raise
    mask = np.zeros(len(column), np.bool_)
    mask[places] = True
    odd.update(places)
    return finish(pc.if_else(pa.array(mask), pa.scalar(None, column.type), column))


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
        inner = element.finish(column.values) if element.finish else column.values
        return pa.Array.from_buffers(
            whole, len(column), column.buffers()[:2], column.null_count, column.offset, [inner]
        )

    return _Reading(pa.list_(element.kind), finish)


def _struct(kind: Struct, times: str) -> _Reading:
    readings = [_reading(field.type, times) for field in kind.fields]
    fields = list(arrow_type(kind))

    def finish(column: Any) -> Any:
        empty = column.is_null()
        inner = []
        for place, (field, reading) in enumerate(zip(fields, readings, strict=True)):
            values = column.field(place)
            if not field.nullable and pc.any(pc.and_not(values.is_null(), empty)).as_py():
                raise Unreadable
            inner.append(reading.finish(values) if reading.finish else values)
        return pa.StructArray.from_arrays(inner, fields=fields, mask=empty)

    told = [pa.field(field.name, reading.kind) for field, reading in zip(fields, readings, strict=True)]
    return _Reading(pa.struct(told), finish)


def _of_base64(column: Any) -> Any:
    try:
        return pa.array([None if text is None else base64(text) for text in column.to_pylist()], pa.binary())
    except Wrong:
        raise Unreadable from None


def _has_map(kind: Type) -> bool:
    if isinstance(kind, Array):
        return _has_map(kind.element)
    if isinstance(kind, Struct):
        return any(_has_map(field.type) for field in kind.fields)
    return isinstance(kind, Map)


_TIMESTAMPS = {
    "text": _Reading(pa.string(), columns.moments_of, datetime.fromisoformat),
    "seconds": _Reading(pa.int64(), columns.moments_of_seconds),
}
_SIMPLE = {
    "double": _Reading(pa.float64(), columns.finite),
    "float": _Reading(pa.float64(), lambda column: columns.finite(column.cast(pa.float32()))),
    "date": _Reading(pa.string(), columns.days_of, date.fromisoformat),
    "timestamp_ntz": _Reading(pa.string(), columns.local_times_of, datetime.fromisoformat),
    "binary": _Reading(pa.string(), _of_base64),
}
