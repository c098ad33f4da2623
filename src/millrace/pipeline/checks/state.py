"""Rules about state and watermarks.

- State that no watermark removes grows for ever.
- Outer joins of streams, and deduplication within a watermark, need a watermark.
- A watermark's column must exist, and be a timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation, did_you_mean
from millrace.pipeline.analysis.operators import Operator
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import SourceDef, TableDef

_OUTER_JOINS = ("left", "right", "full", "semi")
_TIME_BOUND_HINT = (
    "give both sides a watermark and bound the join by it, as AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE"
)
_TIMESTAMP_TYPES = ("timestamp", "timestamp_ntz", "timestamp_ltz")


def unbounded_states(context: CheckContext) -> Iterator[Problem]:
    """State that no watermark removes stays for ever."""
    for sink, operator in context.sink_operators("aggregate", "deduplicate", "join"):
        if operator.bounded is False:
            yield from unbounded_state(operator, sink.mode)


def unbounded_state(operator: Operator, mode: str) -> Iterator[Problem]:
    """Yield the warning about an operator whose state no watermark removes; in some modes Spark refuses it anyway."""
    message = f"the state of {operator.what} in {operator.table!r} can grow for ever"
    if operator.kind == "aggregate" and mode in ("update", "complete"):
        why = "every group that was ever seen is kept, since nothing says when it is finished"
        hint = "group by a window of a watermarked event time, if the keys are many"
        yield Problem("state.aggregation", message, operator.place, hint, why, "warning")
    elif operator.kind == "deduplicate":
        why = "every row that was ever seen is remembered"
        hint = "set a watermark, and deduplicate within it or by columns with its event time among them"
        yield Problem("state.deduplication", message, operator.place, hint, why, "warning")
    elif operator.kind == "join" and operator.join in ("inner", "cross"):
        why = "rows are kept for ever if a partner may always come"
        message = f"the state of the join in {operator.table!r} can grow for ever"
        yield Problem("state.join", message, operator.place, _TIME_BOUND_HINT, why, "warning")


def outer_join_without_watermark(context: CheckContext) -> Iterator[Problem]:
    """Only a watermark shows that a row has no match."""
    for _, operator in context.sink_operators("join"):
        if operator.bounded is False and operator.join in _OUTER_JOINS:
            why = "that a row has no partner is only known when a watermark has passed the time bound"
            message = f"a {operator.join} join of two streams needs a watermark and a time bound"
            yield Problem("join.unbounded", message, operator.place, _TIME_BOUND_HINT, why)


def join_with_one_watermark(context: CheckContext) -> Iterator[Problem]:
    """Rows of a side without a watermark are lost when the other side's event time has passed them."""
    for _, operator in context.sink_operators("join"):
        if operator.one_sided:
            why = "it ends the state of both: later rows of the other side find no partner, and nothing counts them"
            message = f"only one side of the join in {operator.table!r} has a watermark on its event time"
            hint = "give the other side a watermark on the column that is compared"
            yield Problem("join.one-sided", message, operator.place, hint, why, "warning")


def semi_join_of_final_rows(context: CheckContext) -> Iterator[Problem]:
    """A semi join keeps no row that a watermark has passed."""
    for _, operator in context.sink_operators("join"):
        if operator.join == "semi" and operator.sides_final:
            message = (
                f"the semi join in {operator.table!r} would lose rows: both sides come from aggregations or outer joins"
            )
            why = "they give a row when the watermark has passed it, and a semi join keeps such a row for no partner"
            hint = "join with the distinct keys instead: FROM a JOIN (SELECT DISTINCT at, k FROM b) b ON b.at = a.at …"
            yield Problem("join.semi", message, operator.place, hint, why)


def deduplication_without_watermark(context: CheckContext) -> Iterator[Problem]:
    """Deduplication within a watermark needs one."""
    for _, operator in context.sink_operators("within"):
        if operator.bounded is False:
            hint = "give the source or the table that it reads a watermark, as [at, 10 seconds]"
            yield Problem("watermark.missing", f"{operator.what} needs a watermark", operator.place, hint)


def unknown_watermark_column(context: CheckContext) -> Iterator[Problem]:
    """A watermark's column must be one of the source's or the table's."""
    for element in context.elements:
        column = element.watermark.column if element.watermark else ""
        columns = context.columns(element) if column else None
        names = [candidate.name for candidate in columns or ()]
        if columns is not None and column.lower() not in map(str.lower, names):
            message = f"the watermark of {element.name!r} is on {column!r}, which is none of its columns"
            yield Problem("watermark.column", message, _place(element), did_you_mean(column, names))


def watermark_not_a_time(context: CheckContext) -> Iterator[Problem]:
    """A watermark is on a timestamp."""
    for source in context.pipeline.sources:
        schema = context.source_facts(source).schema
        if not schema or not source.watermark:
            continue
        column = source.watermark.column
        for field in schema.fields:
            name = getattr(field.type, "name", None)
            if field.name.lower() == column.lower() and isinstance(name, str) and name not in _TIMESTAMP_TYPES:
                message = f"the watermark of {source.name!r} is on {column!r}, which is {name} and no timestamp"
                hint = f"declare it as {column} timestamp, or make a table that casts it and set the watermark there"
                yield Problem("watermark.type", message, _place(source), hint)


def _place(element: SourceDef | TableDef) -> SourceLocation:
    places = element.connection.places if isinstance(element, SourceDef) else {}
    return places.get("watermark", element.place)
