"""Spark's rate source: rows at an even pace, for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millrace.connectors.base.api import RunContext, Source
from millrace.pipeline.schema import Schema, parse_schema
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class RateSource(Source):
    """Rows of timestamp and value at a constant rate."""

    continuous: ClassVar[bool] = True

    rows: int = option(1, "Rows a second.", argument=True, least=1)
    partitions: int | None = option(None, "Number of partitions.")
    per_batch: bool = option(False, "Count rows for each batch instead of each second.")

    def columns(self) -> Schema | None:
        return parse_schema("timestamp timestamp, value bigint")

    def load(self, context: RunContext) -> DataFrame:
        kind, counted = ("rate-micro-batch", "rowsPerBatch") if self.per_batch else ("rate", "rowsPerSecond")
        reader = context.spark.readStream.format(kind).option(counted, self.rows)
        if self.partitions:
            reader = reader.option("numPartitions", self.partitions)
        return reader.load()
