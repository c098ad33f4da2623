"""The static analysis of a whole pipeline: the plan of every source and table."""

from __future__ import annotations

from millrace.pipeline.analysis.operators import STATIC, UNKNOWN, StreamPlan
from millrace.pipeline.analysis.python import python_plan
from millrace.pipeline.model import PipelineDef, SourceDef, TableDef


def analyse(pipeline: PipelineDef) -> dict[str, StreamPlan]:
    """Return the plan of every source and table by its name in lower case."""
    plans = {source.name.lower(): source_plan(source) for source in reversed(pipeline.sources)}
    for table in pipeline.tables:
        _add(pipeline, table, plans)
    return plans


def source_plan(source: SourceDef) -> StreamPlan:
    """Return the plan of a source."""
    if source.static:
        return STATIC
    plan = StreamPlan(True)
    return plan.watermarked(source.watermark.column) if source.watermark else plan


def _add(pipeline: PipelineDef, table: TableDef, plans: dict[str, StreamPlan]) -> None:
    """Add a table's plan after those of what it reads; without recursion, as a chain of tables may be long."""
    waiting = [(table, False)]
    visited: set[str] = set()
    while waiting:
        current, ready = waiting.pop()
        name = current.name.lower()
        if name in plans:
            continue
        if ready or name in visited:  # visited twice: a cycle, which has no plan
            plans[name] = _table_plan(current, plans)
            continue
        visited.add(name)
        waiting.append((current, True))
        reads = (pipeline.table(read) for read in current.reads)
        waiting.extend((read, False) for read in reads if read and read.name.lower() not in plans)


def _table_plan(table: TableDef, plans: dict[str, StreamPlan]) -> StreamPlan:
    if table.sql is not None:
        from millrace.pipeline.analysis.sql import sql_plan

        plan = sql_plan(table, plans)
    else:
        plan = python_plan(table, plans)
    if plan is UNKNOWN or not table.watermark:
        return plan
    return plan.watermarked(table.watermark.column)
