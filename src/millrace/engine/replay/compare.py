"""Generations compared: topics by what they hold, folders and tables by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.comparison import SHOWN, Compared, Difference, compare
from millrace.connectors.cassandra import CassandraReader, CassandraWriter
from millrace.connectors.files import FilesWriter
from millrace.connectors.kafka import KafkaWriter
from millrace.connectors.stream import Writer
from millrace.engine.failures import explain
from millrace.engine.generations import pipeline_of, state_of
from millrace.engine.remembered import position
from millrace.engine.replayed import named, sinks_of
from millrace.engine.run import Settings
from millrace.engine.structured import writer_of
from millrace.errors import InvalidReplay, MillraceError
from millrace.pipeline.model import Pipeline
from millrace.pipeline.plan import make_plan
from millrace.telemetry.progress import offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NOTHING = ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")
"""What Spark says of a folder that has no files, or is not there."""


@dataclass(frozen=True)
class Reach:
    """What two generations have read of one partition."""

    query: str
    place: str
    old: int
    new: int


def unequal(pipeline: Pipeline, base: Path, numbers: tuple[int, int], left_out: tuple[str, ...] = ()) -> list[Reach]:
    """Where two generations have not read equally much; then not all that differs comes from the code."""
    found = []
    plain = _compared(pipeline, left_out)
    # The name of a query without batches has that of its topic in it, so it has another one in each generation.
    old, new = (make_plan(pipeline_of(plain, number)).queries for number in numbers)
    for before, query in zip(old, new, strict=True):
        names = (before.name, query.name)
        read = [_read(state_of(base, number), name) for number, name in zip(numbers, names, strict=True)]
        for place in sorted(read[0].keys() | read[1].keys()):
            at = [one.get(place, 0) for one in read]
            if at[0] != at[1]:
                found.append(Reach(query.name, place, *at))
    return found


def _compared(pipeline: Pipeline, left_out: tuple[str, ...]) -> Pipeline:
    """The pipeline with the sinks only that can have generations."""
    return replace(pipeline, sinks=tuple(sinks_of(pipeline, left_out)), panels=())


def _read(state: Path, query: str) -> dict[str, int]:
    """How far a query has read, by partition."""
    at = position(state, query)
    return {
        f"{topic}[{number}]": offset
        for source in (at.offsets if at else ())
        for (topic, number), offset in offsets_in(source)
    }


def comparisons(
    pipeline: Pipeline,
    numbers: tuple[int, int],
    left_out: tuple[str, ...],
    settings: Settings,
    spark: Callable[[], SparkSession],
    told: Callable[[int], None] = lambda _: None,
) -> Iterator[Compared]:
    """Every output of two generations, the older one first."""
    plain = _compared(pipeline, left_out)
    one, other = (pipeline_of(plain, number) for number in numbers)
    for sink, before, after in zip(plain.sinks, one.sinks, other.sinks, strict=True):
        old, new = writer_of(before), writer_of(after)
        name = f"{sink.connection.connector} {named(sink)}"
        if isinstance(old, KafkaWriter) and isinstance(new, KafkaWriter):
            newest = sink.mode != "append" and bool(old.key)
            found = compare(
                settings.cluster(), old.topic, new.topic, newest=newest, json=new.format == "json", told=told
            )
            yield replace(found, name=name)
        else:
            yield _explained(name, old, new, settings, spark())


def _explained(name: str, old: Writer, new: Writer, settings: Settings, spark: SparkSession) -> Compared:
    try:
        return _by_spark(name, old, new, settings, spark)
    except MillraceError:
        raise
    except Exception as error:
        raise explain(error) from error


def _by_spark(name: str, old: Writer, new: Writer, settings: Settings, spark: SparkSession) -> Compared:
    if isinstance(old, FilesWriter) and isinstance(new, FilesWriter):
        return _folders(name, _folder(spark, old), _folder(spark, new))
    if isinstance(old, CassandraWriter) and isinstance(new, CassandraWriter):
        from millrace.connectors.cql.table import require

        door = settings.cassandra()
        key = require(door, old.table).key
        before, after = (CassandraReader(table=one.table).rows(spark, door) for one in (old, new))
        return _frames(name, before, after, key)
    raise InvalidReplay(f"{name} cannot be compared")


def _folder(spark: SparkSession, writer: FilesWriter) -> DataFrame | None:
    """What a folder holds; None where nothing was ever written."""
    from pyspark.errors import AnalysisException

    reader = spark.read.format(writer.format).option("header", writer.header)
    try:
        return reader.load(writer.path)
    except AnalysisException as error:
        if error.getCondition() in _NOTHING:
            return None
        raise


def _folders(name: str, old: DataFrame | None, new: DataFrame | None) -> Compared:
    """A folder without files has no columns either; it is compared as one that has no rows."""
    if old is None and new is None:
        return Compared(name, "neither has a row", (0, 0), (0, 0))
    some: Any = new if old is None else old
    none = some.limit(0)
    return _frames(name, none if old is None else old, none if new is None else new, ())


def _frames(name: str, old: DataFrame, new: DataFrame, key: tuple[str, ...]) -> Compared:
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
    return Compared(name, how, totals[0], totals[1], only_old, only_new, every - only_old - only_new, sample)


def _rows(frame: DataFrame, columns: list[str], key: tuple[str, ...], side: str) -> DataFrame:
    """The rows of one side as text, by key, with how often each is there."""
    from pyspark.sql import functions as F

    row = F.to_json(F.struct(*(F.col(f"`{one}`") for one in columns)))
    named = F.to_json(F.struct(*(F.col(f"`{one}`") for one in key))) if key else row
    grouped = frame.select(named.alias("key"), row.alias(side)).groupBy("key")
    return grouped.agg(F.max(side).alias(side), F.count(F.lit(1)).alias(f"{side}_n"))


def _shown(row: str | None, times: int | None) -> str | None:
    return f"{times} × {row}" if row is not None and times is not None and times > 1 else row
