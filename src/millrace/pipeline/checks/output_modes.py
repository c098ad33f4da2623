"""Output modes: what a sink can take and what a query can give. The rules are those of Spark's own checker.

Operations that Spark does not do on a stream, or not in every output mode.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation, did_you_mean
from millrace.pipeline.analysis.operators import Operator
from millrace.pipeline.checks.context import CheckContext, written_to
from millrace.pipeline.model import MODES, SinkDef


def unknown_mode(scope: CheckContext) -> Iterator[Problem]:
    """There are three."""
    for sink in scope.pipeline.sinks:
        if sink.mode and sink.mode not in MODES:
            said = f"{written_to(sink)} has an unknown mode {sink.mode!r}"
            yield Problem("mode.unknown", said, _place(sink), did_you_mean(sink.mode, MODES))


def mode_of_sink(scope: CheckContext) -> Iterator[Problem]:
    """Not every sink can change or replace rows that it has written."""
    for sink in scope.pipeline.sinks:
        modes = scope.sink_facts(sink).modes
        if sink.mode in MODES and sink.mode not in modes:
            said = f"{written_to(sink)} cannot write in {sink.mode} mode"
            yield Problem("mode.sink", said, _place(sink), f"use mode: {' or '.join(modes)}")


def complete_without_aggregation(scope: CheckContext) -> Iterator[Problem]:
    """Complete mode writes the whole result each time, which only an aggregation has."""
    for sink in scope.pipeline.sinks:
        shape = scope.shape(sink.table)
        if sink.mode == "complete" and shape.streaming and not shape.aggregated and not shape.opaque:
            said = f"{written_to(sink)} is in complete mode, and nothing is aggregated"
            why = "complete mode writes the whole result each time; without aggregation that is every row ever read"
            yield Problem("mode.complete", said, _place(sink), "use mode: append", why)


def append_without_watermark(scope: CheckContext) -> Iterator[Problem]:
    """Append mode writes a group when it is finished, and only a watermark says when that is."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "aggregate") if sink.mode == "append" else ():
            if step.bounded is False:
                said = f"{written_to(sink)} is in append mode, and {step.what} has no watermark"
                why = f"without one no group of {step.table!r} ({step.place}) is ever finished and written"
                yield Problem("mode.append", said, _place(sink), _append_hint(scope, sink, step), why)
                break


def _append_hint(scope: CheckContext, sink: SinkDef, step: Operator) -> str:
    own = scope.pipeline.table(step.table)
    if own and own.watermark:
        return f"the watermark of {own.name!r} holds for its result: give one to what it reads, or use mode: update"
    held = [one.watermark.column for one in scope.watermarked(sink) if one.watermark and one.watermark.column]
    if held:
        column = held[0]
        return f"group by {column} or by window({column}, '1 minute'), or use mode: update"
    return "give the source a watermark, as [at, 10 seconds], and group by a window of it; or use mode: update"


def sessions_in_update(scope: CheckContext) -> Iterator[Problem]:
    """A session grows and merges, so there is nothing to update."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "aggregate"):
            if sink.mode == "update" and step.session:
                said = f"{written_to(sink)} is in update mode, which session windows do not have"
                why = f"{step.table!r} groups by session_window ({step.place})"
                yield Problem("mode.session", said, _place(sink), "use mode: append with a watermark, or complete", why)


def joins_out_of_mode(scope: CheckContext) -> Iterator[Problem]:
    """Two streams are joined in append mode; an inner or semi join also in update mode."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "join"):
            outer = step.join in ("left", "right", "full")
            if sink.mode == "complete" or (sink.mode == "update" and outer):
                said = (
                    f"{written_to(sink)} is in {sink.mode} mode, which a {step.join} join of two streams does not have"
                )
                why = f"{step.table!r} joins two streams ({step.place})"
                yield Problem("mode.join", said, _place(sink), "use mode: append", why)


def chained_aggregation(scope: CheckContext) -> Iterator[Problem]:
    """A result that is aggregated again must be final, which it is in append mode only."""
    for sink in scope.pipeline.sinks:
        if sink.mode not in ("update", "complete"):
            continue
        shape = scope.shape(sink.table)
        for step in shape.steps:
            within = any(one.kind == "aggregate" and one.bounded for one in shape.steps)
            kinds = ("aggregate", "join", "state", *(("deduplicate", "within") if within else ()))
            if step.kind in kinds and step.after_aggregate and step.sure:
                said = f"{step.what} comes after another aggregation, which {sink.mode} mode does not allow"
                why = "the first aggregation's rows still change"
                hint = "use mode: append, with a watermark and windows in both"
                yield Problem("mode.chained", said, step.place, hint, why)


def _place(sink: SinkDef) -> SourceLocation:
    return sink.connection.places.get("mode", sink.place)


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


def unsupported_operation(scope: CheckContext) -> Iterator[Problem]:
    """Operations that no stream allows, whatever the mode."""
    for sink in scope.pipeline.sinks:
        for step in scope.shape(sink.table).steps:
            if step.kind in _NEVER and step.sure:
                condition, said, hint = _NEVER[step.kind]
                yield Problem(condition, f"{step.what} {said}", step.place, hint)


def sorting(scope: CheckContext) -> Iterator[Problem]:
    """Only a whole result can be sorted: one that was aggregated, in complete mode."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "sort"):
            if sink.mode != "complete" or not step.after_aggregate:
                why = f"rows come without end, and {written_to(sink)} writes in {sink.mode} mode"
                hint = "sort after an aggregation, in mode: complete; or leave it to whoever reads the result"
                yield Problem("stream.sort", f"{step.what} cannot sort a stream", step.place, hint, why)


def limiting(scope: CheckContext) -> Iterator[Problem]:
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


def anti_joins(scope: CheckContext) -> Iterator[Problem]:
    """That a row has no partner is never known while the other side still flows."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "join"):
            if step.join == "anti":
                hint = "use a LEFT JOIN with a watermark and a time bound, and keep the rows without a partner"
                yield Problem("stream.anti-join", "two streams cannot be anti-joined", step.place, hint)
