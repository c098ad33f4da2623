"""Bytes become rows inside Spark's Python workers.

Decoding with Spark's own functions: where no Python runs (real-time mode), and where a source asks for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.connectors.base.api import MessageSource, RunContext
from millrace.dead_letters.letter import DeadLetter
from millrace.engine.queries.bad_records import BadRecordPolicy, DeadLetterFilter, letters_of, to_error_column
from millrace.errors import InvalidDefinition
from millrace.errors.transport import to_transport
from millrace.formats.base import FORMATS, Decoder, Format
from millrace.pipeline.schema import Field, Schema, Simple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt_record"
_ROW = "_row"


def decoded_on_the_jvm(reader: MessageSource, raw: DataFrame) -> DataFrame:
    """Good rows; a bad one ends the query, or is left out: to bury it takes Python, so another query does."""
    from pyspark.sql import functions as F

    columns = reader.columns()
    if columns is None:
        return raw
    text = F.col("value").cast("string")
    if reader.decoding == "whole":
        return raw.select(*columns.names)
    if reader.decoding == "sift":
        return _kept(raw.withColumn("value", text), ~F.is_valid_utf8(text), reader).select(
            *(_carried(name, reader) for name in columns.names)
        )
    frame, bad = parsed_by_spark(reader, raw)
    return unpacked_columns(_kept(frame, bad, reader), reader)


def parsed_by_spark(reader: MessageSource, raw: DataFrame) -> tuple[DataFrame, Column]:
    """The rows with what from_json or from_csv makes of them beside it, for `unpacked`; and whether that is bad."""
    from pyspark.sql import functions as F

    declared = reader.declared
    if declared is None or _format(reader) not in ("json", "csv"):
        raise InvalidDefinition(f"{_format(reader)} cannot be decoded in this mode", hint="use another trigger")
    decode = F.from_json if _format(reader) == "json" else F.from_csv
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_options(reader)}
    row = decode(F.col("value").cast("string"), f"{declared.nullable().ddl()}, {_CORRUPT} string", options)
    bad: Column = F.col(f"{_ROW}.{_CORRUPT}").isNotNull() | F.col(_ROW).isNull()
    for field in declared.fields:
        if not field.nullable:
            bad = bad | F.col(f"{_ROW}.`{field.name}`").isNull()
    return raw.withColumn(_ROW, row), F.coalesce(bad, F.lit(True))


def unpacked_columns(frame: DataFrame, reader: MessageSource) -> DataFrame:
    """The columns of what was `parsed`."""
    from pyspark.sql import functions as F

    names = reader.declared.names if reader.declared else ()
    own = [F.col(f"{_ROW}.`{name}`").alias(name) for name in names]
    return frame.select(*own, *(_carried(name, reader) for name in reader.included))


def _options(reader: MessageSource) -> dict[str, str]:
    """The format's own options, in Spark's words."""
    chosen = reader.bytes_format
    words = {"separator": "sep", "quote": "quote", "null": "nullValue"}
    return {spark: str(getattr(chosen, name)) for name, spark in words.items() if hasattr(chosen, name)}


def _format(reader: MessageSource) -> str:
    return FORMATS.name_of(type(reader.bytes_format))


def _kept(frame: DataFrame, bad: Column, reader: MessageSource) -> DataFrame:
    from pyspark.sql import functions as F

    bad = F.coalesce(bad, F.lit(True))
    if reader.when_bad != "fail":
        return frame.filter(~bad)
    told = F.raise_error(
        F.concat(F.lit("a record cannot be decoded: "), F.coalesce(F.col("value").cast("string"), F.lit("null")))
    )
    return frame.filter(F.when(bad, told.cast("boolean")).otherwise(F.lit(True)))


def _carried(name: str, reader: MessageSource) -> Column:
    from pyspark.sql import functions as F

    column = F.col(name)
    return column.cast("string").alias(name) if name == "key" and reader.decoding != "whole" else column


_LETTER = "_millrace_letter"
"""The column that tells of a bad message, on its way to be buried: a name that no schema has."""


@dataclass(frozen=True)
class Decoding:
    """What decodes in a worker, by mapInArrow or where messages are read: raw messages in, good rows out."""

    format: Format
    schema: Schema | None
    included: tuple[str, ...]
    columns: Schema
    bad: BadRecordPolicy

    @property
    def needs(self) -> tuple[str, ...]:
        """The bytes, and what stays beside their columns."""
        return ("value", *self.included)

    @property
    def placeless(self) -> bool:
        """Whether the place of a record is nobody's business: it need not travel, a quarter of what decoding costs."""
        return self.bad.when == "drop"

    @property
    def ddl(self) -> str:
        """The decoded columns, then the included ones."""
        return self.columns.nullable().ddl()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batch by batch."""
        burying = self.bad.open()
        decoder = self.format.decoder(self.schema)
        try:
            for batch in batches:
                rows, letters = self.split_bad(batch, decoder)
                burying.add(letters)
                yield rows
            burying.close()
        except GeneratorExit:
            burying.close()  # nobody wants more rows, as after a LIMIT: what was found bad so far still counts
            raise
        except BaseException as error:
            burying.abandon()
            raise to_transport(error) from error

    def split_bad(self, batch: pa.RecordBatch, decoder: Decoder) -> tuple[pa.RecordBatch, list[DeadLetter]]:
        """The rows of good messages, and what there is to tell of the bad ones."""
        import pyarrow as pa

        decoded = decoder.decode(batch.column("value"))
        letters: list[DeadLetter] = []
        if decoded.bad:
            indices = [bad.index for bad in decoded.bad]
            letters = letters_of(batch.take(pa.array(indices)), [bad.reason for bad in decoded.bad], self.bad)
        kept = batch if decoded.good is None else batch.take(decoded.good)
        names = [*decoded.rows.schema.names, *self.included]
        columns = [*self._as_declared(decoded.rows), *(self._carried(kept, name) for name in self.included)]
        return pa.RecordBatch.from_arrays(columns, names=names), letters

    def _as_declared(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Columns of the types that Spark was told: there fields of structs may be null, though the schema says no."""
        from millrace.formats.arrow_types import arrow_type

        kinds = {field.name: arrow_type(field.type) for field in self.columns.nullable().fields}
        pairs = [(column, kinds[name]) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
        return [column if column.type == kind else column.cast(kind) for column, kind in pairs]

    def _carried(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        column = batch.column(name)
        return (
            text_of(column) if name == "key" and Field("key", Simple("binary")) not in self.columns.fields else column
        )


@dataclass(frozen=True)
class DecodingWithErrors:
    """Decodes where messages are read: bad ones are rows as well, described in a column of their own.

    They are buried a step later: nobody hears from a worker that reads how many there were.
    """

    decoding: Decoding
    needs: tuple[str, ...]
    """All that tells a message's place."""

    @property
    def ddl(self) -> str:
        """The columns, and what is told of a bad message: null in good rows."""
        return f"{self.decoding.ddl}, {_LETTER} string"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batch by batch."""
        decoder = self.decoding.format.decoder(self.decoding.schema)
        for batch in batches:
            yield _with_letters(*self.decoding.split_bad(batch, decoder))


def _with_letters(rows: pa.RecordBatch, letters: Sequence[DeadLetter]) -> pa.RecordBatch:
    """Good rows, and after them a row of nulls for each letter."""
    import pyarrow as pa

    columns, told = rows.columns, pa.nulls(rows.num_rows, pa.string())
    if letters:
        columns = [pa.concat_arrays([one, pa.nulls(len(letters), one.type)]) for one in columns]
        told = pa.concat_arrays([told, pa.array(map(to_error_column, letters), pa.string())])
    return pa.RecordBatch.from_arrays([*columns, told], names=[*rows.schema.names, _LETTER])


def text_of(column: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 is shown by replacement characters."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        return column.cast(pa.string())
    texts = [None if one is None else one.decode("utf-8", "replace") for one in column.to_pylist()]
    return pa.array(texts, pa.string())


def read_rows(reader: MessageSource, site: RunContext, bad: BadRecordPolicy) -> DataFrame:
    """A source's rows, decoded as they are read where the source can do that."""
    decoding = _decoding(reader, bad)
    with_errors = DecodingWithErrors(decoding, ("value", *reader.carried)) if decoding else None
    rows, decoded = reader.opened(site, with_errors)
    return _without_letters(rows, bad) if decoded else good_rows(reader, rows, bad)


def good_rows(reader: MessageSource, raw: DataFrame, bad: BadRecordPolicy) -> DataFrame:
    """What a source's rows are once they are decoded."""
    columns = reader.columns()
    if columns is None:
        return raw
    if decoding := _decoding(reader, bad):
        return _mapped(raw, decoding)
    if reader.decoding == "sift":
        return _sifted(reader, *reader.sift(raw), bad).selectExpr(*_selected(columns, raw))
    if reader.decoding == "spark":
        return unpacked_columns(_sifted(reader, *_reasoned(reader, raw), bad), reader)
    return raw.selectExpr(*_selected(columns, raw))


def _decoding(reader: MessageSource, bad: BadRecordPolicy) -> Decoding | None:
    columns = reader.columns()
    if columns is None or reader.decoding != "arrow":
        return None
    return Decoding(reader.bytes_format, reader.declared, reader.included, columns, bad)


def _mapped(raw: DataFrame, decoding: Decoding) -> DataFrame:
    """Headers travel as JSON: a list of structs in each row makes the way there ten times longer."""
    from pyspark.sql import functions as F

    columns = decoding.columns.nullable()
    raw = raw.select(*decoding.needs) if decoding.placeless else raw
    if "headers" not in raw.columns:
        return raw.mapInArrow(decoding, columns.ddl())
    told = dict(raw.dtypes)["headers"]
    travelling = [Field("headers", Simple("string")) if one.name == "headers" else one for one in columns.fields]
    mapped = raw.withColumn("headers", F.to_json("headers")).mapInArrow(decoding, Schema(tuple(travelling)).ddl())
    return mapped.withColumn("headers", F.from_json("headers", told)) if "headers" in columns.names else mapped


def _selected(columns: Schema, raw: DataFrame) -> list[str]:
    kinds = dict(raw.dtypes)
    return [
        f"cast(`{field.name}` as string) `{field.name}`"
        if kinds.get(field.name) == "binary" and field.type == Simple("string")
        else f"`{field.name}`"
        for field in columns.fields
    ]


def _reasoned(reader: MessageSource, raw: DataFrame) -> tuple[DataFrame, Column]:
    """What Spark's own functions read, as `Messages.sift` tells it."""
    from pyspark.sql import functions as F

    frame, bad = parsed_by_spark(reader, raw)
    return frame.withColumn("_bytes", F.col("value")), F.when(bad, F.lit("Spark cannot read it as the schema says"))


def _sifted(reader: MessageSource, frame: DataFrame, reason: Column, bad: BadRecordPolicy) -> DataFrame:
    from pyspark.sql import functions as F

    if bad.when == "drop" or (bad.when == "dead_letter" and bad.burial is None):
        return frame.filter(reason.isNull())
    # One column of text, which is null in good rows, is all that travels to Python.
    place = [_told(name) for name in reader.carried if name in frame.columns and name != "modified"]
    letter = F.to_json(F.struct(reason.alias("reason"), F.col("_bytes").alias("value"), *place))
    return _without_letters(frame.withColumn(_LETTER, F.when(reason.isNotNull(), letter)), bad)


def _without_letters(frame: DataFrame, bad: BadRecordPolicy) -> DataFrame:
    """The good rows of a frame; the others are buried."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import ArrowUDFType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would rather read type hints, and ours name what workers import late
        keep = F.arrow_udf(DeadLetterFilter(bad), "boolean", ArrowUDFType.SCALAR_ITER).asNondeterministic()
    return frame.filter(keep(_LETTER)).drop(_LETTER)


def _told(name: str) -> Column:
    from pyspark.sql import functions as F

    if name == "headers":
        return F.to_json(name).alias(name)
    return F.unix_millis(name).alias(name) if name == "timestamp" else F.col(name)
