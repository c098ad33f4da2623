"""Operations that Spark does not do on a stream, or not in every output mode."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem
from millrace.pipeline.rules.scope import Scope, written_to

_NEVER = {
    "offset": ("stream.offset", "cannot be used on a stream", None),
    "over": ("stream.over", "needs all rows, and a stream has no end", "group by window(…) of an event time instead"),
    "distinct": ("stream.distinct-aggregate", "cannot be used on a stream", "use approx_count_distinct(…)"),
    "pivot": ("stream.pivot", "cannot be used on a stream", "use count(*) FILTER (WHERE …) for each value"),
    "intersect": ("stream.intersect", "cannot be used on a stream", "use LEFT SEMI JOIN"),
    "except": ("stream.except", "cannot take rows away by a stream", "use a join with a time bound"),
    "subquery": ("stream.subquery", "cannot read a stream", "join with it instead"),
    "sample": ("stream.sample", "cannot be used on a stream", "filter by rand() < 0.1 instead"),
    "mixed": ("stream.union", "cannot join a stream's rows to those of a static table", "read both as streams"),
    "outer": (
        "stream.outer-join",
        "would have to keep the static side's rows until the stream ends, which it does not",
        "let the stream be the side that is kept, or use an inner join",
    ),
    "number": ("stream.row-number", "cannot be used on a stream", "use uuid() or a column of the record"),
    "action": ("stream.action", "runs at once, and a stream has no end", "leave that to the sink"),
}


def unsupported(scope: Scope) -> Iterator[Problem]:
    """Operations that no stream allows, whatever the mode."""
    for sink in scope.pipeline.sinks:
        for step in scope.shape(sink.table).steps:
            if step.kind in _NEVER and step.sure:
                condition, said, hint = _NEVER[step.kind]
                yield Problem(condition, f"{step.what} {said}", step.place, hint)


def sorting(scope: Scope) -> Iterator[Problem]:
    """Only a whole result can be sorted: one that was aggregated, in complete mode."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "sort"):
            if sink.mode != "complete" or not step.after_aggregate:
                why = f"rows come without end, and {written_to(sink)} writes in {sink.mode} mode"
                hint = "sort after an aggregation, in mode: complete; or leave it to whoever reads the result"
                yield Problem("stream.sort", f"{step.what} cannot sort a stream", step.place, hint, why)


def limiting(scope: Scope) -> Iterator[Problem]:
    """A limit counts all rows of a stream's life: update mode refuses it, and in append mode the query falls silent."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "limit"):
            if sink.mode == "update":
                why = f"{written_to(sink)} writes in update mode"
                yield Problem("stream.limit", f"{step.what} cannot be used in update mode", step.place, _LIMIT, why)
            elif sink.mode == "append" or not step.after_aggregate:
                said = f"{step.what} counts from the first row ever: after that no row comes through any more"
                yield Problem("stream.limit-ends", said, step.place, _LIMIT, severity="warning")


_LIMIT = "for the first N of a result, use ORDER BY and LIMIT after an aggregation, in mode: complete"


def anti_joins(scope: Scope) -> Iterator[Problem]:
    """That a row has no partner is never known while the other side still flows."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "join"):
            if step.join == "anti":
                hint = "use a LEFT JOIN with a watermark and a time bound, and keep the rows without a partner"
                yield Problem("stream.anti-join", "two streams cannot be anti-joined", step.place, hint)
