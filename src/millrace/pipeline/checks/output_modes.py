"""Rules about output modes, and about operators that Spark does not support on a stream; as in Spark's own checker.

- A sink must support its mode, and its query must have a result in that mode.
- Some operators need a certain mode, and some are not possible on any stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, did_you_mean
from millrace.pipeline.analysis.operators import Operator
from millrace.pipeline.checks.context import CheckContext, sink_name
from millrace.pipeline.model import MODES, SinkDef

_LIMIT_HINT = "for the first N of a result, use ORDER BY and LIMIT after an aggregation, in mode: complete"


def unknown_mode(context: CheckContext) -> Iterator[Problem]:
    """A mode is append, update or complete."""
    for sink in context.pipeline.sinks:
        if sink.mode and sink.mode not in MODES:
            message = f"{sink_name(sink)} has an unknown mode {sink.mode!r}"
            yield Problem("mode.unknown", message, sink.mode_place, did_you_mean(sink.mode, MODES))


def mode_of_sink(context: CheckContext) -> Iterator[Problem]:
    """A sink must support its mode: not every sink can update or replace rows."""
    for sink in context.pipeline.sinks:
        modes = context.sink_facts(sink).modes
        if sink.mode in MODES and sink.mode not in modes:
            message = f"{sink_name(sink)} cannot write in {sink.mode} mode"
            yield Problem("mode.sink", message, sink.mode_place, f"use mode: {' or '.join(modes)}")


def complete_without_aggregation(context: CheckContext) -> Iterator[Problem]:
    """Complete mode needs an aggregation: it writes the whole result in each batch."""
    for sink in context.pipeline.sinks:
        plan = context.plan(sink.table)
        if sink.mode == "complete" and plan.streaming and not plan.aggregated and not plan.opaque:
            message = f"{sink_name(sink)} is in complete mode, and nothing is aggregated"
            why = "complete mode writes the whole result each time; without aggregation that is every row ever read"
            yield Problem("mode.complete", message, sink.mode_place, "use mode: append", why)


def append_without_watermark(context: CheckContext) -> Iterator[Problem]:
    """Append mode needs a watermark: it writes a group when the watermark has passed it."""
    reported: set[int] = set()
    for sink, operator in context.sink_operators("aggregate"):
        if sink.mode == "append" and operator.bounded is False and id(sink) not in reported:
            reported.add(id(sink))
            message = f"{sink_name(sink)} is in append mode, and {operator.what} has no watermark"
            why = f"without one no group of {operator.table!r} ({operator.place}) is ever finished and written"
            yield Problem("mode.append", message, sink.mode_place, _append_hint(context, sink, operator), why)


def _append_hint(context: CheckContext, sink: SinkDef, operator: Operator) -> str:
    table = context.pipeline.table(operator.table)
    for join in context.plan(sink.table).operators:
        if join.kind == "join" and join.bounded is False:
            return f"give the join ({join.place}) a time bound in both directions: its rows are in no order of time"
    if table and table.watermark:
        return f"the watermark of {table.name!r} holds for its result: give one to what it reads, or use mode: update"
    if table and table.ranking:
        read = context.plan(table.reads[0])
        column = next(iter(sorted(read.watermark_columns or ())), "")
        if read.aggregated:
            return f"add {column} to by" if column else f"select the window in {table.reads[0]!r}, and add it to by"
        if column:
            return f"add \"window({column}, '1 minute')\" to by, or use mode: update"
    for element in context.watermarked(sink):
        if element.watermark and (column := element.watermark.column):
            return f"group by {column} or by window({column}, '1 minute'), or use mode: update"
    return "give the source a watermark, as [at, 10 seconds], and group by a window of it; or use mode: update"


def sessions_in_update(context: CheckContext) -> Iterator[Problem]:
    """Update mode has no session windows, which grow and merge."""
    for sink, operator in context.sink_operators("aggregate"):
        if sink.mode == "update" and operator.session:
            message = f"{sink_name(sink)} is in update mode, which session windows do not have"
            why = f"{operator.table!r} groups by session_window ({operator.place})"
            hint = "use mode: append with a watermark, or complete"
            yield Problem("mode.session", message, sink.mode_place, hint, why)


def sessions_without_key(context: CheckContext) -> Iterator[Problem]:
    """Session windows need another key: Spark keeps the sessions of each key together."""
    for _, operator in context.sink_operators("aggregate"):
        if operator.session and operator.keys is not None and len(operator.keys) == 1:
            message = f"{operator.what} has session_window as its only key, which a stream does not have"
            yield Problem("stream.session-key", message, operator.place, "group by another column as well")


def joins_out_of_mode(context: CheckContext) -> Iterator[Problem]:
    """Two streams are joined in append mode; an inner or semi join also in update mode."""
    for sink, operator in context.sink_operators("join"):
        outer = operator.join in ("left", "right", "full")
        if sink.mode == "complete" or (sink.mode == "update" and outer):
            join = f"a {operator.join} join of two streams"
            message = f"{sink_name(sink)} is in {sink.mode} mode, which {join} does not have"
            why = f"{operator.table!r} joins two streams ({operator.place})"
            yield Problem("mode.join", message, sink.mode_place, "use mode: append", why)


def chained_aggregation(context: CheckContext) -> Iterator[Problem]:
    """A result that is aggregated again must be final, which it is in append mode only."""
    for sink in context.pipeline.sinks:
        if sink.mode not in ("update", "complete"):
            continue
        plan = context.plan(sink.table)
        bounded = any(operator.kind == "aggregate" and operator.bounded for operator in plan.operators)
        kinds = ("aggregate", "join", "state", *(("deduplicate", "within") if bounded else ()))
        for operator in plan.operators:
            if operator.kind in kinds and operator.after_aggregate and operator.certain:
                message = f"{operator.what} comes after another aggregation, which {sink.mode} mode does not allow"
                why = "the first aggregation's rows still change"
                hint = "use mode: append, with a watermark and windows in both"
                yield Problem("mode.chained", message, operator.place, hint, why)


_UNSUPPORTED = {
    "offset": ("stream.offset", "cannot be used on a stream", None),
    "over": ("stream.over", "needs all rows, and a stream has no end", "group by window(…) of an event time instead"),
    "distinct": ("stream.distinct-aggregate", "cannot be used on a stream", "use size(collect_set(…))"),
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


def unsupported_operation(context: CheckContext) -> Iterator[Problem]:
    """Operations that no stream allows, whatever the mode."""
    for _, operator in context.sink_operators(*_UNSUPPORTED):
        condition, message, hint = _UNSUPPORTED[operator.kind]
        yield Problem(condition, f"{operator.what} {message}", operator.place, operator.hint or hint)


def sorting(context: CheckContext) -> Iterator[Problem]:
    """Only a whole result can be sorted: one that was aggregated, in complete mode."""
    for sink, operator in context.sink_operators("sort"):
        if sink.mode != "complete" or not operator.after_aggregate:
            why = f"rows come without end, and {sink_name(sink)} writes in {sink.mode} mode"
            hint = "sort after an aggregation, in mode: complete; or leave it to the reader of the result"
            hint = f"{operator.hint}; or {hint}" if operator.hint else hint
            yield Problem("stream.sort", f"{operator.what} cannot sort a stream", operator.place, hint, why)


def limiting(context: CheckContext) -> Iterator[Problem]:
    """A limit counts all rows since the first batch: update mode refuses it, and in append mode output ends."""
    for sink, operator in context.sink_operators("limit"):
        if sink.mode == "update":
            why = f"{sink_name(sink)} writes in update mode"
            message = f"{operator.what} cannot be used in update mode"
            yield Problem("stream.limit", message, operator.place, _limit_hint(operator), why)
        elif sink.mode == "append" or not operator.after_aggregate:
            message = f"{operator.what} counts from the first row ever: after that no row comes through any more"
            yield Problem("stream.limit-ends", message, operator.place, _limit_hint(operator), severity="warning")


def _limit_hint(operator: Operator) -> str:
    return f"{operator.hint}; or {_LIMIT_HINT}" if operator.hint else _LIMIT_HINT


def anti_joins(context: CheckContext) -> Iterator[Problem]:
    """Two streams cannot be anti-joined: a match may still come."""
    for _, operator in context.sink_operators("join"):
        if operator.join == "anti":
            hint = "use a LEFT JOIN with a watermark and a time bound, and keep the rows without a partner"
            yield Problem("stream.anti-join", "two streams cannot be anti-joined", operator.place, hint)
