"""Generations compared: topics by what they hold, folders and tables by Spark.

Two topics compared: the newest value of each key, or every record, in a file on disk rather than in memory.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import Message

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import committed_records
from millrace.connectors.base.api import RunContext, Sink
from millrace.connectors.base.registry import writer_of
from millrace.connectors.cassandra import CassandraSink, CassandraSource
from millrace.connectors.files import FilesSink
from millrace.connectors.kafka.sink import KafkaSink
from millrace.engine.checkpoints.query_history import position
from millrace.engine.failures.explain import explain
from millrace.engine.replay.generations import pipeline_of, state_of
from millrace.engine.replay.selection import sink_target_name, sinks_of
from millrace.errors import InvalidReplay, MillraceError
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import make_plan
from millrace.telemetry.progress import offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 10
"""Differences that are shown."""
_KEPT = 200
"""Bytes of a value that are kept to be shown."""
_NULL = b"\0"
_OF_A_RECORD = ("digest", "value", "place", "at")


@dataclass(frozen=True)
class Difference:
    """A key that the two do not have alike; None is what one of them does not have."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Comparison:
    """Two generations of one output."""

    name: str
    how: str
    """What was held against what."""
    old: tuple[int, int]
    """Rows (records), and keys among them."""
    new: tuple[int, int]
    only_old: int = 0
    only_new: int = 0
    differing: int = 0
    """Keys that both have, with something else."""
    sample: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.only_old or self.only_new or self.differing)


def compare_topics(
    cluster: Cluster, old: str, new: str, *, newest: bool, json: bool, told: Callable[[int], None] = lambda _: None
) -> Comparison:
    """Compare what two topics hold now, committed records only.

    `newest`: a key stands for one thing, whose newest value counts, as in a compacted topic; else every record counts,
    in whatever order. Records without a key are compared whole. `json`: the order of fields does not matter.
    """
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(Path(folder) / "compared")
        try:
            base.execute("PRAGMA journal_mode = OFF")
            base.execute("PRAGMA synchronous = OFF")
            rows = [_load(base, cluster, *one, newest=newest, json=json, told=told) for one in (("a", old), ("b", new))]
            how = "the newest value of each key" if newest else "every record, in whatever order"
            return _compare_tables(base, old, how, rows)
        finally:
            base.close()


def _load(
    base: sqlite3.Connection,
    cluster: Cluster,
    table: str,
    topic: str,
    *,
    newest: bool,
    json: bool,
    told: Callable[[int], None],
) -> int:
    """Put a topic into a table: by key the digest of its newest value, or by key and value how often it is there."""
    base.execute(
        f"CREATE TABLE {table} (key BLOB, mark BLOB, digest BLOB, n INT, value BLOB, place INT, at INT, "
        "PRIMARY KEY (key, mark)) WITHOUT ROWID"
    )
    # Partitions come in no order among each other: of two in which a key is, the later time counts.
    newer = "excluded.place = place OR excluded.at >= at"
    taken = (f"{one} = CASE WHEN {newer} THEN excluded.{one} ELSE {one} END" for one in _OF_A_RECORD)
    add = (
        f"INSERT INTO {table} VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT (key, mark) DO UPDATE SET "  # noqa: S608 - a or b
        f"n = n + 1, {', '.join(taken)}"
    )
    count = 0
    for batch in committed_records(cluster, [topic]):
        base.executemany(add, (_row(message, newest=newest, json=json) for message in batch))
        count += len(batch)
        told(len(batch))
    return count


def _row(message: Message, *, newest: bool, json: bool) -> tuple[bytes, bytes, bytes, bytes | None, int, int]:
    key, value = message.key(), message.value()
    digest = blake2b(_NULL if value is None else _normalized(value, json=json), digest_size=16).digest()
    shown = None if value is None else value[:_KEPT]
    own = b"" if key is None else b"=" + _bytes(key)  # no key is not an empty key
    when = (message.partition() or 0, message.timestamp()[1])
    return (own, b"", digest, shown, *when) if newest and key is not None else (own, digest, b"", shown, *when)


def _normalized(value: bytes, *, json: bool) -> bytes:
    if json:
        try:
            return orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)
        except ValueError:
            return value
    return value


def _compare_tables(base: sqlite3.Connection, name: str, how: str, rows: list[int]) -> Comparison:
    one_sided = "SELECT {0}.key, {0}.value FROM {0} LEFT JOIN {1} USING (key, mark) WHERE {1}.key IS NULL"
    both = (
        "SELECT a.key, a.value, b.value, a.n, b.n FROM a JOIN b USING (key, mark) "
        "WHERE a.digest <> b.digest OR (a.mark <> x'' AND a.n <> b.n)"
    )
    only_old, only_new = one_sided.format("a", "b"), one_sided.format("b", "a")
    sample = [_difference(key, old, new, times) for key, old, new, *times in base.execute(f"{both} LIMIT {SHOWN}")]
    sample += [Difference(_text(key), _text(value), None) for key, value in base.execute(f"{only_old} LIMIT {SHOWN}")]
    sample += [Difference(_text(key), None, _text(value)) for key, value in base.execute(f"{only_new} LIMIT {SHOWN}")]

    def count(query: str) -> int:
        return int(base.execute(f"SELECT count(*) FROM ({query})").fetchone()[0])  # noqa: S608 - our own

    keys = [count(f"SELECT DISTINCT key, CASE WHEN key = x'' THEN mark END FROM {table}") for table in ("a", "b")]  # noqa: S608
    return Comparison(
        name,
        how,
        (rows[0], keys[0]),
        (rows[1], keys[1]),
        count(only_old),
        count(only_new),
        count(both),
        tuple(sample[:SHOWN]),
    )


def _difference(key: bytes, old: bytes | None, new: bytes | None, times: list[int]) -> Difference:
    if old == new and times[0] != times[1]:
        return Difference(_text(key), f"{times[0]} × {_text(old)}", f"{times[1]} × {_text(new)}")
    return Difference(_text(key), _text(old), _text(new))


def _text(content: bytes | None) -> str:
    return "null" if content is None else content.removeprefix(b"=").decode("utf-8", "backslashreplace")


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


_NOTHING = ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")
"""What Spark says of a folder that has no files, or is not there."""


@dataclass(frozen=True)
class PartitionCoverage:
    """What two generations have read of one partition."""

    query: str
    place: str
    old: int
    new: int


def unequal(
    pipeline: PipelineDef, base: Path, numbers: tuple[int, int], left_out: tuple[str, ...] = ()
) -> list[PartitionCoverage]:
    """Where two generations have not read equally much; then not all that differs comes from the code."""
    found = []
    with_generations = _with_generations_only(pipeline, left_out)
    # The name of a query without batches has that of its topic in it, so it has another one in each generation.
    old, new = (make_plan(pipeline_of(with_generations, number)).queries for number in numbers)
    for before, query in zip(old, new, strict=True):
        names = (before.name, query.name)
        read = [_read(state_of(base, number), name) for number, name in zip(numbers, names, strict=True)]
        for place in sorted(read[0].keys() | read[1].keys()):
            at = [one.get(place, 0) for one in read]
            if at[0] != at[1]:
                found.append(PartitionCoverage(query.name, place, *at))
    return found


def _with_generations_only(pipeline: PipelineDef, left_out: tuple[str, ...]) -> PipelineDef:
    """The pipeline with the sinks only that can have generations."""
    return replace(pipeline, sinks=tuple(sinks_of(pipeline, left_out)), panels=())


def _read(state: Path, query: str) -> dict[str, int]:
    """How far a query has read, by partition."""
    at = position(state, query)
    return {
        f"{topic}[{number}]": offset
        for source in (at.offsets if at else ())
        for (topic, number), offset in offsets_in(source).items()
    }


def comparisons(
    pipeline: PipelineDef,
    numbers: tuple[int, int],
    left_out: tuple[str, ...],
    context: RunContext,
    spark: Callable[[], SparkSession],
    told: Callable[[int], None] = lambda _: None,
) -> Iterator[Comparison]:
    """Every output of two generations, the older one first."""
    with_generations = _with_generations_only(pipeline, left_out)
    one, other = (pipeline_of(with_generations, number) for number in numbers)
    for sink, before, after in zip(with_generations.sinks, one.sinks, other.sinks, strict=True):
        old, new = writer_of(before), writer_of(after)
        name = f"{sink.connection.connector} {sink_target_name(sink)}"
        if isinstance(old, KafkaSink) and isinstance(new, KafkaSink):
            newest = sink.mode != "append" and bool(old.key)
            found = compare_topics(
                context.cluster(), old.topic, new.topic, newest=newest, json=new.format == "json", told=told
            )
            yield replace(found, name=name)
        else:
            yield _explained(name, old, new, context, spark())


def _explained(name: str, old: Sink, new: Sink, context: RunContext, spark: SparkSession) -> Comparison:
    try:
        return _by_spark(name, old, new, context, spark)
    except MillraceError:
        raise
    except Exception as error:
        raise explain(error) from error


def _by_spark(name: str, old: Sink, new: Sink, context: RunContext, spark: SparkSession) -> Comparison:
    if isinstance(old, FilesSink) and isinstance(new, FilesSink):
        return _folders(name, _folder(spark, old), _folder(spark, new))
    if isinstance(old, CassandraSink) and isinstance(new, CassandraSink):
        from millrace.connectors.cassandra.table import require_table

        door = context.cassandra()
        key = require_table(door, old.table).key
        before, after = (CassandraSource(table=one.table).rows(spark, door) for one in (old, new))
        return _frames(name, before, after, key)
    raise InvalidReplay(f"{name} cannot be compared")


def _folder(spark: SparkSession, writer: FilesSink) -> DataFrame | None:
    """What a folder holds; None where nothing was ever written."""
    from pyspark.errors import AnalysisException

    reader = spark.read.format(writer.format).option("header", writer.header)
    try:
        return reader.load(writer.path)
    except AnalysisException as error:
        if error.getCondition() in _NOTHING:
            return None
        raise


def _folders(name: str, old: DataFrame | None, new: DataFrame | None) -> Comparison:
    """A folder without files has no columns either; it is compared as one that has no rows."""
    if old is None and new is None:
        return Comparison(name, "neither has a row", (0, 0), (0, 0))
    some: Any = new if old is None else old
    none = some.limit(0)
    return _frames(name, none if old is None else old, none if new is None else new, ())


def _frames(name: str, old: DataFrame, new: DataFrame, key: tuple[str, ...]) -> Comparison:
    """Rows by their key, or as a whole, how often each is there."""
    from pyspark.sql import functions as F

    both = [one for one in old.columns if one in new.columns]
    others = sorted(set(old.columns) ^ set(new.columns))
    how = f"rows by {', '.join(key)}" if key else "whole rows, in whatever order"
    how += f", without the columns that only one has ({', '.join(others)})" if others else ""
    sides = [_rows(frame, both, key, side) for frame, side in ((old, "old"), (new, "new"))]
    joined = sides[0].join(sides[1], "key", "full_outer")
    unlike = joined.where(~F.col("old").eqNullSafe(F.col("new")) | ~F.col("old_n").eqNullSafe(F.col("new_n")))
    counts: Any = unlike.select(
        F.count_if(F.col("new").isNull()), F.count_if(F.col("old").isNull()), F.count(F.lit(1))
    ).first()
    only_old, only_new, every = (int(one) for one in counts)
    sample = tuple(
        Difference(row.key, _shown(row.old, row.old_n), _shown(row.new, row.new_n))
        for row in unlike.orderBy("key").limit(SHOWN).collect()
    )
    totals = [(frame.count(), side.count()) for frame, side in ((old, sides[0]), (new, sides[1]))]
    return Comparison(name, how, totals[0], totals[1], only_old, only_new, every - only_old - only_new, sample)


def _rows(frame: DataFrame, columns: list[str], key: tuple[str, ...], side: str) -> DataFrame:
    """The rows of one side as text, by key, with how often each is there."""
    from pyspark.sql import functions as F

    row = F.to_json(F.struct(*(F.col(f"`{one}`") for one in columns)))
    named = F.to_json(F.struct(*(F.col(f"`{one}`") for one in key))) if key else row
    grouped = frame.select(named.alias("key"), row.alias(side)).groupBy("key")
    return grouped.agg(F.max(side).alias(side), F.count(F.lit(1)).alias(f"{side}_n"))


def _shown(row: str | None, times: int | None) -> str | None:
    return f"{times} × {row}" if row is not None and times is not None and times > 1 else row
