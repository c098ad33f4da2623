"""Messages whose bytes have a format.

- `DecodedSource`: the options of a source of messages: format, schema, what happens to bad ones.
- `PartitionedSource`: one whose messages are in partitions, so that batches are cut by event time.
- `bad_schema`, `bad_start`, `data_loss_option`: what options of several sources have in common.
- `encoded_value`, `avro_encoded_value` and `encoded_key`: rows as message bytes.
- `data_source`: a source of ours in Spark's Python Data Source API.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import SOURCES, MessageSource
from millrace.connectors.base.registry import build
from millrace.errors import InputError, InvalidDefinition, InvalidOption, did_you_mean
from millrace.formats.base import FORMATS, Format
from millrace.pipeline.connector_facts import OptionMistake, RecordForm
from millrace.pipeline.schema import Schema, Simple, parse_schema
from millrace.plugins import option
from millrace.units import parse_duration, parse_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from millrace.connectors.base.batch_alignment import EventTime
    from millrace.formats.avro import Avro
    from millrace.pipeline.analysis.pipeline import SourceWatermark

ARRIVAL = "arrival"
"""The times that a system gives records, where batches are cut by these."""
TIMESTAMPS = (Simple("timestamp"), Simple("timestamp_ntz"))
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
        kinds = self.carried if self.format == "raw" else {**self.carried, "key": "string"}
        carried = [parse_schema(f"`{name}` {kinds[name]}").fields[0] for name in self.included]
        return Schema((*self._decoded().fields, *carried))

    def record_form(self) -> RecordForm:
        return RecordForm(self.format, beside=self.included)

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
                hint = f"it has: {', '.join(self.carried) or 'nothing'}"
                yield OptionMistake("option.invalid", f"there is no {name!r} to include", "include", hint)
            elif name.lower() in names:
                yield OptionMistake("option.invalid", f"the schema has a column {name!r} already", "include")

    def _format_mistakes(self) -> Iterator[OptionMistake]:
        try:
            kind = FORMATS.load(self.format)
        except InputError as error:
            yield OptionMistake("option.invalid", error.message, "format", error.hint)
            return
        mistakes: list[OptionMistake] = []
        format_ = build(kind, self.more, f"{SOURCES.name_of(type(self))} in {self.format}", mistakes)
        for mistake in mistakes:
            yield self._of_source(mistake, kind) if mistake.condition == "option.unknown" else mistake
        if format_ is None:
            return
        if self.schema:
            yield from bad_schema(self.schema)
        elif format_.needs_schema:
            try:
                format_.columns(None)  # a format may know its columns by itself, as Avro does
            except InputError as error:
                hint = error.hint or "add schema: id string, at timestamp, …; millrace schema TOPIC proposes one"
                yield OptionMistake("schema.missing", f"{self.format} needs a schema", None, hint, error.why)

    def _of_source(self, mistake: OptionMistake, kind: type[Format]) -> OptionMistake:
        """An option that neither the format nor the source has: it may have been meant for either."""
        own = [field.name for field in dataclasses.fields(self) if field.init and not field.metadata.get("rest")]
        names = [*own, *(field.name for field in dataclasses.fields(kind) if field.init)]  # type: ignore[arg-type]
        return dataclasses.replace(mistake, hint=did_you_mean(mistake.option or "", names))


@dataclass(frozen=True, kw_only=True)
class PartitionedSource(DecodedSource):
    """The options of a source that has several partitions, each with an order of its own."""

    alignment: str = option(
        "event_time",
        "By what a batch of a backlog is cut across partitions, if the query has a watermark: the event times of its "
        "records, the times that the system gave them (arrival), or off: each partition gives its share.",
        choices=("event_time", ARRIVAL, "off"),
    )
    idle_after: float = option(
        60.0,
        "Records of a backlog wait for older ones of other partitions that are there already, or arrive within this "
        "time; for later ones only while event time moves there as fast as the clock.",
        parse=parse_duration,
        shown_default="1m",
    )

    def time_columns(self) -> tuple[str, ...]:
        """Return the columns of the records that may have their event time."""
        return tuple(field.name for field in self._decoded().fields if field.type in TIMESTAMPS)

    def event_time_column(self, watermark: SourceWatermark | None) -> str:
        """Return the column with the event time; empty if it is not among those of the records."""
        if watermark is None or self.alignment != "event_time":
            return ""
        return next((name for name in self.time_columns() if name.lower() == watermark.column.lower()), "")

    def aligned_by(self, watermark: SourceWatermark | None) -> str:
        """Return by what batches are cut across partitions, in words; empty if by nothing."""
        if watermark is None or self.alignment == "off":
            return ""
        return self.event_time_column(watermark) or ARRIVAL

    def event_time(self, watermark: SourceWatermark | None) -> EventTime | None:
        """Return by what batches are cut across partitions; None if by nothing."""
        from millrace.connectors.base.batch_alignment import EventTime

        if watermark is None or not (what := self.aligned_by(watermark)):
            return None
        event_time = EventTime(what, round(watermark.delay_s * 1_000_000), self.idle_after)
        column = self.event_time_column(watermark)
        if not column:
            return event_time
        schema = self._decoded()
        if self.bytes_format.reads_by_name:
            schema = Schema(tuple(field for field in schema.fields if field.name == column))
        return dataclasses.replace(event_time, format=self.bytes_format, schema=schema.nullable(), column=column)


def bad_schema(schema: str | None) -> Iterator[OptionMistake]:
    """Yield a mistake if a schema is given and does not parse."""
    if schema is None:
        return
    try:
        parse_schema(schema)
    except InputError as error:
        yield OptionMistake(error.condition, f"the schema: {error.message}", "schema", error.hint, error.why)


def bad_start(connector: str, start: str, hint: str) -> Iterator[OptionMistake]:
    """Yield a mistake if a start is neither `earliest` nor `latest` nor a time."""
    if start not in ("earliest", "latest"):
        try:
            parse_time(start)
        except InvalidOption:
            yield OptionMistake("option.invalid", f"{connector} cannot start at {start!r}", "start", hint)


def data_loss_option() -> Any:
    """Return the option that says what happens when records are deleted before they were read."""
    return option(
        "fail",
        "When records are deleted before they were read.",
        choices=("fail", "continue"),
        aliases=("lost",),
        value_aliases={"go_on": "continue"},
    )


def encoded_value(columns: Sequence[str], form: str) -> Column:
    """The value of each record, in a format that Spark writes itself."""
    from pyspark.sql import functions as F

    if form == "json":
        return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    if form == "csv":
        return F.to_csv(F.struct(*columns))
    if "value" not in columns and len(columns) != 1:
        raise InvalidDefinition(
            f"{form} writes one column, and there are {len(columns)}: {', '.join(columns)}",
            hint="name it with value: COLUMN",
        )
    name = "value" if "value" in columns else columns[0]
    return F.col(name).cast("string" if form == "text" else "binary")


def encoded_key(frame: DataFrame, names: Sequence[str]) -> Column:
    """The key: one column of a simple type as text, anything else as JSON."""
    from pyspark.sql import functions as F

    kind = frame.select(*names).schema[0].dataType.typeName() if len(names) == 1 else "struct"
    if kind not in ("struct", "array", "map"):
        return F.col(names[0]) if kind == "binary" else F.col(names[0]).cast("string")
    return F.to_json(F.struct(*names)) if len(names) > 1 else F.to_json(names[0])


def avro_encoded_value(frame: DataFrame, columns: Sequence[str], avro: Avro) -> Column:
    """The value of each record, in Avro."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = to_arrow_schema(frame.select(*columns).schema, timezone="UTC")
    encoders: list[Any] = []

    def encode(rows: Any) -> Any:
        import pyarrow as pa

        if not encoders:
            encoders.append(avro.encoder(fields))
        return encoders[0].encode(pa.RecordBatch.from_struct_array(rows))

    encode.__annotations__ = {}
    return F.arrow_udf(encode, "binary")(F.struct(*columns))


def data_source(
    own_name: str, ddl: str, make_reader: Callable[[StructType], DataSourceReader | DataSourceStreamReader]
) -> type[DataSource]:
    """Return a data source. It is a class of its own: options would be shown in Spark's plans and logs."""

    from pyspark.sql.datasource import DataSource

    class OwnDataSource(DataSource):  # type: ignore[misc]  # pyspark's types are not read
        @classmethod
        def name(cls) -> str:
            return own_name

        def schema(self) -> str:
            return ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            return make_reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return make_reader(schema)

    return OwnDataSource
