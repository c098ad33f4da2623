"""Queries are run as streams in several cuts and as batches, and their results compared.

- `StreamComparison` runs many queries in one stream: their rows, as JSON, are one union, so that a micro-batch is
  planned once for all of them. The watermark of each branch is its own.
- A run in one batch, one in three with batches without rows between them, and one in eight without those.
- Rows of the far future, which no query sees, end every window.
"""

# ruff: noqa: S608 - SQL is made here, from constants
from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

import millrace as mr
from millrace.connectors.base.registry import CONNECTORS
from millrace.engine.queries.stateful_plans import require_supported, with_sql_null_keys
from millrace.errors import InvalidDefinition
from millrace.pipeline.checks import check

from .stateful_queries import DELAY_S, Row, StatefulQuery, arrivals, cut

Result = Counter[str]

_SCHEMA = "source string, id bigint, k string, v bigint, at timestamp"
_ARROW = pa.schema(
    {"source": "string", "id": "int64", "k": "string", "v": "int64", "at": pa.timestamp("us", "UTC")}.items()
)
_COLUMNS = "id bigint, k string, v bigint, at timestamp"
_LABELS = [("x", "p"), ("y", "q")]
_END = "timestamp '2100-01-01'"
"""What is later only moves the watermark. Spark does not push a condition on event time below the watermark."""
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
_CUTS = ((1, False), (3, True), (8, False))
"""How many batches the rows come in, and whether batches without rows are run between them."""
_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than processing a few rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.ui.explainMode": "simple",
}
_FILE_SYSTEM = """
public class LocalFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
  public java.net.URI getUri() { return java.net.URI.create("localfiles:///"); }
  public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission) {}
}
"""
"""Hadoop's own starts a program for the permissions of each file; a batch of many queries writes hundreds of files."""


@dataclass(frozen=True)
class Difference:
    """A query whose stream has other rows than its batch, or fails."""

    query: StatefulQuery
    batches: int
    what: str
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


def pipeline_of(query: StatefulQuery) -> mr.Pipeline:
    """Return a pipeline with the query as its only table."""
    pipeline = mr.Pipeline("p")
    for name in ("a", "b"):
        pipeline.source(name, mr.kafka(name, schema=_COLUMNS), watermark=("at", f"{DELAY_S} seconds"))
    pipeline.source("s", mr.files("labels", schema="code string, label string"), static=True)
    pipeline.table(a_once)
    pipeline.table(b_once)
    pipeline.sql("q", query.sql)
    pipeline.sink("q", mr.console(), mode=query.mode)
    return pipeline


def a_once(a: Any) -> Any:
    """Return rows once, for as long as the watermark allows."""
    return a.dropDuplicatesWithinWatermark(["id"])


def b_once(b: Any) -> Any:
    """Return rows once, by a key with their event time."""
    return b.dropDuplicates(["id", "at"])


def refusals(query: StatefulQuery) -> list[str]:
    """Return the conditions of the errors of `check`."""
    problems = check(pipeline_of(query).model(), CONNECTORS)
    return [problem.condition for problem in problems if problem.severity == "error"]


class StreamComparison:
    """Compares streams with batches in a session of its own."""

    def __init__(self, spark: Any) -> None:
        self.as_millrace = True
        """Whether streams are started as `run` does; else as Spark would take them."""
        self._spark = spark.newSession()
        self._jvm = spark._jvm
        for key, value in _SETTINGS.items():
            self._spark.conf.set(key, value)
        self._labels = self._spark.createDataFrame(_LABELS, "code string, label string")
        self._encoder = self._jvm.org.apache.spark.sql.Encoders.row(self._type(_SCHEMA))
        self._runs = 0
        self._known_steps: dict[tuple[int, int], list[Any]] = {}
        _add_local_files(self._jvm, spark)

    @contextmanager
    def setting(self, key: str, value: str) -> Iterator[None]:
        """Set a setting of Spark for some comparisons."""
        before = self._spark.conf.get(key)
        self._spark.conf.set(key, value)
        try:
            yield
        finally:
            self._spark.conf.set(key, before)

    def differences(self, queries: Sequence[StatefulQuery], seed: int) -> list[Difference]:
        """Return the differences of queries of one mode, over the rows of a seed."""
        results: dict[int, dict[str, Result]] = {}
        try:
            with ThreadPoolExecutor(len(_CUTS)) as threads:
                runs = {batches: threads.submit(self.start(queries, seed, batches, empty)) for batches, empty in _CUTS}
                results = {batches: run.result() for batches, run in runs.items()}
        except Exception as error:
            if len(queries) == 1:
                if isinstance(error, InvalidDefinition):  # `run` refuses it before it starts anything
                    return []
                return [Difference(queries[0], 0, str(error).splitlines()[0])]
            half = len(queries) // 2
            return [*self.differences(queries[:half], seed), *self.differences(queries[half:], seed)]
        finally:
            self._unload()
        expected = self.as_batch(queries, seed)
        return [found for batches in results for found in _compared(queries, batches, expected, results[batches])]

    def as_spark_takes_them(self, queries: Sequence[StatefulQuery], seed: int) -> list[Difference]:
        """Return the differences of queries that `run` refuses or makes exact."""
        self.as_millrace = False
        try:
            return self.differences(queries, seed)
        finally:
            self.as_millrace = True

    def _unload(self) -> None:
        """Forget the states of streams that have ended."""
        stores: Any = getattr(self._jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$")
        getattr(stores, "MODULE$").unloadAll()

    def as_batch(self, queries: Sequence[StatefulQuery], seed: int) -> dict[str, Result]:
        """Return the rows of each query over all rows at once."""
        every = self._frame(arrivals(seed))
        for name in ("a", "b"):
            of = every.filter(f"source = '{name}'").drop("source")
            of.createOrReplaceTempView(name)
            of.dropDuplicates(["id"]).createOrReplaceTempView(f"{name}_once")
        self._labels.createOrReplaceTempView("s")
        return _results(queries, self._union(queries).collect())

    def start(
        self, queries: Sequence[StatefulQuery], seed: int, batches: int = 1, empty: bool = False
    ) -> Callable[[], dict[str, Result]]:
        """Return what runs the queries to the end of the rows."""
        self._runs += 1
        name, folder = f"run{self._runs}", tempfile.mkdtemp(dir=_folder())
        stream = self._stream()
        self._name_streams(stream)
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(empty).lower())
        steps = self._steps(seed, batches)
        rows = self._union(queries)
        if self.as_millrace:
            require_supported(rows, queries[0].mode)
            rows = with_sql_null_keys(rows)
        writer = rows.writeStream.format("memory").queryName(name).outputMode(queries[0].mode)
        query = writer.option("checkpointLocation", f"localfiles://{folder}").start()

        def run() -> dict[str, Result]:
            try:
                for step in steps:
                    stream.addData(step)
                    query.processAllAvailable()
                return _results(queries, self._spark.table(name).collect())
            finally:
                query.stop()
                self._spark.catalog.dropTempView(name)
                shutil.rmtree(folder, ignore_errors=True)

        return run

    def _union(self, queries: Sequence[StatefulQuery]) -> Any:
        selects = (f"SELECT '{query.name}' AS q, to_json(struct(*)) AS r FROM ({query.sql})" for query in queries)
        return self._spark.sql(" UNION ALL ".join(selects))

    def _stream(self) -> Any:
        memory = self._jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        return memory.apply(self._spark._jsparkSession, self._encoder)

    def _name_streams(self, stream: Any) -> None:
        from pyspark.sql import DataFrame

        rows = DataFrame(stream.toDF(), self._spark)
        for name, once in (("a", a_once), ("b", b_once)):
            of = rows.filter(f"source = '{name}'").drop("source").withWatermark("at", f"{DELAY_S} seconds")
            of = of.filter(f"at < {_END}")
            of.createOrReplaceTempView(name)
            once(of).createOrReplaceTempView(f"{name}_once")
        self._labels.createOrReplaceTempView("s")

    def _steps(self, seed: int, batches: int) -> list[Any]:
        """Return the rows of each batch in the JVM; the last but one has rows of the far future too."""
        if (seed, batches) not in self._known_steps:
            *first, last = cut(arrivals(seed), batches)
            as_scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala
            steps = (*first, [*last, *_far(2200)], _far(2201))
            self._known_steps[seed, batches] = [
                as_scala(self._frame(step)._jdf.collectAsList()).toSeq() for step in steps
            ]
        return self._known_steps[seed, batches]

    def _frame(self, rows: list[Row]) -> Any:
        return self._spark.createDataFrame(
            pa.Table.from_pylist([dict(zip(_ARROW.names, row, strict=True)) for row in rows], _ARROW)
        )

    def _type(self, ddl: str) -> Any:
        from pyspark.sql.types import StructType

        return self._spark._jsparkSession.parseDataType(StructType.fromDDL(ddl).json())


def _far(year: int) -> list[Row]:
    """Return rows that pass every filter of a query: Spark filters them before they move the watermark."""
    return [(name, 10**9, "y", 10**9, datetime(year, 1, 1, tzinfo=UTC)) for name in ("a", "b")]


def _folder() -> str | None:
    """Return a folder in memory for state that lives for a second, if there is one."""
    return str(_MEMORY) if _MEMORY.is_dir() else None


def _results(queries: Sequence[StatefulQuery], rows: Sequence[Any]) -> dict[str, Result]:
    written: dict[str, list[str]] = {query.name: [] for query in queries}
    for row in rows:
        written[row.q].append(row.r)
    return {query.name: Counter(_last(query, written[query.name])) for query in queries}


def _last(query: StatefulQuery, rows: list[str]) -> list[str]:
    """Return the rows that count: in update mode the last one of each key."""
    if query.mode != "update" or query.keys is None:
        return rows
    last = {tuple(str(json.loads(row).get(key)) for key in query.keys or ()): row for row in rows}
    return list(last.values())


def _compared(
    queries: Sequence[StatefulQuery], batches: int, expected: dict[str, Result], found: dict[str, Result]
) -> Iterator[Difference]:
    for query in queries:
        missing, unexpected = expected[query.name] - found[query.name], found[query.name] - expected[query.name]
        if missing or unexpected:
            of = expected[query.name].total()
            what = f"{missing.total()} of {of} rows are missing, {unexpected.total()} are unexpected"
            yield Difference(query, batches, what, tuple(missing)[:3], tuple(unexpected)[:3])


def in_groups(queries: Sequence[StatefulQuery], size: int) -> Iterator[list[StatefulQuery]]:
    """Yield queries of the same mode, at most a number at once."""
    ordered = sorted(queries, key=lambda query: query.mode)
    for _, same in groupby(ordered, key=lambda query: query.mode):
        listed = list(same)
        yield from (listed[start : start + size] for start in range(0, len(listed), size))


def _add_local_files(jvm: Any, spark: Any) -> None:
    """Add a file system for paths that start with localfiles:, once in a JVM; Hadoop keeps the instance."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_FILE_SYSTEM)
    settings = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    settings.setClassLoader(compiler.getClassLoader())
    settings.set("fs.localfiles.impl", "LocalFiles")
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("localfiles:///"), settings)
