"""Cassandra: tables as a source of rows and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.clients.cassandra import Cassandra
from millrace.connectors.base.api import RunContext, Sink, Source, retry_timeout_option
from millrace.connectors.base.batch_tasks import QUERY_ID, TaskPlan
from millrace.connectors.base.message_source import bad_schema
from millrace.connectors.cassandra.sink import INSERT_RESULT, Insertion, WriteTimestamps
from millrace.connectors.cassandra.table import (
    TABLE_NAME,
    CassandraTable,
    TableDesign,
    look_up,
    make_like,
    require_table,
)
from millrace.connectors.cassandra.types import has_cassandra_type
from millrace.errors import InvalidDefinition, InvalidTable, did_you_mean
from millrace.errors.transport import errors_in_transport
from millrace.pipeline.connector_facts import OptionMistake
from millrace.pipeline.schema import Schema, parse_schema
from millrace.plugins import option
from millrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

_LEVELS = ("any", "one", "two", "three", "quorum", "all", "local_quorum", "each_quorum", "local_one")
_MAX_TTL_S = 20 * 365 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class CassandraSource(Source):
    """A table of Cassandra as it is now: read by token ranges, or only the partitions that filters name."""

    streams: ClassVar[bool] = False
    reads_whole: ClassVar[bool] = True

    table: str = option(help="keyspace.table", argument=True)
    only: tuple[str, ...] = option((), "Only these columns.", shown_default="all")
    schema: str | None = option(None, "The columns, in Spark's DDL, for check.", shown_default="the table's own")
    on_bad: str = option(
        "null", "What becomes of a value that Spark cannot hold, as the year 20000.", choices=("null", "fail")
    )
    parts: int | None = option(None, "Number of tasks that read the table.", least=1, shown_default="two a core")
    consistency: str = option("local_quorum", "How many replicas must answer.", choices=_LEVELS[1:])

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from _bad_name(self.table)
        yield from bad_schema(self.schema)

    def columns(self) -> Schema | None:
        return None if self.schema is None else parse_schema(self.schema)

    def resources(self) -> tuple[str, ...]:
        return (f"table {self.table}",)

    def prepare(self, context: RunContext) -> None:
        self._wanted(require_table(context.cassandra(), self.table))

    def load(self, context: RunContext) -> DataFrame:
        return self.rows(context.spark, context.cassandra())

    def rows(self, spark: SparkSession, door: Cassandra) -> DataFrame:
        """The same for those who have a session and no pipeline."""
        from millrace.connectors.cassandra.source import PUSH_DOWN, TableQuery, TokenRangeRead, table_source

        table = require_table(door, self.table)
        parts = self.parts or 2 * spark.sparkContext.defaultParallelism
        question = TableQuery(table, self._wanted(table))
        kind = table_source(TokenRangeRead(door, question, parts, self.on_bad, self.consistency.upper()))
        spark.conf.set(PUSH_DOWN, "true")
        spark.dataSource.register(kind)
        return spark.read.format(kind.name()).load()

    def _wanted(self, table: CassandraTable) -> tuple[str, ...]:
        wanted = []
        for name in self.only or (parse_schema(self.schema).names if self.schema else table.columns):
            column = table.column(name)
            if column is None:
                hint = did_you_mean(name, list(table.columns))
                raise InvalidTable(f"table {self.table} has no column {name!r}", hint=hint)
            wanted.append(column)
        return tuple(wanted)


def read_table(spark: SparkSession, name: str, door: Cassandra, *columns: str) -> DataFrame:
    """A table (keyspace.table) as a DataFrame, for programs of your own; filters on its key are served by Cassandra."""
    return CassandraSource(table=name, only=columns).rows(spark, door)


@dataclass(frozen=True, kw_only=True)
class CassandraSink(Sink):
    """A table of Cassandra, written by its primary key: a row that is there already is replaced."""

    delivery_guarantee: ClassVar[str] = (
        "exactly once by key: a batch that is run again writes the same rows with the same timestamps, "
        "and never over those of a later batch"
    )

    table: str = option(help="keyspace.table", argument=True)
    create: bool = option(False, "Make the keyspace and the table if they are missing; then key is needed.")
    key: tuple[str, ...] = option(
        (), "The columns of the partition key.", shown_default="the table's own", columns=True
    )
    clustering: tuple[str, ...] = option((), "The clustering columns, in order; `time desc` for the newest first.")
    replication: int | Mapping[str, Any] | None = option(
        None,
        "Copies of a keyspace that is made: a number, or {datacenter: number}.",
        shown_default="3, or as many as there are nodes",
    )
    ttl: float | None = option(
        None, "Cassandra forgets a row so long after it was written.", parse=parse_duration, shown_default="never"
    )
    nulls: str = option("keep", "What a null does to a value that is there.", choices=("keep", "erase"))
    consistency: str = option("local_quorum", "How many replicas must have a row.", choices=_LEVELS)
    in_flight: int = option(64, "Maximum number of concurrent requests of each task.", least=1)
    retry_timeout: float = retry_timeout_option(
        "How long writes are repeated while Cassandra is away, before a batch fails."
    )

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from _bad_name(self.table)
        if self.create and not self.key:
            hint = "name the columns of the partition key, as key: application"
            yield OptionMistake("option.missing", "cassandra needs a key to create a table", "create", hint)
        if self.clustering and not self.key:
            message = "clustering needs key as well: the partition key comes first"
            yield OptionMistake("option.missing", message, "clustering")
        for column in self.clustering:
            name, *order = column.split()
            if len(order) > 1 or (order and order[0].lower() not in ("asc", "desc")):
                message = f"{column!r} is no clustering column"
                yield OptionMistake("option.invalid", message, "clustering", "write time desc")
            if name in self.key:
                yield OptionMistake("option.invalid", f"{name!r} is in key and in clustering", "clustering")
        if self.ttl is not None and not 1 <= self.ttl <= _MAX_TTL_S:
            yield OptionMistake("option.invalid", "ttl must be from 1s to 20 years", "ttl")
        if self.replication is not None and not self.create:
            message = "replication is for keyspaces that are made: say create: true"
            yield OptionMistake("option.invalid", message, "replication")

    def resources(self, table: str) -> tuple[str, ...]:
        del table
        return (f"table {self.table}",)

    def prepare(self, context: RunContext) -> None:
        """Make the keyspace, or find the table; what the table lacks is seen when its columns are known."""
        door = context.cassandra()
        if self.create:
            self._design.make_keyspace(door)
        table = look_up(door, self.table) if self.create else require_table(door, self.table)
        if table is not None and self.key:
            self._design.require_same_key(table)

    def in_generation(self, number: int) -> Mapping[str, Any]:
        return {"table": f"{self.table}_g{number}"}

    def is_there(self, context: RunContext) -> bool:
        return look_up(context.cassandra(), self.table) is not None

    def prepare_like(self, other: Sink, context: RunContext) -> None:
        """Make the table with the columns, the key and the settings of another; what the sink makes itself is left."""
        if isinstance(other, CassandraSink) and not self.create and not self.is_there(context):
            make_like(context.cassandra(), other.table, self.table)

    def shape(self, frame: DataFrame) -> DataFrame:
        """What Cassandra has no type for becomes text: structs (and what holds them) as JSON."""
        from pyspark.sql import functions as F

        names = [name.lower() for name in frame.columns]
        for name in self._design.key:
            if name.lower() not in names:
                what = f"there is no column {name!r} for the key of {self.table}"
                raise InvalidDefinition(what, hint=did_you_mean(name, frame.columns))
        shaped = []
        for field in frame.schema.fields:
            column = F.col(f"`{field.name}`")
            if not has_cassandra_type(field.dataType):
                nested = field.dataType.typeName() in ("struct", "array", "map", "variant")
                column = (F.to_json(column) if nested else column.cast("string")).alias(field.name)
            shaped.append(column)
        return frame.select(*shaped)

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        """Batch by batch; what does not fit is reported before the first one."""
        self._fitted(rows._df.schema, context)
        return super().stream(rows, context)

    @errors_in_transport()
    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        table = self._fitted(frame.schema, context)
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        times = WriteTimestamps(times_path(context, self.table), str(query or ""))
        work = Insertion(
            context.cassandra(),
            table,
            table.require(frame.schema),
            times.of(batch),
            None if self.ttl is None else round(self.ttl),
            self.consistency.upper(),
            self.in_flight,
            self.retry_timeout,
            self.nulls == "erase",
        )
        counts = [row.rows for row in TaskPlan.of(frame.mapInArrow(work, INSERT_RESULT), context.task_inputs).run()]
        times.used(batch, max(counts, default=0) * len(counts))

    def _fitted(self, rows: StructType, context: RunContext) -> CassandraTable:
        """The table, made if that is asked for, after a look at whether rows of a schema fit."""
        door = context.cassandra()
        table = self._design.make(door, rows) if self.create else require_table(door, self.table)
        if self.key and not self.create:
            self._design.require_same_key(table)
        table.require(rows)
        return table

    @property
    def _design(self) -> TableDesign:
        columns = (column.split() for column in self.clustering)
        clustering = tuple((name, (order[0] if order else "asc").upper()) for name, *order in columns)
        return TableDesign(self.table, self.key, clustering, self.replication)


def times_path(context: RunContext, table: str) -> Path:
    """Return the file that holds when each batch was first written to a table."""
    return context.state / "cassandra" / f"{context.query or context.name}@{table}.json"


def _bad_name(name: str) -> Iterator[OptionMistake]:
    if not TABLE_NAME.fullmatch(name):
        hint = "write keyspace.table, each of letters, digits and '_', at most 48 of them"
        yield OptionMistake("option.invalid", f"there can be no table named {name!r}", None, hint)
