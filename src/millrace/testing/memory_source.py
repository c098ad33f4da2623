"""A query's tables over what a test gives: messages come from a stream in memory, and are decoded as in any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import MessageSource, Source
from millrace.connectors.base.registry import reader_of
from millrace.connectors.files import FilesSource
from millrace.dead_letters.writer import FolderDeadLetterTarget
from millrace.engine.failures.explain import explain
from millrace.engine.queries.bad_records import BadRecordPolicy
from millrace.engine.queries.builder import QueryBuilder, QueryTables, with_watermark
from millrace.engine.queries.decoding import good_rows
from millrace.errors import InvalidTest, MillraceError
from millrace.pipeline.model import SourceDef, TableDef, Watermark
from millrace.pipeline.plan import Query
from millrace.testing.input_rows import Message, has_typed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TICK = "_millrace_tick"


class MemorySource:
    """The one form in which all messages of a test travel into Spark: every source's, so that a step is one batch."""

    def __init__(self, spark: SparkSession, carried: Mapping[str, str]) -> None:
        self.spark = spark
        fields = {"source": "string", "value": "binary", "tick": "timestamp", **carried}
        self._ddl = ", ".join(f"`{name}` {kind}" for name, kind in fields.items())

    @cached_property
    def schema(self) -> StructType:
        """The columns, for Spark."""
        from pyspark.sql.types import StructType

        return StructType.fromDDL(self._ddl)

    def frame(self, messages: Sequence[Message]) -> DataFrame:
        """Messages as a table."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        table = pa.Table.from_pylist(list(messages), schema=to_arrow_schema(self.schema, timezone="UTC"))
        return self.spark.createDataFrame(table, self.schema)

    def rows(self, messages: Sequence[Message]) -> Any:
        """Messages as rows in the JVM, which every query of a test is given."""
        jvm: Any = self.spark._jvm
        return jvm.scala.jdk.javaapi.CollectionConverters.asScala(self.frame(messages)._jdf.collectAsList()).toSeq()

    def stream(self) -> Any:
        """A new stream in memory: Spark's own, which keeps what was added until a batch with it has counted."""
        jvm, session = self.spark._jvm, self.spark._jsparkSession
        encoder = jvm.org.apache.spark.sql.Encoders.row(session.parseDataType(self.schema.json()))
        return jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream.apply(session, encoder)


class FedTables(QueryTables):
    """The tables of one query, whose sources give what the test gives."""

    def __init__(
        self, builder: QueryBuilder, query: Query, stream: Any, static: Mapping[str, DataFrame], ticking: bool
    ):
        super().__init__(builder, query)
        self._stream, self._static, self._ticking = stream, static, ticking

    def _read(self, source: SourceDef) -> DataFrame:
        try:
            reader = reader_of(source)
            if source.static and source.name not in self._static:
                return self._as_it_is(source, reader)
            raw = self._static[source.name] if source.static else self._of(source.name)
            return self._marked(self._good(source, reader, raw), source.name, source.watermark)
        except MillraceError as error:
            error.place = error.place or source.place
            raise
        except Exception as error:
            raise explain(error, place=source.place) from error

    def _as_it_is(self, source: SourceDef, reader: Source) -> DataFrame:
        if isinstance(reader, FilesSource):
            return super()._read(source)
        raise InvalidTest(f"the static source {source.name!r} has no rows", hint="give them in the first step")

    def _good(self, source: SourceDef, reader: Source, raw: DataFrame) -> DataFrame:
        site = self._builder.site(source.name, static=source.static)
        reader = reader.resolved(site)
        shaped = _undecoded(reader, raw)
        if not isinstance(reader, MessageSource):
            return shaped
        burial = FolderDeadLetterTarget(site.state / "dead" / source.name, site.pipeline, source.name)
        when = reader.when_bad
        bad = BadRecordPolicy(
            when, burial if when == "dead_letter" else None, site.pipeline, source.name, static=source.static
        )
        return good_rows(reader, shaped, bad)

    def _made(self, table: TableDef) -> DataFrame:
        return self._marked(super()._made(replace(table, watermark=None)), table.name, table.watermark)

    def _of(self, name: str) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        return DataFrame(self._stream.toDF(), self._builder.spark).filter(F.col("source") == F.lit(name))

    def _marked(self, frame: DataFrame, name: str, watermark: Watermark | None) -> DataFrame:
        """With its watermark, which rows of the test's own may move: they are seen by it, and by nobody after it."""
        if watermark is None or not self._ticking:
            return with_watermark(frame, watermark)
        from pyspark.sql import functions as F

        moved = [
            F.col("tick").cast(field.dataType).alias(field.name)
            if field.name.lower() == watermark.column.lower()
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in frame.schema
        ]
        ticks = self._of(tick_of(name)).select(*moved, F.lit(True).alias(_TICK))
        both = with_watermark(frame.withColumn(_TICK, F.lit(False)).unionByName(ticks), watermark)
        # By chance, as far as Spark knows, and in one piece: else it would put the filter before the watermark. Not by
        # rand(): Spark knows that it is never below 0, and leaves such a comparison out.
        return both.filter(F.when(F.spark_partition_id() < 0, True).otherwise(~F.col(_TICK))).drop(_TICK)


def tick_of(name: str) -> str:
    """The name under which a watermark is moved; no source has a space in its name."""
    return f"watermark {name}"


def _undecoded(reader: Source, raw: DataFrame) -> DataFrame:
    """What a source loads, made from messages."""
    from pyspark.sql import functions as F

    carried = [name for name in (reader.carried if isinstance(reader, MessageSource) else {}) if name in raw.columns]
    if has_typed_rows(reader):
        columns = reader.columns()
        if columns is None:
            raise InvalidTest("the columns of a source must be known", hint="give it a schema")
        own = [one for one in columns.fields if one.name not in carried]
        ddl = ", ".join(one.ddl() for one in own).replace(" NOT NULL", "")
        read = F.from_json(F.col("value").cast("string"), ddl, {"mode": "FAILFAST"})
        return raw.select(read.alias("read"), *carried).select("read.*", *carried)
    if isinstance(reader, FilesSource) and reader.format == "csv":
        corrupt = "_corrupt_record"
        options = {"sep": reader.separator, "columnNameOfCorruptRecord": corrupt, "mode": "PERMISSIVE"}
        read = F.from_csv(F.col("value").cast("string"), f"{reader.schema}, {corrupt} string", options)
        return raw.select(read.alias("read"), *carried).select("read.*", *carried)
    return raw.select("value", *carried)
