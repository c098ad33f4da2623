"""Messages that are one column as they are: text and raw bytes."""

from __future__ import annotations

import pyarrow as pa

from millrace.formats.arrow_types import arrow_schema
from millrace.formats.base import DecodedRecords, Decoder
from millrace.formats.row_builder import ColumnCollector, binary_portions
from millrace.pipeline.schema import Schema


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
