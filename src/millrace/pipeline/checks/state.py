"""State: what a query remembers, and whether it ever forgets.

Watermarks: their column must be there, and be a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation, did_you_mean
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import SourceDef, TableDef

_OUTER = ("left", "right", "full", "semi")


def endless_aggregation(scope: CheckContext) -> Iterator[Problem]:
    """Groups that no watermark ends stay for ever."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "aggregate") if sink.mode in ("update", "complete") else ():
            if step.bounded is False:
                why = "every group that was ever seen is kept, since nothing says when it is finished"
                hint = "group by a window of a watermarked event time, if the keys are many"
                said = f"the state of {step.what} in {step.table!r} can grow for ever"
                yield Problem("state.aggregation", said, step.place, hint, why, "warning")


def endless_deduplication(scope: CheckContext) -> Iterator[Problem]:
    """Keys that no watermark ends stay for ever."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "deduplicate"):
            if step.bounded is False:
                why = "every row that was ever seen is remembered"
                hint = "set a watermark, and deduplicate within it or by columns with its event time among them"
                said = f"the state of {step.what} in {step.table!r} can grow for ever"
                yield Problem("state.deduplication", said, step.place, hint, why, "warning")


def endless_join(scope: CheckContext) -> Iterator[Problem]:
    """Rows that wait for a partner stay for ever unless time bounds the wait."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "join"):
            if step.bounded is False and step.join in ("inner", "cross"):
                why = "every row of both streams is kept, since a partner may always come"
                said = f"the state of the join in {step.table!r} can grow for ever"
                yield Problem("state.join", said, step.place, _TIME_BOUND, why, "warning")


def outer_join_without_watermark(scope: CheckContext) -> Iterator[Problem]:
    """That a row has no partner is known only when the watermark has passed."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "join"):
            if step.bounded is False and step.join in _OUTER:
                why = "that a row has no partner is only known when a watermark has passed the time bound"
                said = f"a {step.join} join of two streams needs a watermark and a time bound"
                yield Problem("join.unbounded", said, step.place, _TIME_BOUND, why)


def deduplication_within_nothing(scope: CheckContext) -> Iterator[Problem]:
    """Deduplication within a watermark needs one."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "within"):
            if step.bounded is False:
                hint = "give the source or the table that it reads a watermark, as [at, 10 seconds]"
                yield Problem("watermark.missing", f"{step.what} needs a watermark", step.place, hint)


_TIME_BOUND = (
    "give both sides a watermark and bound the join by it, as AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE"
)
_TIMES = ("timestamp", "timestamp_ntz", "timestamp_ltz")


def unknown_watermark_column(scope: CheckContext) -> Iterator[Problem]:
    """A watermark's column must be among the source's or the table's."""
    for element in scope.elements:
        column = element.watermark.column if element.watermark else ""
        known = scope.columns(element) if column else None
        names = [one.name for one in known or ()]
        if known is not None and column.lower() not in map(str.lower, names):
            said = f"the watermark of {element.name!r} is on {column!r}, which is none of its columns"
            yield Problem("watermark.column", said, _place(element), did_you_mean(column, names))


def watermark_not_a_time(scope: CheckContext) -> Iterator[Problem]:
    """A watermark is on a timestamp."""
    for source in scope.pipeline.sources:
        schema = scope.source_facts(source).schema
        if not schema or not source.watermark:
            continue
        column = source.watermark.column
        for field in schema.fields:
            name = getattr(field.type, "name", None)
            if field.name.lower() == column.lower() and isinstance(name, str) and name not in _TIMES:
                said = f"the watermark of {source.name!r} is on {column!r}, which is {name} and no timestamp"
                hint = f"declare it as {column} timestamp, or make a table that casts it and set the watermark there"
                yield Problem("watermark.type", said, _place(source), hint)


def _place(element: SourceDef | TableDef) -> SourceLocation:
    if isinstance(element, SourceDef):
        return element.connection.places.get("watermark", element.place)
    return element.place
