"""Rows as message bytes, written by Spark itself where it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millrace.errors import InvalidDefinition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Encoded(Protocol):
    """What decides how the value of a record is written."""

    @property
    def format(self) -> str:
        """json, csv, text, raw or avro."""

    @property
    def topic(self) -> str:
        """Names the subject of a schema registry."""

    @property
    def avro_schema(self) -> str | None:
        """For avro: the schema, or a file of it."""

    @property
    def registry(self) -> str | None:
        """For avro: the address of a schema registry."""


def encoded(frame: DataFrame, columns: Sequence[str], writer: Encoded) -> Column:
    """The value of each record."""
    return _avro(frame, columns, writer) if writer.format == "avro" else plain(columns, writer.format)


def plain(columns: Sequence[str], form: str) -> Column:
    """The value of each record, in a format that Spark writes itself."""
    from pyspark.sql import functions as F

    if form == "json":
        return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    if form == "csv":
        return F.to_csv(F.struct(*columns))
    return F.col(_single(columns, form)).cast("string" if form == "text" else "binary")


def key_text(frame: DataFrame, names: Sequence[str]) -> Column:
    """The key: one plain column as text, anything else as JSON."""
    from pyspark.sql import functions as F

    plain = len(names) == 1 and frame.select(*names).schema[0].dataType.typeName() not in ("struct", "array", "map")
    if plain:
        kind = frame.select(*names).schema[0].dataType.typeName()
        return F.col(names[0]) if kind == "binary" else F.col(names[0]).cast("string")
    return F.to_json(F.struct(*names)) if len(names) > 1 else F.to_json(names[0])


def _single(columns: Sequence[str], kind: str) -> str:
    if "value" in columns:
        return "value"
    if len(columns) == 1:
        return columns[0]
    raise InvalidDefinition(
        f"{kind} writes one column, and there are {len(columns)}: {', '.join(columns)}",
        hint="name it with value: COLUMN",
    )


def _avro(frame: DataFrame, columns: Sequence[str], writer: Encoded) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    from millrace.formats.avro import Avro

    fields = to_arrow_schema(frame.select(*columns).schema, timezone="UTC")
    chosen = Avro(avro_schema=writer.avro_schema, registry=writer.registry, subject=f"{writer.topic}-value")
    made: list[Any] = []

    def encode(rows: Any) -> Any:
        import pyarrow as pa

        if not made:
            made.append(chosen.encoder(fields))
        return made[0].encode(pa.RecordBatch.from_struct_array(rows))

    encode.__annotations__ = {}
    return F.arrow_udf(encode, "binary")(F.struct(*columns))
