"""Checks that need Spark: the queries of a pipeline, analysed by Spark on empty streams.

- `deep_problems`: problems of columns, types and operations, and state that is never removed.
- `query_states`: the state schemas of queries, to be compared with those of their checkpoints, and their operators
  with state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.registry import sink_of, source_of
from millrace.engine.checkpoints.resume import ResumePlanner
from millrace.engine.deep_state import spark_operators
from millrace.engine.failures.explain import explain, explained
from millrace.engine.queries.builder import QueryBuilder, QueryTables, with_watermark
from millrace.engine.queries.panels import panel_mistakes
from millrace.engine.queries.stateful_plans import require_supported
from millrace.engine.session.session import scratch_folder
from millrace.errors import InvalidDefinition, NoCluster, Problem
from millrace.pipeline.analysis.operators import Operator
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.checks.state import unbounded_state
from millrace.pipeline.checks.triggers import realtime_refusal
from millrace.pipeline.compatibility.state_schema import StateSchema
from millrace.pipeline.model import PipelineDef, SourceDef
from millrace.pipeline.plan import Plan, Query, make_plan


def deep_problems(
    pipeline: PipelineDef, spark: SparkSession, before_each: Callable[[], None] = lambda: None
) -> list[Problem]:
    """Return the problems that Spark finds, at most one for each query.

    `before_each` is called before the functions of a query's tables are called.
    """
    with _builder(pipeline, spark) as builder:
        problems: list[Problem] = []
        for query in make_plan(pipeline).queries:
            before_each()
            problems += _query_problems(builder, query)
        problems += _panel_problems(builder, before_each)
    return list(dict.fromkeys(problems))


def query_states(
    plan: Plan, spark: SparkSession, state: Path
) -> tuple[dict[str, StateSchema], dict[str, list[Operator]]]:
    """Return the state schema of each query with sinks, to be compared with its checkpoint, and its operators."""
    schemas, operators = {}, {}
    with _builder(plan.pipeline, spark) as builder:
        for query in plan.queries:
            if query.sinks:
                tables = _EmptyTables(builder, query)
                schemas[query.name] = _fingerprint(builder, query, tables, state)
                operators[query.name] = spark_operators(tables, plan.pipeline, query.table)
    return schemas, operators


@contextmanager
def _builder(pipeline: PipelineDef, spark: SparkSession) -> Iterator[QueryBuilder]:
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        yield QueryBuilder(pipeline, RunContext(Path(folder), _no_cluster, pipeline=pipeline.name, session=spark))


def _fingerprint(builder: QueryBuilder, query: Query, tables: QueryTables, state: Path) -> StateSchema:
    with explained(query.place):
        table = tables.frame(query.table)
        resuming = ResumePlanner(builder.pipeline, query, state, ())
        written = resuming.with_all_columns(table)
        if len(query.sinks) == 1:
            written = sink_of(query.sinks[0]).shape(written)
        return resuming.state_schema(table, written, tables.sources())


def _query_problems(builder: QueryBuilder, query: Query) -> list[Problem]:
    place, tables = query.place, _EmptyTables(builder, query)
    try:
        frame = tables.frame(query.table)
        for sink in query.sinks:
            place = sink.place
            sink_of(sink).shape(frame)
        if not frame.isStreaming:
            raise InvalidDefinition("the table reads no stream", hint="static sources are for joins with streams")
        require_supported(frame, query.mode)
    except Exception as exception:
        error = explain(exception, place=place)
        return [Problem(error.condition, error.message, error.place or place, error.hint, error.why)]
    problems = list(_state_problems(builder.pipeline, tables, query))
    return [*problems, *_python_problems(builder, tables, query)] if query.trigger.kind == "realtime" else problems


def _state_problems(pipeline: PipelineDef, tables: QueryTables, query: Query) -> Iterator[Problem]:
    """Yield a warning for each state that no watermark removes and that the file alone does not show."""
    certain = {
        (operator.kind, operator.table)
        for plan in analyse(pipeline).values()
        for operator in plan.operators
        if operator.bounded is not None
    }
    for operator in spark_operators(tables, pipeline, query.table):
        if not operator.bounded and (operator.kind, operator.table) not in certain:
            yield from unbounded_state(operator, query.mode)


def _python_problems(builder: QueryBuilder, tables: QueryTables, query: Query) -> Iterator[Problem]:
    """Yield a problem for the first table with a Python function in an expression, which real-time mode refuses.

    The expression counts even if its column is not used. Table functions are found when the query starts.
    """
    pipeline, jvm = builder.pipeline, builder.spark._jvm
    python = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    for name in pipeline.upstream(query.table):
        table = pipeline.table(name)
        if table and tables.frame(name)._jdf.queryExecution().analyzed().containsPattern(python):
            yield realtime_refusal("python", "a Python function", table.name, table.place)
            return


def _panel_problems(builder: QueryBuilder, before_each: Callable[[], None]) -> Iterator[Problem]:
    """Yield the problems of panels: columns that do not exist, or have a type that the dashboard cannot show."""
    for panel in builder.pipeline.panels:
        before_each()
        query = Query("panel", panel.table, (), "append", builder.pipeline.trigger)
        try:
            frame = _EmptyTables(builder, query).frame(panel.table)
        except Exception:  # noqa: S112 - the problem of the table is reported with its sink
            continue
        for mistake in panel_mistakes(panel, frame):
            yield Problem(mistake.condition, mistake.message, panel.option_place(mistake.option or ""), mistake.hint)


class _EmptyTables(QueryTables):
    """The tables of a query over empty streams."""

    def _read(self, source: SourceDef) -> DataFrame:
        context = replace(self._builder.context, name=source.name, static=source.static)
        reader = source_of(source).resolved(context)
        columns = reader.columns()
        if columns is None:
            return with_watermark(reader.load(context), source.watermark)
        spark = self._builder.spark
        ddl = columns.nullable().ddl()
        if source.static:
            return spark.createDataFrame([], ddl)
        folder = self._builder.context.state / "empty" / source.name
        folder.mkdir(parents=True, exist_ok=True)
        return with_watermark(spark.readStream.schema(ddl).parquet(str(folder)), source.watermark)


def _no_cluster() -> Cluster:
    raise NoCluster("check reads no topic")
