"""Avro: a message is one record, alone or behind the header of a schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.errors import FileUnusable, InvalidOption, InvalidSchema
from millrace.formats.avro_schema import AvroSchema, InvalidAvro, read_avro, schema_of
from millrace.formats.base import Decoder, Encoder, Format, require_text_keys
from millrace.limited_files import read_limited_text
from millrace.pipeline.schema import Schema
from millrace.plugins import option

if TYPE_CHECKING:
    import pyarrow as pa


def _text_or_file(given: str) -> str:
    """A schema as it is, or that of a file: read here, as Spark's workers may not have the file."""
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    try:
        return read_limited_text(given)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise FileUnusable(f"the Avro schema {given} cannot be read", why=str(error)) from None


def _address(given: str) -> str:
    from millrace.formats.schema_registry import checked_address

    return checked_address(given)


@dataclass(frozen=True, kw_only=True)
class Avro(Format):
    """Avro records, with a schema of their own or with those of a Confluent-compatible registry."""

    avro_schema: str | None = option(None, "The Avro schema: JSON, or a file's name.", parse=_text_or_file)
    registry: str | None = option(
        None, "The schema registry's URL; a user and a password may be in it.", parse=_address, secret=True
    )
    subject: str | None = option(None, "Under which name a sink registers its schema.", shown_default="TOPIC-value")

    def __post_init__(self) -> None:
        if self.avro_schema is not None:
            object.__setattr__(self, "avro_schema", _text_or_file(self.avro_schema))

    def columns(self, schema: Schema | None) -> Schema:
        """The declared ones, or all of the Avro schema."""
        own = self._own()
        if own is None and self.registry is None:
            raise InvalidOption("avro needs avro_schema or registry", hint="avro_schema: events.avsc")
        if schema is not None:
            for field in schema.fields:
                require_text_keys(field.type, field.name, "Avro")
            return schema
        if own is None:
            raise InvalidSchema(
                "avro with a registry needs schema or avro_schema, so that its columns are known before it runs",
                hint="for example: schema: id string, at timestamp",
            )
        return schema_of(own)

    def decoder(self, schema: Schema | None) -> Decoder:
        """A decoder that reads each record with the schema it was written with."""
        from millrace.formats.avro_codec import AvroDecoder

        return AvroDecoder(self.columns(schema), self._own(), self.registry)

    def encoder(self, schema: pa.Schema) -> Encoder:
        """An encoder; without an Avro schema it makes one that fits the columns."""
        from millrace.formats.avro_codec import AvroEncoder

        self._own()
        if self.registry and not self.subject:
            raise InvalidOption("avro with a registry needs a subject to write", hint="subject: TOPIC-value")
        return AvroEncoder(schema, self.avro_schema, self.registry, self.subject or "")

    def _own(self) -> AvroSchema | None:
        if self.avro_schema is None:
            return None
        try:
            return read_avro(self.avro_schema)
        except InvalidAvro as error:
            raise InvalidOption(f"avro_schema: {error}") from None
