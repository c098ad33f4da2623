"""Rows to Avro messages, with the registry's header when there is one."""

from __future__ import annotations

from io import BytesIO

import fastavro
import pyarrow as pa

from millrace.errors import RunError
from millrace.formats.avro_schemas import avro_of, read_avro
from millrace.formats.base import Encoder
from millrace.formats.registry import registry_at


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
