"""Message bytes become rows.

- `read_rows` reads a source and decodes it: where messages are read, where the source can do that, else after it.
- `Decoding` runs the format in Spark's Python workers; `DecodingWithErrors` leaves bad messages in a column.
- `decode_in_jvm` uses Spark's own functions: where no Python runs (real-time mode).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType

from millrace.connectors.base.api import MessageSource, RunContext
from millrace.dead_letters.letter import DeadLetter
from millrace.engine.queries.bad_records import BadRecordPolicy, DeadLetterFilter, to_dead_letters, to_error_column
from millrace.engine.queries.late_records import EventTimeCounter, Spans, add_spans, spans_text
from millrace.errors import InvalidDefinition
from millrace.formats.arrow_types import arrow_type
from millrace.formats.base import FORMATS, Decoder, Format
from millrace.pipeline.schema import Field, Schema, Simple

_CORRUPT = "_corrupt_record"
_ROW = "_row"
_LETTER = "_millrace_letter"
"""The column that describes a bad message until it is written as a dead letter: a name that no schema has."""
_SPARK_OPTIONS = {"separator": "sep", "quote": "quote", "null": "nullValue"}
"""Options of formats, and Spark's names of them."""
_UNREADABLE = "Spark cannot read it as the schema says"


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches; a worker that runs this has imported what decoding needs, because it is sent by its name."""
    return batches


def decode_in_jvm(reader: MessageSource, raw: DataFrame) -> DataFrame:
    """Return the good rows; a bad one ends the query or is left out, and another query writes its dead letter."""
    columns = reader.columns()
    if columns is None:
        return raw
    text = F.col("value").cast("string")
    if reader.decoding == "whole":
        return raw.select(*columns.names)
    if reader.decoding == "sift":
        kept = _kept(raw.withColumn("value", text), ~F.is_valid_utf8(text), reader)
        return kept.select(*(_carried(name, reader) for name in columns.names))
    frame, bad = parsed_by_spark(reader, raw)
    return unpacked_columns(_kept(frame, bad, reader), reader)


def parsed_by_spark(reader: MessageSource, raw: DataFrame) -> tuple[DataFrame, Column]:
    """Return the rows with what from_json or from_csv makes of them, for `unpacked_columns`, and whether it is bad."""
    declared, format_name = reader.declared, FORMATS.name_of(type(reader.bytes_format))
    if declared is None or format_name not in ("json", "csv"):
        raise InvalidDefinition(f"{format_name} cannot be decoded in this mode", hint="use another trigger")
    decode = F.from_json if format_name == "json" else F.from_csv
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    options |= {
        option: str(getattr(reader.bytes_format, name))
        for name, option in _SPARK_OPTIONS.items()
        if hasattr(reader.bytes_format, name)
    }
    row = decode(F.col("value").cast("string"), f"{declared.nullable().ddl()}, {_CORRUPT} string", options)
    bad: Column = F.col(f"{_ROW}.{_CORRUPT}").isNotNull() | F.col(_ROW).isNull()
    for field in declared.fields:
        if not field.nullable:
            bad = bad | F.col(f"{_ROW}.`{field.name}`").isNull()
    return raw.withColumn(_ROW, row), F.coalesce(bad, F.lit(True))


def unpacked_columns(frame: DataFrame, reader: MessageSource) -> DataFrame:
    """Return the columns of what was parsed by `parsed_by_spark`."""
    names = reader.declared.names if reader.declared else ()
    own = [F.col(f"{_ROW}.`{name}`").alias(name) for name in names]
    return frame.select(*own, *(_carried(name, reader) for name in reader.included))


def _kept(frame: DataFrame, bad: Column, reader: MessageSource) -> DataFrame:
    bad = F.coalesce(bad, F.lit(True))
    if reader.when_bad != "fail":
        return frame.filter(~bad)
    value = F.coalesce(F.col("value").cast("string"), F.lit("null"))
    failure = F.raise_error(F.concat(F.lit("a record cannot be decoded: "), value))
    return frame.filter(F.when(bad, failure.cast("boolean")).otherwise(F.lit(True)))


def _carried(name: str, reader: MessageSource) -> Column:
    column = F.col(name)
    return column.cast("string").alias(name) if name == "key" and reader.decoding != "whole" else column


@dataclass(frozen=True)
class Decoding:
    """Decodes in a worker, by mapInArrow: messages in, good rows out; bad ones go to a handler."""

    format: Format
    schema: Schema | None
    included: tuple[str, ...]
    columns: Schema
    policy: BadRecordPolicy
    times: EventTimeCounter | None = None
    """Counts the records by event time; None where the query has no watermark on a column of them."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("value", *self.included)

    @property
    def ddl(self) -> str:
        return self.columns.nullable().ddl()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = self.format.decoder(self.schema)
        spans: Spans = {}
        with self.policy.open() as handler:
            for batch in batches:
                rows, letters = self.split_bad(batch, decoder)
                handler.add(letters)
                if self.times:
                    add_spans(spans, self.times.spans(rows))
                yield rows
        if self.times:
            self.times.report(spans)

    def split_bad(self, batch: pa.RecordBatch, decoder: Decoder) -> tuple[pa.RecordBatch, list[DeadLetter]]:
        """Return the rows of good messages, and the dead letters of bad ones."""
        decoded = decoder.decode(batch.column("value"))
        letters: list[DeadLetter] = []
        if decoded.bad:
            rows = batch.take(pa.array([bad.index for bad in decoded.bad]))
            letters = to_dead_letters(rows, [bad.reason for bad in decoded.bad], self.policy)
        kept = batch if decoded.good is None else batch.take(decoded.good)
        names = [*decoded.rows.schema.names, *self.included]
        columns = [*self._as_declared(decoded.rows), *(self._carried(kept, name) for name in self.included)]
        return pa.RecordBatch.from_arrays(columns, names=names), letters

    def _as_declared(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return columns of the types that Spark expects: it allows nulls in structs where the schema does not."""
        kinds = {field.name: arrow_type(field.type) for field in self.columns.nullable().fields}
        pairs = [(column, kinds[name]) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
        return [column if column.type == kind else column.cast(kind) for column, kind in pairs]

    def _carried(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        as_text = name == "key" and Field("key", Simple("binary")) not in self.columns.fields
        return text_of(batch.column(name)) if as_text else batch.column(name)


@dataclass(frozen=True)
class DecodingWithErrors:
    """Decodes where messages are read: a bad message is a row as well, described in a column of its own.

    `DeadLetterFilter` handles it a step later: Spark gives a worker that reads no accumulator to count it. In the same
    column the first good row of each block carries how many rows there are by event time.
    """

    decoding: Decoding
    needs: tuple[str, ...]
    """The bytes, and all that describes where a message comes from."""

    @property
    def ddl(self) -> str:
        """The columns, and the description of a bad message: null in good rows."""
        return f"{self.decoding.ddl}, {_LETTER} string"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = self.decoding.format.decoder(self.decoding.schema)
        for batch in batches:
            rows, letters = self.decoding.split_bad(batch, decoder)
            spans = self.decoding.times.spans(rows) if self.decoding.times else {}
            yield _with_letters(rows, letters, spans_text(spans) if spans else None)


def _with_letters(rows: pa.RecordBatch, letters: Sequence[DeadLetter], first: str | None) -> pa.RecordBatch:
    """Return the good rows, the first with a text of its own, and after them a row of nulls for each letter."""
    columns, errors = rows.columns, pa.nulls(rows.num_rows, pa.string())
    if first is not None:
        errors = pa.concat_arrays([pa.array([first], pa.string()), errors[1:]])
    if letters:
        columns = [pa.concat_arrays([column, pa.nulls(len(letters), column.type)]) for column in columns]
        errors = pa.concat_arrays([errors, pa.array(map(to_error_column, letters), pa.string())])
    return pa.RecordBatch.from_arrays([*columns, errors], names=[*rows.schema.names, _LETTER])


def text_of(column: pa.Array) -> pa.Array:
    """Return bytes as text, with replacement characters for what is not UTF-8."""
    with suppress(pa.ArrowInvalid):
        return column.cast(pa.string())
    texts = [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def read_rows(
    reader: MessageSource, context: RunContext, policy: BadRecordPolicy, times: EventTimeCounter | None = None
) -> DataFrame:
    """Return a source's good rows, decoded where they are read if the source can do that."""
    decoding = _decoding(reader, policy, times)
    with_errors = DecodingWithErrors(decoding, ("value", *reader.carried)) if decoding else None
    rows, decoded = reader.opened(context, with_errors)
    return _without_letters(rows, policy, times) if decoded else good_rows(reader, rows, policy, times)


def good_rows(
    reader: MessageSource, raw: DataFrame, policy: BadRecordPolicy, times: EventTimeCounter | None = None
) -> DataFrame:
    """Return the good rows of a source, decoded after they were read."""
    columns = reader.columns()
    if columns is None:
        return raw
    if decoding := _decoding(reader, policy, times):
        return _mapped(raw, decoding)
    if reader.decoding == "sift":
        return _without_bad(reader, *reader.sift(raw), policy).selectExpr(*_selected(columns, raw))
    if reader.decoding == "spark":
        frame, bad = parsed_by_spark(reader, raw)
        frame = frame.withColumn("_bytes", F.col("value"))
        return unpacked_columns(_without_bad(reader, frame, F.when(bad, F.lit(_UNREADABLE)), policy), reader)
    return raw.selectExpr(*_selected(columns, raw))


def _decoding(reader: MessageSource, policy: BadRecordPolicy, times: EventTimeCounter | None) -> Decoding | None:
    columns = reader.columns()
    if columns is None or reader.decoding != "arrow":
        return None
    return Decoding(reader.bytes_format, reader.declared, reader.included, columns, policy, times)


def _mapped(raw: DataFrame, decoding: Decoding) -> DataFrame:
    """Decode in mapInArrow. Headers pass as JSON: a list of structs in each row takes ten times longer."""
    columns = decoding.columns.nullable()
    # The origin of a record goes to Python only if it is wanted: it is a quarter of what decoding costs.
    raw = raw.select(*decoding.needs) if decoding.policy.on_bad == "drop" else raw
    if "headers" not in raw.columns:
        return raw.mapInArrow(decoding, columns.ddl())
    header_type = dict(raw.dtypes)["headers"]
    fields = [Field("headers", Simple("string")) if field.name == "headers" else field for field in columns.fields]
    mapped = raw.withColumn("headers", F.to_json("headers")).mapInArrow(decoding, Schema(tuple(fields)).ddl())
    return mapped.withColumn("headers", F.from_json("headers", header_type)) if "headers" in columns.names else mapped


def _selected(columns: Schema, raw: DataFrame) -> list[str]:
    binary = {name for name, kind in raw.dtypes if kind == "binary"}
    as_text = {field.name for field in columns.fields if field.name in binary and field.type == Simple("string")}
    return [f"cast(`{name}` as string) `{name}`" if name in as_text else f"`{name}`" for name in columns.names]


def _without_bad(reader: MessageSource, frame: DataFrame, reason: Column, policy: BadRecordPolicy) -> DataFrame:
    """Return the rows without a reason; the others become dead letters."""
    if policy.on_bad == "drop" or (policy.on_bad == "dead_letter" and policy.target is None):
        return frame.filter(reason.isNull())
    # Only one column of text, which is null in good rows, goes to Python.
    origin = [_origin_column(name) for name in reader.carried if name in frame.columns and name != "modified"]
    letter = F.to_json(F.struct(reason.alias("reason"), F.col("_bytes").alias("value"), *origin))
    return _without_letters(frame.withColumn(_LETTER, F.when(reason.isNotNull(), letter)), policy)


def _without_letters(frame: DataFrame, policy: BadRecordPolicy, times: EventTimeCounter | None = None) -> DataFrame:
    """Return the good rows of a frame; the policy handles the others.

    The filter is marked as non-deterministic: else Spark would put a filter of the user's before it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would rather read type hints, and ours name what workers import late
        of = DeadLetterFilter(policy, times)
        keep = F.arrow_udf(of, "boolean", ArrowUDFType.SCALAR_ITER).asNondeterministic()
    return frame.filter(keep(_LETTER)).drop(_LETTER)


def _origin_column(name: str) -> Column:
    if name == "headers":
        return F.to_json(name).alias(name)
    return F.unix_millis(name).alias(name) if name == "timestamp" else F.col(name)
