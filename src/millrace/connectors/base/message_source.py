"""Messages whose bytes have a format.

- `DecodedSource`: the options of a source of messages: format, schema, what happens to bad ones.
- `encoded_value` and `encoded_key`: rows as message bytes, by Spark's own functions where it has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from millrace.connectors.base.api import SOURCES, MessageSource
from millrace.connectors.base.registry import build
from millrace.errors import InputError, InvalidDefinition, did_you_mean
from millrace.formats.base import FORMATS, Format
from millrace.pipeline.connector_facts import OptionMistake
from millrace.pipeline.schema import Schema, parse_schema
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ON_BAD = ("dead_letter", "drop", "fail")


@dataclass(frozen=True, kw_only=True)
class DecodedSource(MessageSource):
    """The options of a source whose bytes are decoded."""

    format: str = option("json", "What the bytes are: json, csv, text, avro or raw.")
    schema: str | None = option(None, "The columns, in Spark's DDL: id string NOT NULL, at timestamp.")
    include: tuple[str, ...] | None = option(
        None, "Columns to keep beside the decoded ones.", shown_default="all for text and raw, else none"
    )
    on_bad: str = option(
        "dead_letter",
        "What becomes of a record that cannot be decoded.",
        choices=ON_BAD,
        value_aliases={"dead": "dead_letter"},
    )
    decoder: str = option(
        "arrow",
        "What decodes json and csv: arrow, in columns; or spark, with from_json and from_csv, which forgive more.",
        choices=("arrow", "spark"),
    )
    more: Mapping[str, Any] = option(help="The options of the format.", rest=True)

    @cached_property
    def bytes_format(self) -> Format:
        """What the bytes are; its own options are those that the source does not know."""
        mistakes: list[OptionMistake] = []
        chosen = build(FORMATS.load(self.format), self.more, f"format {self.format}", mistakes)
        if chosen is None:
            raise InputError(mistakes[0].message, hint=mistakes[0].hint)
        return chosen

    @property
    def decoding(self) -> str:
        """Text is left to Spark, which only has to look at it; raw bytes to nobody."""
        return {"text": "sift", "raw": "whole"}.get(self.format, self.decoder)

    def sift(self, raw: DataFrame) -> tuple[DataFrame, Column]:
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        reason = F.when(F.col("value").isNull(), F.lit("no value (a tombstone)"))
        reason = reason.when(~F.is_valid_utf8(text), F.lit("not UTF-8"))
        return raw.withColumn("_bytes", F.col("value")).withColumn("value", text), reason

    @cached_property
    def declared(self) -> Schema | None:
        return parse_schema(self.schema) if self.schema else None

    @property
    def included(self) -> tuple[str, ...]:
        if self.include is not None:
            return self.include
        without = () if self.bytes_format.needs_schema else tuple(name for name in self.carried if name != "headers")
        return tuple(name for name in without if name not in self._decoded().names)

    @property
    def when_bad(self) -> str:
        return self.on_bad

    def by_spark(self) -> DecodedSource:
        return dataclasses.replace(self, decoder="spark") if self.format in ("json", "csv") else self

    def _decoded(self) -> Schema:
        return self.bytes_format.columns(self.declared)

    def columns(self) -> Schema | None:
        carried = (
            parse_schema(", ".join(f"`{name}` {self._carried_type(name)}" for name in self.included)).fields
            if self.included
            else ()
        )
        return Schema((*self._decoded().fields, *carried))

    def _carried_type(self, name: str) -> str:
        return "string" if name == "key" and self.format != "raw" else self.carried[name]

    def mistakes(self) -> Iterator[OptionMistake]:
        mistakes = list(self._format_mistakes())
        yield from mistakes
        if mistakes:
            return
        if self.decoder == "spark" and (self.format not in ("json", "csv") or self.declared is None):
            message = f"decoder: spark is for json and csv, not for {self.format}"
            yield OptionMistake("option.invalid", message, "decoder", "leave decoder out")
        names = [field.name.lower() for field in self._decoded().fields]
        for name in self.include or ():
            if name not in self.carried:
                columns = ", ".join(self.carried) or "nothing"
                yield OptionMistake(
                    "option.invalid", f"there is no {name!r} to include", "include", f"it has: {columns}"
                )
            elif name.lower() in names:
                yield OptionMistake("option.invalid", f"the schema has a column {name!r} already", "include")

    def _format_mistakes(self) -> Iterator[OptionMistake]:
        try:
            kind = FORMATS.load(self.format)
        except InputError as error:
            yield OptionMistake("option.invalid", error.message, "format", error.hint)
            return
        mistakes: list[OptionMistake] = []
        chosen = build(kind, self.more, f"{self._name()} in {self.format}", mistakes)
        for mistake in mistakes:
            yield self._of_source(mistake, kind) if mistake.condition == "option.unknown" else mistake
        if chosen is None:
            return
        try:
            schema = self.declared
            if chosen.needs_schema and schema is None:
                chosen.columns(None)  # a format may know its columns by itself, as Avro does
        except InputError as error:
            missing = self.schema is None
            yield OptionMistake(
                "schema.missing" if missing else error.condition,
                f"{self.format} needs a schema" if missing else f"the schema: {error.message}",
                None if missing else "schema",
                error.hint
                or ("add schema: id string, at timestamp, …; millrace schema TOPIC proposes one" if missing else None),
                error.why,
            )

    def _of_source(self, mistake: OptionMistake, kind: type[Format]) -> OptionMistake:
        """An option that neither the format nor the source has: it may have been meant for either."""
        own = [field.name for field in dataclasses.fields(self) if field.init and not field.metadata.get("rest")]
        names = [*own, *(field.name for field in dataclasses.fields(kind) if field.init)]  # type: ignore[arg-type]
        return dataclasses.replace(mistake, hint=did_you_mean(mistake.option or "", names))

    def _name(self) -> str:
        return SOURCES.name_of(type(self))


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


def encoded_value(frame: DataFrame, columns: Sequence[str], writer: Encoded) -> Column:
    """The value of each record."""
    return _avro(frame, columns, writer) if writer.format == "avro" else spark_encoded_value(columns, writer.format)


def spark_encoded_value(columns: Sequence[str], form: str) -> Column:
    """The value of each record, in a format that Spark writes itself."""
    from pyspark.sql import functions as F

    if form == "json":
        return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    if form == "csv":
        return F.to_csv(F.struct(*columns))
    return F.col(_single(columns, form)).cast("string" if form == "text" else "binary")


def encoded_key(frame: DataFrame, names: Sequence[str]) -> Column:
    """The key: one column of a simple type as text, anything else as JSON."""
    from pyspark.sql import functions as F

    kind = frame.select(*names).schema[0].dataType.typeName() if len(names) == 1 else "struct"
    if kind not in ("struct", "array", "map"):
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
    encoders: list[Any] = []

    def encode(rows: Any) -> Any:
        import pyarrow as pa

        if not encoders:
            encoders.append(chosen.encoder(fields))
        return encoders[0].encode(pa.RecordBatch.from_struct_array(rows))

    encode.__annotations__ = {}
    return F.arrow_udf(encode, "binary")(F.struct(*columns))
