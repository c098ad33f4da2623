"""JSON: a message is one object, its fields are the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millrace.formats.base import Decoder, Format, require_schema, require_text_keys
from millrace.pipeline.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Json(Format):
    """JSON objects; fields that the schema does not name are ignored."""

    reads_by_name: ClassVar[bool] = True

    def columns(self, schema: Schema | None) -> Schema:
        schema = require_schema(schema, "json")
        for field in schema.fields:
            require_text_keys(field.type, field.name, "JSON")
        return schema

    def decoder(self, schema: Schema | None) -> Decoder:
        """A decoder that reads whole batches, and record by record where that fails."""
        from millrace.formats.json_decoder import JsonDecoder

        return JsonDecoder(self.columns(schema))
