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
from millrace.formats.conversion import JSON_LEAVES, ConversionError, Converter, as_float, mismatch, preview
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
        """Decode a batch."""
        harvest = ColumnCollector(self._rows.arrow)
        reader = _Reader(self._own, registry_at(self._address) if self._address else None)
        for portion, indices in binary_portions(values):
            for start in range(0, len(portion), _PIECE):
                self._piece(portion.slice(start, _PIECE), indices[start : start + _PIECE], reader, harvest)
        return harvest.decoded()

    def _piece(self, values: pa.Array, indices: Indices, reader: _Reader, harvest: ColumnCollector) -> None:
        records, kept = [], []
        for place, value in enumerate(values.to_pylist()):
            try:
                records.append(reader.read(value))
                kept.append(place)
            except ConversionError as wrong:
                harvest.refuse(indices[place], wrong.reason)
        rows, bad = self._rows.of_records(records)
        harvest.add(rows, indices[kept], bad)


class _Reader:
    """Reads the records of one batch; an id that is unknown now may be known to the next one."""

    def __init__(self, own: AvroSchema | None, registry: Registry | None) -> None:
        self._own = own
        self._registry = registry
        self._unknown: dict[int, str] = {}

    def read(self, value: bytes | None) -> dict[str, Any]:
        """The record in a message."""
        if value is None:
            raise ConversionError(TOMBSTONE)
        if self._registry is None:
            return self._record(value, 0, self._own, None)
        if len(value) < _HEADER or value[0] != 0:
            raise ConversionError(
                "no header of a schema registry: the first byte must be 0, four of the schema's id follow"
            )
        return self._record(value, _HEADER, self._writer(int.from_bytes(value[1:_HEADER])), self._own)

    def _writer(self, number: int) -> AvroSchema:
        assert self._registry is not None  # noqa: S101 - for the type checker
        if number not in self._unknown:
            try:
                return self._registry.schema(number)
            except UnknownSchema as error:
                self._unknown[number] = str(error)
        raise ConversionError(self._unknown[number])

    @staticmethod
    def _record(value: bytes, start: int, writer: AvroSchema | None, reader: AvroSchema | None) -> dict[str, Any]:
        assert writer is not None  # noqa: S101 - for the type checker
        body = BytesIO(value)
        body.seek(start)
        try:
            record = fastavro.schemaless_reader(body, writer.record, reader.record if reader else None)
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


def _string(value: Any) -> Any:
    if type(value) is UUID:
        return str(value)
    return value.isoformat() if type(value) is time else JSON_LEAVES["string"](value)


def _double(value: Any) -> Any:
    """Unlike JSON, Avro can say NaN and infinity, so they are what the writer meant."""
    return value if type(value) is float else JSON_LEAVES["double"](value)


def _timestamp(value: Any) -> Any:
    return conversion.micros_of_datetime(value) if type(value) is datetime else JSON_LEAVES["timestamp"](value)


def _local(value: Any) -> Any:
    if type(value) is datetime and value.tzinfo is None:
        return conversion.micros_of_datetime(value)
    return JSON_LEAVES["timestamp_ntz"](value)


def _date(value: Any) -> Any:
    return conversion.days_of_date(value) if type(value) is date else JSON_LEAVES["date"](value)


def _binary(value: Any) -> Any:
    if type(value) is bytes:
        return value
    raise mismatch("bytes", value)


_LEAVES: dict[str, Converter] = {
    **JSON_LEAVES,
    "string": _string,
    "double": _double,
    "float": lambda value: as_float(_double(value)),
    "timestamp": _timestamp,
    "timestamp_ntz": _local,
    "date": _date,
    "binary": _binary,
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
        self._text = own if own is not None else avro_of(schema)
        self._schema = read_avro(self._text).record
        self._address = address
        self._subject = subject
        self._header: bytes | None = None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One message a row."""
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
