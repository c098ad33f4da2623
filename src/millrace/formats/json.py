"""JSON: a message is one object, its fields are the columns."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import InvalidSchema
from millrace.formats.base import Decoder, Format, required
from millrace.pipeline.schema import Array, Map, Schema, Simple, Struct, Type


@dataclass(frozen=True, kw_only=True)
class Json(Format):
    """JSON objects; fields that the schema does not name are ignored."""

    def columns(self, schema: Schema | None) -> Schema:
        """The declared ones."""
        schema = required(schema, "json")
        for field in schema.fields:
            _check_keys(field.type, field.name)
        return schema

    def decoder(self, schema: Schema | None) -> Decoder:
        """A decoder that reads whole batches, and record by record where that fails."""
        from millrace.formats.json_decoder import JsonDecoder

        return JsonDecoder(self.columns(schema))


def _check_keys(kind: Type, column: str) -> None:
    if isinstance(kind, Map):
        if kind.key != Simple("string"):
            raise InvalidSchema(
                f"column {column}: the keys of a map in JSON are strings, not {kind.key.ddl()}",
                hint=f"map<string,{kind.value.ddl()}>",
            )
        _check_keys(kind.value, column)
    elif isinstance(kind, Array):
        _check_keys(kind.element, column)
    elif isinstance(kind, Struct):
        for field in kind.fields:
            _check_keys(field.type, column)
