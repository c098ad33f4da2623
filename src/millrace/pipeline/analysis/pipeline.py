"""The static analysis of a whole pipeline: the plan of every source and table."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.pipeline.analysis.operators import STATIC, UNKNOWN, StreamPlan
from millrace.pipeline.analysis.python import python_plan
from millrace.pipeline.model import PipelineDef, SourceDef, TableDef


@dataclass(frozen=True)
class SourceWatermark:
    """The watermark that a query has on the rows of a source."""

    delay_s: float
    path: tuple[str, ...] = ()
    """The column of the source that has the event time, and names of fields in it; empty if it is computed."""


def source_watermark(pipeline: PipelineDef, table: str, source: SourceDef) -> SourceWatermark | None:
    """Return the watermark that the query of a table has on the rows of a source; None if it has none.

    Of several the shortest counts: what is late for one is lost there.
    """
    if source.watermark:
        return SourceWatermark(source.watermark.seconds, (source.watermark.column,))
    watermarks = [
        SourceWatermark(found.watermark.seconds)
        for name in pipeline.upstream(table)
        if (found := pipeline.table(name)) and found.watermark and source in pipeline.upstream_sources(name)
    ]
    return min(watermarks, key=lambda watermark: watermark.delay_s, default=None)


def analyse(pipeline: PipelineDef) -> dict[str, StreamPlan]:
    """Return the plan of every source and table by its name in lower case."""
    plans = {source.name.lower(): _source_plan(source) for source in reversed(pipeline.sources)}
    for name in pipeline.upstream(*(table.name for table in pipeline.tables)):
        table = pipeline.table(name)
        if table and name.lower() not in plans:
            plans[name.lower()] = _table_plan(table, plans)
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
    return plan.watermarked(table.watermark.column) if table.watermark and plan is not UNKNOWN else plan
