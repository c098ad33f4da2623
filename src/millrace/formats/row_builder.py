"""Decoded values become Arrow columns; records that do not fit their schema are set apart.

- `Rows` builds columns from Python values, record by record; `BulkColumns` builds a column at once where it can.
- `ColumnCollector` gathers good rows and rejected records, which may come in any order, into `DecodedRecords`.
- `TextDecoder` and `RawDecoder`: messages that are one column as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from millrace.formats.arrow_types import arrow_schema, not_text_reason, texts_of
from millrace.formats.base import DecodedRecords, Decoder, RejectedRecord
from millrace.formats.conversion import ConversionError, Converter, converter, failing_indices, moments_of
from millrace.pipeline.schema import Field, Schema

_NONE = type(None)


class BulkColumns(NamedTuple):
    """How many values of one Python type become a column at once; what it cannot take, it refuses as a whole."""

    expected: type
    convert: Callable[[Sequence[Any], pa.DataType], pa.Array]
    screen: Callable[[Any], Any] | None = None
    """Raises ValueError for most of the values that are refused; much quicker than their converter."""


class Rows:
    """Makes record batches of one schema."""

    def __init__(self, schema: Schema, leaves: Mapping[str, Converter], bulk: Mapping[str, BulkColumns]) -> None:
        self.arrow = arrow_schema(schema)
        self._columns = [
            _Column(field, kind, converter(field.type, leaves), bulk.get(field.type.ddl()))
            for field, kind in zip(schema.fields, self.arrow.types, strict=True)
        ]
        self._pick = itemgetter(*schema.names, schema.names[0])  # one more, so that it gives tuples always

    def of_records(self, records: Sequence[Mapping[str, Any]]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return a row for each record, and why some of them are bad; names that no column has are left out."""
        try:
            picked = list(map(self._pick, records))
        except KeyError:
            picked = [self._picked(record) for record in records]
        columns = list(zip(*picked, strict=True))[:-1] if picked else [()] * len(self._columns)
        bad: dict[int, str] = {}
        arrays = [column.array(values, bad) for column, values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow), bad

    def _picked(self, record: Mapping[str, Any]) -> Any:
        try:
            return self._pick(record)
        except KeyError:
            return (*(record.get(column.name) for column in self._columns), None)


class _Column:
    """One column: its converter, and a shorter way when every value is of the expected Python type."""

    def __init__(self, field: Field, kind: pa.DataType, convert: Converter, bulk: BulkColumns | None) -> None:
        self.name = field.name
        self._kind = kind
        self._nullable = field.nullable
        self._convert = convert
        self._bulk = bulk
        self._expected = {bulk.expected if bulk else object, *([_NONE] if field.nullable else [])}

    def array(self, values: Sequence[Any], bad: dict[int, str]) -> pa.Array:
        """The column; a record that it cannot take is noted, unless an earlier column has done so."""
        if self._bulk:
            odd: list[int] = []
            if not set(map(type, values)) <= self._expected:  # much quicker than a loop
                odd = [index for index, value in enumerate(values) if type(value) not in self._expected]
            whole = self._at_once(self._bulk, values, odd, bad)
            if whole is None and self._bulk.screen:
                whole = self._at_once(self._bulk, values, self._caught(self._bulk.screen, values, odd), bad)
            if whole is not None:
                return whole
        return pa.array([self._converted(value, row, bad) for row, value in enumerate(values)], self._kind)

    def _caught(self, screen: Callable[[Any], Any], values: Sequence[Any], odd: list[int]) -> list[int]:
        hidden = list(values)
        for row in odd:
            hidden[row] = None
        return odd + failing_indices(screen, hidden)

    def _at_once(
        self, bulk: BulkColumns, values: Sequence[Any], odd: list[int], bad: dict[int, str]
    ) -> pa.Array | None:
        """The column, with the odd values converted apart; None if that cannot be."""
        if odd:
            values = list(values)
            for row in odd:
                values[row] = self._converted(values[row], row, bad)
                if type(values[row]) not in (bulk.expected, _NONE):
                    return None
        try:
            return bulk.convert(values, self._kind)
        except (pa.ArrowInvalid, OverflowError):
            return None

    def _converted(self, value: Any, row: int, bad: dict[int, str]) -> Any:
        if value is None:
            if not self._nullable:
                bad.setdefault(row, f"column {self.name}: missing")
            return None
        try:
            return self._convert(value)
        except ConversionError as wrong:
            bad.setdefault(row, f"column {self.name}{wrong.path}: {wrong.reason}")
            return None


BULK_CONVERTERS = {
    "string": BulkColumns(str, pa.array),
    "boolean": BulkColumns(bool, pa.array),
    "double": BulkColumns(float, pa.array),
    "timestamp": BulkColumns(str, lambda texts, _: moments_of(pa.array(texts, pa.string())), datetime.fromisoformat),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), BulkColumns(int, pa.array)),
}
Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_MOST_ROWS = 65_536
_MOST_BYTES = 1 << 28


class ColumnCollector:
    """Gathers the rows of one batch of messages."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[pa.RecordBatch] = []
        self._good: list[Indices] = []
        self._bad: list[RejectedRecord] = []

    def add(self, rows: pa.RecordBatch, indices: Indices, bad: Mapping[int, str] | None = None) -> None:
        """Take in rows and the index of each; those whose places are in `bad` are refused."""
        for row, reason in (bad or {}).items():
            self.refuse(indices[row], reason)
        if bad:
            rows, indices = without_places(rows, indices, bad)
        if len(indices):
            self._rows.append(rows)
            self._good.append(indices)

    def refuse(self, index: int, reason: str) -> None:
        self._bad.append(RejectedRecord(int(index), reason))

    def texts(self, values: pa.Array, indices: Indices) -> tuple[pa.Array, Indices]:
        """Those of the messages that are text; the others are refused."""
        texts, broken = texts_of(values)
        if not broken.any():
            return texts, indices
        for row in np.flatnonzero(broken).tolist():
            self.refuse(indices[row], not_text_reason(values[row].as_py()) or "not text")
        return texts.filter(pa.array(~broken)), indices[~broken]

    def decoded(self) -> DecodedRecords:
        """Everything, in the order of the messages."""
        rows = pa.concat_batches(self._rows or [pa.RecordBatch.from_pylist([], self._schema)])
        good = np.concatenate(self._good) if self._good else np.empty(0, np.int64)
        if len(good) > 1 and np.any(np.diff(good) < 0):
            order = np.argsort(good)
            rows, good = rows.take(pa.array(order)), good[order]
        self._bad.sort(key=lambda bad: bad.index)
        return DecodedRecords(rows, pa.array(good, pa.int64()) if self._bad else None, self._bad)


def note_missing(column: pa.Array, name: str, bad: dict[int, str]) -> None:
    """Note the records without a value in a required column, unless an earlier column has done so."""
    if column.null_count:
        for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            bad.setdefault(index, f"column {name}: missing")


def without_places(rows: pa.RecordBatch, indices: Indices, places: Container[int]) -> tuple[pa.RecordBatch, Indices]:
    """Return rows and their indices without those at some places."""
    kept = [row for row in range(len(indices)) if row not in places]
    return rows.take(pa.array(kept, pa.int64())), indices[kept]


def binary_portions(values: pa.Array) -> Iterator[tuple[pa.Array, Indices]]:
    """The values as binary arrays of a size that can be handled in one go, with their indices."""
    for start in range(0, len(values), _MOST_ROWS):
        yield from _halved(values.slice(start, _MOST_ROWS), start)


def _halved(values: pa.Array, start: int) -> Iterator[tuple[pa.Array, Indices]]:
    count = len(values)
    if count > 1 and values.nbytes > _MOST_BYTES:
        yield from _halved(values.slice(0, count // 2), start)
        yield from _halved(values.slice(count // 2), start + count // 2)
    else:
        yield values.cast(pa.binary()), np.arange(start, start + count)


class TextDecoder(Decoder):
    """Decodes messages that are UTF-8."""

    def __init__(self, schema: Schema) -> None:
        self._schema = arrow_schema(schema)

    def decode(self, values: pa.Array) -> DecodedRecords:
        collector = ColumnCollector(self._schema)
        for portion, indices in binary_portions(values):
            texts, good = collector.texts(portion, indices)
            collector.add(pa.RecordBatch.from_arrays([texts], schema=self._schema), good)
        return collector.decoded()


class RawDecoder(Decoder):
    """Passes messages on."""

    def __init__(self, schema: Schema) -> None:
        self._schema = arrow_schema(schema)

    def decode(self, values: pa.Array) -> DecodedRecords:
        return DecodedRecords(pa.RecordBatch.from_arrays([values.cast(pa.binary())], schema=self._schema), None, [])
