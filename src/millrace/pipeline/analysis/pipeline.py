"""The static analysis of a whole pipeline: the plan of every source and table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millrace.pipeline.analysis.operators import STATIC, UNKNOWN, Operator, StreamPlan
from millrace.pipeline.analysis.python import python_plan
from millrace.pipeline.functions import called_functions
from millrace.pipeline.model import PipelineDef, SourceDef, TableDef, Watermark


@dataclass(frozen=True)
class SourceWatermark:
    """The watermark that a query has on the rows of a source."""

    delay_s: float
    column: str = ""
    """The column of the source that has the event time; empty if it is computed."""


def source_watermark(
    pipeline: PipelineDef, table: str, source: SourceDef, columns: Sequence[str] = ()
) -> SourceWatermark | None:
    """Return the watermark that the query of a table has on the rows of a source; None if it has none.

    Of several the shortest counts: what is late for one is lost there. `columns` are those of the source that may have
    the event time: the watermark of a table can be on one of them.
    """
    if source.watermark:
        return SourceWatermark(source.watermark.seconds, source.watermark.column)
    watermarks = [
        SourceWatermark(upstream.watermark.seconds, _source_column(pipeline, upstream, source, columns))
        for name in pipeline.upstream(table)
        if (upstream := pipeline.table(name)) and upstream.watermark and source in pipeline.upstream_sources(name)
    ]
    return min(watermarks, key=lambda watermark: watermark.delay_s, default=None)


def _source_column(pipeline: PipelineDef, table: TableDef, source: SourceDef, columns: Sequence[str]) -> str:
    """Return the column of a source that is the event time of a table; empty if it is computed.

    If each column had a watermark at the source, which of them would reach the table's column? Where the analysis
    cannot tell, as for Python code that it does not know, it is the column of the same name.
    """
    assert table.watermark is not None  # noqa: S101 - the caller has looked
    event_time = table.watermark.column.lower()
    unmarked = replace(pipeline, tables=tuple(replace(each, watermark=None) for each in pipeline.tables))
    for column in sorted(columns, key=lambda name: name.lower() != event_time):
        marked = replace(source, watermark=Watermark(column, 0.0))
        sources = tuple(marked if each is source else replace(each, watermark=None) for each in pipeline.sources)
        reached = analyse(replace(unmarked, sources=sources))[table.name.lower()].watermark_columns
        if column.lower() == event_time if reached is None else event_time in reached:
            return column
    return ""


def analyse(pipeline: PipelineDef) -> dict[str, StreamPlan]:
    """Return the plan of every source and table by its name in lower case."""
    plans = {source.name.lower(): _source_plan(source) for source in reversed(pipeline.sources)}
    for name in pipeline.upstream(*(table.name for table in pipeline.tables)):
        table = pipeline.table(name)
        if table and name.lower() not in plans:
            plan = _table_plan(table, plans)
            for function in called_functions(pipeline.functions, table):
                plan = plan.then(Operator("python", f"{function.name}()", table.sql_place or table.place, table.name))
            plans[name.lower()] = plan
    return plans


def _source_plan(source: SourceDef) -> StreamPlan:
    if source.static:
        return STATIC
    plan = StreamPlan(True)
    return plan.watermarked(source.watermark.column) if source.watermark else plan


def _table_plan(table: TableDef, plans: dict[str, StreamPlan]) -> StreamPlan:
    if table.sql is None:
        plan = python_plan(table, plans)
    else:
        from millrace.pipeline.analysis.sql import sql_plan

        plan = sql_plan(table, plans)
        if table.ranking and table.reads:  # its rows are those of what it reads
            plan = plan.with_watermark_columns(plans.get(table.reads[0].lower(), UNKNOWN).watermark_columns)
    return plan.watermarked(table.watermark.column) if table.watermark and plan is not UNKNOWN else plan
