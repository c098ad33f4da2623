"""The static analysis of a whole pipeline: the plan of every source and table."""

from __future__ import annotations

from millrace.pipeline.analysis.operators import STATIC, UNKNOWN, StreamPlan
from millrace.pipeline.analysis.python import python_plan
from millrace.pipeline.model import PipelineDef, SourceDef, TableDef


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
