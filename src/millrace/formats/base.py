"""The contract of a format, and where formats are found.

A format is one file in this folder (or one entry point in the group `millrace.formats`) that defines one concrete
subclass of `Format`: a frozen dataclass whose fields are its options. The file's name is the format's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from millrace.errors import InvalidOption, InvalidSchema
from millrace.pipeline.schema import Field, Map, Schema, Simple, Type, inner_types
from millrace.plugins import PluginRegistry

if TYPE_CHECKING:  # pyarrow is slow to import, and a check of a pipeline decodes nothing
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that is not what it should be: its index in the batch, and why in one short line."""

    index: int
    reason: str


class DecodedRecords(NamedTuple):
    """What became of a batch: every record is in `good` or in `bad`, once."""

    rows: pa.RecordBatch
    """The good records, in order."""
    good: pa.Array | None
    """The indices (int64) of the good records; None means all of them."""
    bad: list[RejectedRecord]
    """The others, in order."""


class Decoder(ABC):
    """Turns batches of message values into columns. It may learn from one batch for the next."""

    @abstractmethod
    def decode(self, values: pa.Array) -> DecodedRecords:
        """Decode binary (or large binary) values, of which some may be null.

        Whatever the bytes are, a record becomes a row or a `RejectedRecord`; only what has nothing to do with the
        record (a registry that does not answer) is raised.
        """


class Encoder(ABC):
    """Turns rows into message values."""

    @abstractmethod
    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One binary value a row."""


class Format(ABC):
    """A way to write a record as bytes."""

    needs_schema: ClassVar[bool] = True
    reads_by_name: ClassVar[bool] = False
    """Whether a schema may name only some of the columns that records have."""

    @abstractmethod
    def columns(self, schema: Schema | None) -> Schema:
        """The columns that decoded rows have when a pipeline declares this schema, or none."""

    @abstractmethod
    def decoder(self, schema: Schema | None) -> Decoder:
        """A decoder for that schema; cheap, called in Spark's worker."""

    def encoder(self, schema: pa.Schema) -> Encoder:
        """An encoder for rows of these columns, for formats that Spark cannot write by itself."""
        name = type(self).__name__.lower()
        raise InvalidOption(f"the format {name} has no encoder for columns {', '.join(schema.names)}")


def require_schema(schema: Schema | None, name: str) -> Schema:
    """Return the schema; raise if there is none, which this format needs."""
    if schema is None:
        raise InvalidSchema(
            f"the format {name} needs a schema", hint="for example: schema: id string NOT NULL, at timestamp"
        )
    return schema


def require_text_keys(kind: Type, column: str, name: str) -> None:
    """Raise when a column has a map whose keys the format could not write."""
    if isinstance(kind, Map) and kind.key != Simple("string"):
        raise InvalidSchema(
            f"column {column}: the keys of a map in {name} are strings, not {kind.key.ddl()}",
            hint=f"map<string,{kind.value.ddl()}>",
        )
    for inner in inner_types(kind):
        require_text_keys(inner, column, name)


def require_single_column(schema: Schema | None, name: str, kind: Simple) -> Schema:
    """The schema of a format that has one column, `value` unless a schema names it otherwise."""
    if schema is None:
        return Schema((Field("value", kind),))
    if [field.type for field in schema.fields] != [kind]:
        raise InvalidSchema(
            f"the format {name} has one column, of type {kind.ddl()}",
            hint=f"leave the schema out, or: value {kind.ddl()}",
        )
    return Schema((Field(schema.names[0], kind),))


FORMATS = PluginRegistry("millrace.formats", Format, "format")
