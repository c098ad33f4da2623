"""Avro messages to columns: record by record with the schema each was written with.

Rows to Avro messages, with the registry's header when there is one.
"""

from __future__ import annotations

from datetime import date, datetime, time
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa

from millrace.errors import RunError
from millrace.formats import conversion
from millrace.formats.arrow_types import TOMBSTONE
from millrace.formats.avro_schema import AvroSchema, avro_of, read_avro
from millrace.formats.base import DecodedRecords, Decoder, Encoder
from millrace.formats.conversion import JSON_LEAVES, ConversionError, Converter, instance_of, preview
from millrace.formats.row_builder import BULK_CONVERTERS, BulkColumns, ColumnCollector, Indices, Rows, binary_portions
from millrace.formats.schema_registry import Registry, UnknownSchema, registry_at
from millrace.pipeline.schema import Schema

_PIECE = 4096
_HEADER = 5  # a zero byte and the schema's id in four


class AvroDecoder(Decoder):
    """Decodes messages that are one Avro record each."""

    def __init__(self, schema: Schema, own: AvroSchema | None, address: str | None) -> None:
        self._rows = Rows(schema, _LEAVES, _BULK)
        self._own = own
        self._address = address

    def decode(self, values: pa.Array) -> DecodedRecords:
        collector = ColumnCollector(self._rows.arrow)
        reader = _Reader(self._own, registry_at(self._address) if self._address else None)
        for portion, indices in binary_portions(values):
            for start in range(0, len(portion), _PIECE):
                self._piece(portion.slice(start, _PIECE), indices[start : start + _PIECE], reader, collector)
        return collector.decoded()

    def _piece(self, values: pa.Array, indices: Indices, reader: _Reader, collector: ColumnCollector) -> None:
        records, kept = [], []
        for row, value in enumerate(values.to_pylist()):
            try:
                records.append(reader.read(value))
                kept.append(row)
            except ConversionError as wrong:
                collector.refuse(indices[row], wrong.reason)
        rows, bad = self._rows.of_records(records)
        collector.add(rows, indices[kept], bad)


class _Reader:
    """Reads the records of one batch; an id that is unknown now may be known to the next one."""

    def __init__(self, own: AvroSchema | None, registry: Registry | None) -> None:
        self._own = own
        self._registry = registry
        self._unknown: dict[int, str] = {}

    def read(self, value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise ConversionError(TOMBSTONE)
        body, own = BytesIO(value), self._own.record if self._own else None
        if self._registry is None:
            writer, reader = own, None
        elif len(value) < _HEADER or body.read(1) != b"\0":
            raise ConversionError(
                "no header of a schema registry: the first byte must be 0, four of the schema's id follow"
            )
        else:
            writer, reader = self._writer(self._registry, int.from_bytes(body.read(4))), own
        assert writer is not None  # noqa: S101 - for the type checker
        try:
            record = fastavro.schemaless_reader(body, writer, reader)
        except MemoryError:
            raise
        except Exception as error:  # whatever fastavro stumbles over is in the bytes: it touches nothing else
            why = f"{type(error).__name__} {error}".strip()
            raise ConversionError(f"not Avro of this schema: {preview(why)[1:-1]}") from None
        if body.tell() != len(value):
            raise ConversionError(f"not Avro of this schema: {len(value) - body.tell()} bytes are left over")
        if not isinstance(record, dict):
            raise ConversionError("not an Avro record")
        return record

    def _writer(self, registry: Registry, number: int) -> dict[str, Any]:
        if number not in self._unknown:
            try:
                return registry.schema(number).record
            except UnknownSchema as error:
                self._unknown[number] = str(error)
        raise ConversionError(self._unknown[number])


def _or_json(name: str, kind: type, convert: Converter) -> Converter:
    """Return the converter of a Python type that only Avro has; others are converted as those of JSON."""
    return lambda value: convert(value) if type(value) is kind else JSON_LEAVES[name](value)


def _local(value: Any) -> Any:
    if type(value) is datetime and value.tzinfo is None:
        return conversion.micros_of_datetime(value)
    return JSON_LEAVES["timestamp_ntz"](value)


_time_or_string = _or_json("string", time, time.isoformat)
_LEAVES: dict[str, Converter] = {
    **JSON_LEAVES,
    "string": lambda value: str(value) if type(value) is UUID else _time_or_string(value),
    "timestamp": _or_json("timestamp", datetime, conversion.micros_of_datetime),
    "timestamp_ntz": _local,
    "date": _or_json("date", date, conversion.days_of_date),
    "binary": instance_of(bytes, "bytes"),
}
_BULK = {
    **BULK_CONVERTERS,
    "timestamp": BulkColumns(datetime, pa.array),
    "date": BulkColumns(date, pa.array),
    "binary": BulkColumns(bytes, pa.array),
}


class AvroEncoder(Encoder):
    """Encodes rows as Avro records."""

    def __init__(self, schema: pa.Schema, own: str | None, address: str | None, subject: str) -> None:
        self._text = avro_of(schema) if own is None else own
        self._schema = read_avro(self._text).record
        self._address = address
        self._subject = subject
        self._header: bytes | None = None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        if self._header is None:
            self._header = self._registered()
        return pa.array([self._message(row) for row in batch.to_pylist(maps_as_pydicts="strict")], pa.binary())

    def _registered(self) -> bytes:
        """The header; registering is done here, as only a worker may reach the registry."""
        if self._address is None:
            return b""
        return b"\0" + registry_at(self._address).register(self._subject, self._text).to_bytes(4)

    def _message(self, row: dict[str, object]) -> bytes:
        body = BytesIO()
        body.write(self._header or b"")
        try:
            fastavro.schemaless_writer(body, self._schema, row)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError) as error:
            raise RunError(
                "a row does not fit the Avro schema",
                why=f"{type(error).__name__}: {error}"[:300],
                hint="select and cast the columns that avro_schema describes, or leave it out",
            ) from error
        return body.getvalue()
