"""Compares the outputs of two generations.

- `compare_generations` compares every output: topics with SQLite on disk, folders and tables with Spark.
- `compare_topics` compares the latest value of each key, or every record, of two topics.
- `coverage_differences` lists partitions that the generations have not read equally far.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import Message

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import committed_records
from millrace.connectors.base.api import RunContext, Sink
from millrace.connectors.base.registry import sink_of
from millrace.connectors.cassandra import CassandraSink, CassandraSource
from millrace.connectors.files import FilesSink
from millrace.connectors.kafka.sink import KafkaSink
from millrace.engine.checkpoints.query_history import read_offsets
from millrace.engine.failures.explain import explained
from millrace.engine.replay.generations import pipeline_of, state_of
from millrace.engine.replay.selection import sink_target_name, sinks_of
from millrace.errors import InvalidReplay
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import make_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_SHOWN = 10
"""The number of differences that are shown."""
_MAX_SHOWN_VALUE_BYTES = 200
_NULL = b"\0"
_LATEST_COLUMNS = ("digest", "value", "place", "at")


@dataclass(frozen=True)
class Difference:
    """A key with different values; None if a generation does not have it."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two generations of an output."""

    name: str
    how: str
    """What was compared."""
    old: tuple[int, int]
    """The number of rows (records) and of keys."""
    new: tuple[int, int]
    only_old: int = 0
    only_new: int = 0
    differing: int = 0
    """Keys that both have, with different values."""
    sample: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        return not (self.only_old or self.only_new or self.differing)


def compare_topics(
    cluster: Cluster,
    old: str,
    new: str,
    *,
    newest: bool,
    json: bool,
    on_records: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """Compare the committed records of two topics.

    `newest`: compare the latest value of each key, as in a compacted topic; else every record, in any order. Records
    without a key are compared as a whole. `json`: the order of fields does not matter.
    """
    how = "the latest value of each key" if newest else "every record, in any order"
    row = partial(_row, newest=newest, json=json)
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "compared")) as base:
        base.execute("PRAGMA journal_mode = OFF")
        base.execute("PRAGMA synchronous = OFF")
        rows = [_load(base, cluster, table, topic, row, on_records) for table, topic in (("a", old), ("b", new))]
        return _compare_tables(base, old, how, rows)


_Row = tuple[bytes, bytes, bytes, bytes | None, int, int]


def _load(
    base: sqlite3.Connection,
    cluster: Cluster,
    table: str,
    topic: str,
    row: Callable[[Message], _Row],
    on_records: Callable[[int], None],
) -> int:
    """Load a topic into a table: by key the digest of its latest value, or by key and value the number of records."""
    base.execute(
        f"CREATE TABLE {table} (key BLOB, mark BLOB, digest BLOB, n INT, value BLOB, place INT, at INT, "
        "PRIMARY KEY (key, mark)) WITHOUT ROWID"
    )
    # Partitions are read in no fixed order: if a key is in two of them, the later timestamp wins.
    newer = "excluded.place = place OR excluded.at >= at"
    updates = (f"{name} = CASE WHEN {newer} THEN excluded.{name} ELSE {name} END" for name in _LATEST_COLUMNS)
    add = (
        f"INSERT INTO {table} VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT (key, mark) DO UPDATE SET "  # noqa: S608 - a or b
        f"n = n + 1, {', '.join(updates)}"
    )
    count = 0
    for batch in committed_records(cluster, [topic]):
        base.executemany(add, map(row, batch))
        count += len(batch)
        on_records(len(batch))
    return count


def _row(message: Message, *, newest: bool, json: bool) -> _Row:
    key, value = message.key(), message.value()
    normalized = _NULL if value is None else value
    if json and value is not None:
        with suppress(ValueError):
            normalized = orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)
    digest = blake2b(normalized, digest_size=16).digest()
    # A missing key differs from an empty one.
    stored_key = b"" if key is None else b"=" + key
    mark, stored_digest = (b"", digest) if newest and key is not None else (digest, b"")
    shown = None if value is None else value[:_MAX_SHOWN_VALUE_BYTES]
    return stored_key, mark, stored_digest, shown, message.partition() or 0, message.timestamp()[1]


def _compare_tables(base: sqlite3.Connection, name: str, how: str, rows: list[int]) -> Comparison:
    one_sided = "SELECT {0}.key, {0}.value FROM {0} LEFT JOIN {1} USING (key, mark) WHERE {1}.key IS NULL"
    both = (
        "SELECT a.key, a.value, b.value, a.n, b.n FROM a JOIN b USING (key, mark) "
        "WHERE a.digest <> b.digest OR (a.mark <> x'' AND a.n <> b.n)"
    )
    only_old, only_new = one_sided.format("a", "b"), one_sided.format("b", "a")

    def first(query: str) -> sqlite3.Cursor:
        return base.execute(f"{query} LIMIT {MAX_SHOWN}")

    def count(query: str) -> int:
        return int(base.execute(f"SELECT count(*) FROM ({query})").fetchone()[0])  # noqa: S608 - our own

    sample = [_difference(key, old, new, times) for key, old, new, *times in first(both)]
    sample += [Difference(_text(key), _text(value), None) for key, value in first(only_old)]
    sample += [Difference(_text(key), None, _text(value)) for key, value in first(only_new)]
    keys = [count(f"SELECT DISTINCT key, CASE WHEN key = x'' THEN mark END FROM {table}") for table in ("a", "b")]  # noqa: S608
    old, new = zip(rows, keys, strict=True)
    counts = count(only_old), count(only_new), count(both)
    return Comparison(name, how, old, new, *counts, tuple(sample[:MAX_SHOWN]))


def _difference(key: bytes, old: bytes | None, new: bytes | None, times: list[int]) -> Difference:
    if old == new and times[0] != times[1]:
        return Difference(_text(key), f"{times[0]} × {_text(old)}", f"{times[1]} × {_text(new)}")
    return Difference(_text(key), _text(old), _text(new))


def _text(content: bytes | None) -> str:
    return "null" if content is None else content.removeprefix(b"=").decode("utf-8", "backslashreplace")


_EMPTY_FOLDER = ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")
"""Spark's conditions for a folder that has no files, or does not exist."""


@dataclass(frozen=True)
class PartitionCoverage:
    """The offsets up to which two generations have read a partition."""

    query: str
    partition: str
    old: int
    new: int


def coverage_differences(
    pipeline: PipelineDef, base: Path, numbers: tuple[int, int], left_out: tuple[str, ...] = ()
) -> list[PartitionCoverage]:
    """Return the partitions that were not read equally far: then some differences do not come from the code."""
    differences = []
    with_generations = _with_generations_only(pipeline, left_out)
    # The name of a query without batches contains that of its topic, so it differs between generations.
    old, new = (make_plan(pipeline_of(with_generations, number)).queries for number in numbers)
    for before, query in zip(old, new, strict=True):
        old_read = read_offsets(state_of(base, numbers[0]), before.name)
        new_read = read_offsets(state_of(base, numbers[1]), query.name)
        for topic, number in sorted(old_read.keys() | new_read.keys()):
            offsets = old_read.get((topic, number), 0), new_read.get((topic, number), 0)
            if offsets[0] != offsets[1]:
                differences.append(PartitionCoverage(query.name, f"{topic}[{number}]", *offsets))
    return differences


def _with_generations_only(pipeline: PipelineDef, left_out: tuple[str, ...]) -> PipelineDef:
    """Return the pipeline with only the sinks that can have generations."""
    return replace(pipeline, sinks=tuple(sinks_of(pipeline, left_out)), panels=())


def compare_generations(
    pipeline: PipelineDef,
    numbers: tuple[int, int],
    left_out: tuple[str, ...],
    context: RunContext,
    spark: Callable[[], SparkSession],
    on_records: Callable[[int], None] = lambda _: None,
) -> Iterator[Comparison]:
    """Yield the comparison of every output of two generations, the older one first."""
    with_generations = _with_generations_only(pipeline, left_out)
    old_pipeline, new_pipeline = (pipeline_of(with_generations, number) for number in numbers)
    for sink, before, after in zip(with_generations.sinks, old_pipeline.sinks, new_pipeline.sinks, strict=True):
        old, new = sink_of(before), sink_of(after)
        name = f"{sink.connection.connector} {sink_target_name(sink)}"
        if isinstance(old, KafkaSink) and isinstance(new, KafkaSink):
            newest = sink.mode != "append" and bool(old.key)
            comparison = compare_topics(
                context.cluster(), old.topic, new.topic, newest=newest, json=new.format == "json", on_records=on_records
            )
        else:
            with explained():
                comparison = _compare_by_spark(name, old, new, context, spark())
        yield replace(comparison, name=name)


def _compare_by_spark(name: str, old: Sink, new: Sink, context: RunContext, spark: SparkSession) -> Comparison:
    if isinstance(old, FilesSink) and isinstance(new, FilesSink):
        return _compare_folders(name, _read_folder(spark, old), _read_folder(spark, new))
    if isinstance(old, CassandraSink) and isinstance(new, CassandraSink):
        from millrace.connectors.cassandra.table import require_table

        cassandra = context.cassandra()
        key = require_table(cassandra, old.table).key
        before, after = (CassandraSource(table=sink.table).rows(spark, cassandra) for sink in (old, new))
        return _compare_frames(name, before, after, key)
    raise InvalidReplay(f"{name} cannot be compared")


def _read_folder(spark: SparkSession, writer: FilesSink) -> DataFrame | None:
    """Return the rows of a folder; None if nothing was ever written to it."""
    from pyspark.errors import AnalysisException

    reader = spark.read.format(writer.format).option("header", writer.header)
    try:
        return reader.load(writer.path)
    except AnalysisException as error:
        if error.getCondition() in _EMPTY_FOLDER:
            return None
        raise


def _compare_folders(name: str, old: DataFrame | None, new: DataFrame | None) -> Comparison:
    """Compare two folders; one without files has no columns, and counts as one without rows."""
    if old is None and new is None:
        return Comparison(name, "neither has a row", (0, 0), (0, 0))
    existing: Any = new if old is None else old
    empty = existing.limit(0)
    return _compare_frames(name, empty if old is None else old, empty if new is None else new, ())


def _compare_frames(name: str, old: DataFrame, new: DataFrame, key: tuple[str, ...]) -> Comparison:
    """Compare rows by their key, or as a whole by their number."""
    from pyspark.sql import functions as F

    shared = [column for column in old.columns if column in new.columns]
    others = sorted(set(old.columns) ^ set(new.columns))
    how = f"rows by {', '.join(key)}" if key else "whole rows, in any order"
    how += f", without the columns that only one has ({', '.join(others)})" if others else ""
    old_rows, new_rows = _rows(old, shared, key, "old"), _rows(new, shared, key, "new")
    joined = old_rows.join(new_rows, "key", "full_outer")
    differences = joined.where(~F.col("old").eqNullSafe(F.col("new")) | ~F.col("old_n").eqNullSafe(F.col("new_n")))
    counts: Any = differences.select(
        F.count_if(F.col("new").isNull()), F.count_if(F.col("old").isNull()), F.count(F.lit(1))
    ).first()
    only_old, only_new, total = map(int, counts)
    sample = tuple(
        Difference(row.key, _shown(row.old, row.old_n), _shown(row.new, row.new_n))
        for row in differences.orderBy("key").limit(MAX_SHOWN).collect()
    )
    totals = (old.count(), old_rows.count()), (new.count(), new_rows.count())
    return Comparison(name, how, *totals, only_old, only_new, total - only_old - only_new, sample)


def _rows(frame: DataFrame, columns: list[str], key: tuple[str, ...], side: str) -> DataFrame:
    """Return the rows of one side as text, by key, with their number."""
    from pyspark.sql import functions as F

    row = F.to_json(F.struct(*(F.col(f"`{name}`") for name in columns)))
    named = F.to_json(F.struct(*(F.col(f"`{name}`") for name in key))) if key else row
    grouped = frame.select(named.alias("key"), row.alias(side)).groupBy("key")
    return grouped.agg(F.max(side).alias(side), F.count(F.lit(1)).alias(f"{side}_n"))


def _shown(row: str | None, times: int | None) -> str | None:
    return f"{times} × {row}" if row is not None and times is not None and times > 1 else row
