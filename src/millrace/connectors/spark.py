"""Any source or sink that Spark knows by a format's name, with its own options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.connectors.base.api import RunContext, Sink, Source
from millrace.pipeline.secret import Secret
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True)
class SparkSource(Source):
    """A format of Spark's or of a jar that was added; static: true reads it whole, as jdbc."""

    reads_whole: ClassVar[bool] = True

    format: str = option(help="The format's name, as jdbc or delta.", argument=True)
    schema: str | None = option(None, "The columns, in Spark's DDL.")
    more: Mapping[str, Any] = option(help="The format's own options.", rest=True)

    def resources(self) -> tuple[str, ...]:
        return _place(self.format, self.more)

    def load(self, context: RunContext) -> DataFrame:
        reader = (context.spark.read if context.static else context.spark.readStream).format(self.format)
        if self.schema:
            reader = reader.schema(self.schema)
        return reader.options(**self.more).load()


@dataclass(frozen=True, kw_only=True)
class SparkSink(Sink):
    """A format of Spark's or of a jar that was added."""

    delivery_guarantee: ClassVar[str] = "that of the format"
    midway: ClassVar[bool] = False  # some can, and nobody tells which

    format: str = option(help="The format's name, as delta or noop.", argument=True)
    more: Mapping[str, Any] = option(help="The format's own options.", rest=True)

    def resources(self, table: str) -> tuple[str, ...]:
        del table
        return _place(self.format, self.more)

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        del batch, context
        frame.write.format(self.format).options(**self.more).mode("append").save()

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        del context
        return rows.format(self.format).options(**self.more)


def _place(name: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    values = [options[key] for key in ("path", "table", "dbtable", "topic", "subscribe") if key in options]
    shown = ["***" if isinstance(value, Secret) else str(value) for value in values]
    return (f"{name} {' '.join(shown)}",) if shown else ()
