"""The tables of a query over the rows of a test.

- `MemorySource` holds the messages of all sources in one stream in memory, so that a step is one batch.
- `FedTables` builds a query's tables on that stream; messages are decoded as in any run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import MessageSource, Source
from millrace.connectors.base.registry import source_of
from millrace.connectors.files import FilesSource
from millrace.dead_letters.writer import FolderDeadLetterTarget
from millrace.engine.failures.explain import explained
from millrace.engine.queries.bad_records import BadRecordPolicy
from millrace.engine.queries.builder import QueryBuilder, QueryTables, with_watermark
from millrace.engine.queries.decoding import good_rows
from millrace.errors import InvalidTest
from millrace.pipeline.model import SourceDef, TableDef, Watermark
from millrace.pipeline.plan import Query
from millrace.testing.input_rows import Message, has_typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TICK = "_millrace_tick"


class MemorySource:
    """The schema and the stream of the messages of all sources of a test."""

    def __init__(self, spark: SparkSession, carried: Mapping[str, str]) -> None:
        self.spark = spark
        fields = {"source": "string", "value": "binary", "tick": "timestamp", **carried}
        self._ddl = ", ".join(f"`{name}` {kind}" for name, kind in fields.items())

    @cached_property
    def schema(self) -> StructType:
        """Return the columns as Spark's type."""
        from pyspark.sql.types import StructType

        return StructType.fromDDL(self._ddl)

    def frame(self, messages: Sequence[Message]) -> DataFrame:
        """Return messages as a DataFrame."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        table = pa.Table.from_pylist(list(messages), schema=to_arrow_schema(self.schema, timezone="UTC"))
        return self.spark.createDataFrame(table, self.schema)

    def rows(self, messages: Sequence[Message]) -> Any:
        """Return messages as rows in the JVM, to be added to the stream of each query."""
        jvm: Any = self.spark._jvm
        return jvm.scala.jdk.javaapi.CollectionConverters.asScala(self.frame(messages)._jdf.collectAsList()).toSeq()

    def stream(self) -> Any:
        """Return a new MemoryStream of Spark, which keeps rows until the batch with them is committed."""
        jvm, session = self.spark._jvm, self.spark._jsparkSession
        encoder = jvm.org.apache.spark.sql.Encoders.row(session.parseDataType(self.schema.json()))
        return jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream.apply(session, encoder)


class FedTables(QueryTables):
    """The tables of one query, whose sources are replaced by the test's rows."""

    def __init__(
        self, builder: QueryBuilder, query: Query, stream: Any, static: Mapping[str, DataFrame], ticking: bool
    ):
        super().__init__(builder, query)
        self._stream, self._static, self._ticking = stream, static, ticking

    def _read(self, source: SourceDef) -> DataFrame:
        with explained(source.place):
            reader = source_of(source)
            if source.static and source.name not in self._static:
                if isinstance(reader, FilesSource):
                    return super()._read(source)
                raise InvalidTest(f"the static source {source.name!r} has no rows", hint="give them in the first step")
            raw = self._static[source.name] if source.static else self._messages_of(source.name)
            return self._watermarked(self._decoded_rows(source, reader, raw), source.name, source.watermark)

    def _decoded_rows(self, source: SourceDef, reader: Source, raw: DataFrame) -> DataFrame:
        context = replace(self._builder.context, name=source.name, static=source.static)
        reader = reader.resolved(context)
        loaded = _loaded(reader, raw)
        if not isinstance(reader, MessageSource):
            return loaded
        target = None
        if reader.when_bad == "dead_letter":
            target = FolderDeadLetterTarget(context.state / "dead" / source.name, context.pipeline, source.name)
        bad = BadRecordPolicy(reader.when_bad, target, context.pipeline, source.name, static=source.static)
        return good_rows(reader, loaded, bad, self._event_times(reader, context))

    def _made(self, table: TableDef) -> DataFrame:
        return self._watermarked(super()._made(replace(table, watermark=None)), table.name, table.watermark)

    def _messages_of(self, name: str) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        return DataFrame(self._stream.toDF(), self._builder.spark).filter(F.col("source") == F.lit(name))

    def _watermarked(self, frame: DataFrame, name: str, watermark: Watermark | None) -> DataFrame:
        """Add a watermark that ticks of the test can move; ticks are filtered out after it."""
        if watermark is None or not self._ticking:
            return with_watermark(frame, watermark)
        from pyspark.sql import functions as F

        columns = [
            F.col("tick").cast(field.dataType).alias(field.name)
            if field.name.lower() == watermark.column.lower()
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in frame.schema
        ]
        ticks = self._messages_of(tick_of(name)).select(*columns, F.lit(True).alias(_TICK))
        both = with_watermark(frame.withColumn(_TICK, F.lit(False)).unionByName(ticks), watermark)
        # The condition is nondeterministic for Spark, else it would push the filter below the watermark. Not rand():
        # Spark knows that it is never below 0, and removes such a comparison.
        return both.filter(F.when(F.spark_partition_id() < 0, True).otherwise(~F.col(_TICK))).drop(_TICK)


def tick_of(name: str) -> str:
    """Return the name of the ticks that move a watermark; no source has a space in its name."""
    return f"watermark {name}"


def _loaded(reader: Source, raw: DataFrame) -> DataFrame:
    """Return the columns that a source would load, from messages."""
    from pyspark.sql import functions as F

    carried = [name for name in (reader.carried if isinstance(reader, MessageSource) else {}) if name in raw.columns]
    if has_typed_rows(reader):
        columns = reader.columns()
        if columns is None:
            raise InvalidTest("the columns of a source must be known", hint="give it a schema")
        fields = (field.ddl() for field in columns.fields if field.name not in carried)
        ddl = ", ".join(fields).replace(" NOT NULL", "")
        read = F.from_json(F.col("value").cast("string"), ddl, {"mode": "FAILFAST"})
    elif isinstance(reader, FilesSource) and reader.format == "csv":
        corrupt = "_corrupt_record"
        options = {"sep": reader.separator, "columnNameOfCorruptRecord": corrupt, "mode": "PERMISSIVE"}
        read = F.from_csv(F.col("value").cast("string"), f"{reader.schema}, {corrupt} string", options)
    else:
        return raw.select("value", *carried)
    return raw.select(read.alias("read"), *carried).select("read.*", *carried)
