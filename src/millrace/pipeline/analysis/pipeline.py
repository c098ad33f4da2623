"""The shapes of a whole pipeline, each made once."""

from __future__ import annotations

from millrace.pipeline.analysis.operators import STATIC, UNKNOWN, StreamPlan
from millrace.pipeline.analysis.python import python_shape
from millrace.pipeline.model import PipelineDef, SourceDef, TableDef


def analyse(pipeline: PipelineDef) -> dict[str, StreamPlan]:
    """The shape of every source and table by its name, in small letters."""
    found = {source.name.lower(): source_shape(source) for source in reversed(pipeline.sources)}
    for table in pipeline.tables:
        _add(pipeline, table, found)
    return found


def source_shape(source: SourceDef) -> StreamPlan:
    """What is known of a source's rows."""
    if source.static:
        return STATIC
    shape = StreamPlan(True)
    return shape.watermarked(source.watermark.column) if source.watermark else shape


def _add(pipeline: PipelineDef, table: TableDef, found: dict[str, StreamPlan]) -> None:
    """A table's shape, after those of what it reads; not by recursion, since a chain of tables may be long."""
    waiting = [(table, False)]
    begun: set[str] = set()
    while waiting:
        one, ready = waiting.pop()
        name = one.name.lower()
        if name in found:
            continue
        if ready or name in begun:  # begun and met again: a cycle, which has no shape
            found[name] = _shape(one, found)
            continue
        begun.add(name)
        waiting.append((one, True))
        reads = (pipeline.table(read) for read in one.reads)
        waiting.extend((read, False) for read in reads if read and read.name.lower() not in found)


def _shape(table: TableDef, found: dict[str, StreamPlan]) -> StreamPlan:
    if table.sql is not None:
        from millrace.pipeline.analysis.sql import sql_shape

        shape = sql_shape(table, found)
    else:
        shape = python_shape(table, found)
    if shape is UNKNOWN or not table.watermark:
        return shape
    return shape.watermarked(table.watermark.column)
