"""Decoding with Spark's own functions: where no Python runs (real-time mode), and where a source asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.connectors.stream import Messages
from millrace.errors import InvalidDefinition
from millrace.formats.base import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt_record"
_ROW = "_row"


def decoded_on_the_jvm(reader: Messages, raw: DataFrame) -> DataFrame:
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
    frame, bad = parsed(reader, raw)
    return unpacked(_kept(frame, bad, reader), reader)


def parsed(reader: Messages, raw: DataFrame) -> tuple[DataFrame, Column]:
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


def unpacked(frame: DataFrame, reader: Messages) -> DataFrame:
    """The columns of what was `parsed`."""
    from pyspark.sql import functions as F

    names = reader.declared.names if reader.declared else ()
    own = [F.col(f"{_ROW}.`{name}`").alias(name) for name in names]
    return frame.select(*own, *(_carried(name, reader) for name in reader.included))


def _options(reader: Messages) -> dict[str, str]:
    """The format's own options, in Spark's words."""
    chosen = reader.bytes_format
    words = {"separator": "sep", "quote": "quote", "null": "nullValue"}
    return {spark: str(getattr(chosen, name)) for name, spark in words.items() if hasattr(chosen, name)}


def _format(reader: Messages) -> str:
    return FORMATS.name_of(type(reader.bytes_format))


def _kept(frame: DataFrame, bad: Column, reader: Messages) -> DataFrame:
    from pyspark.sql import functions as F

    bad = F.coalesce(bad, F.lit(True))
    if reader.when_bad != "fail":
        return frame.filter(~bad)
    told = F.raise_error(
        F.concat(F.lit("a record cannot be decoded: "), F.coalesce(F.col("value").cast("string"), F.lit("null")))
    )
    return frame.filter(F.when(bad, told.cast("boolean")).otherwise(F.lit(True)))


def _carried(name: str, reader: Messages) -> Column:
    from pyspark.sql import functions as F

    column = F.col(name)
    return column.cast("string").alias(name) if name == "key" and reader.decoding != "whole" else column
