"""Output modes: what a sink can take and what a query can give. The rules are those of Spark's own checker."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Place, Problem, did_you_mean
from millrace.pipeline.model import MODES, Sink
from millrace.pipeline.rules.scope import Scope, written_to
from millrace.pipeline.shapes.shape import Step


def unknown_mode(scope: Scope) -> Iterator[Problem]:
    """There are three."""
    for sink in scope.pipeline.sinks:
        if sink.mode and sink.mode not in MODES:
            said = f"{written_to(sink)} has an unknown mode {sink.mode!r}"
            yield Problem("mode.unknown", said, _place(sink), did_you_mean(sink.mode, MODES))


def mode_of_sink(scope: Scope) -> Iterator[Problem]:
    """Not every sink can change or replace rows that it has written."""
    for sink in scope.pipeline.sinks:
        modes = scope.sink_facts(sink).modes
        if sink.mode in MODES and sink.mode not in modes:
            said = f"{written_to(sink)} cannot write in {sink.mode} mode"
            yield Problem("mode.sink", said, _place(sink), f"use mode: {' or '.join(modes)}")


def complete_without_aggregation(scope: Scope) -> Iterator[Problem]:
    """Complete mode writes the whole result each time, which only an aggregation has."""
    for sink in scope.pipeline.sinks:
        shape = scope.shape(sink.table)
        if sink.mode == "complete" and shape.streaming and not shape.aggregated and not shape.opaque:
            said = f"{written_to(sink)} is in complete mode, and nothing is aggregated"
            why = "complete mode writes the whole result each time; without aggregation that is every row ever read"
            yield Problem("mode.complete", said, _place(sink), "use mode: append", why)


def append_without_watermark(scope: Scope) -> Iterator[Problem]:
    """Append mode writes a group when it is finished, and only a watermark says when that is."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "aggregate") if sink.mode == "append" else ():
            if step.bounded is False:
                said = f"{written_to(sink)} is in append mode, and {step.what} has no watermark"
                why = f"without one no group of {step.table!r} ({step.place}) is ever finished and written"
                yield Problem("mode.append", said, _place(sink), _append_hint(scope, sink, step), why)
                break


def _append_hint(scope: Scope, sink: Sink, step: Step) -> str:
    own = scope.pipeline.table(step.table)
    if own and own.watermark:
        return f"the watermark of {own.name!r} holds for its result: give one to what it reads, or use mode: update"
    held = [one.watermark.column for one in scope.watermarked(sink) if one.watermark and one.watermark.column]
    if held:
        column = held[0]
        return f"group by {column} or by window({column}, '1 minute'), or use mode: update"
    return "give the source a watermark, as [at, 10 seconds], and group by a window of it; or use mode: update"


def sessions_in_update(scope: Scope) -> Iterator[Problem]:
    """A session grows and merges, so there is nothing to update."""
    for sink in scope.pipeline.sinks:
        for step in scope.steps(sink, "aggregate"):
            if sink.mode == "update" and step.session:
                said = f"{written_to(sink)} is in update mode, which session windows do not have"
                why = f"{step.table!r} groups by session_window ({step.place})"
                yield Problem("mode.session", said, _place(sink), "use mode: append with a watermark, or complete", why)


def joins_out_of_mode(scope: Scope) -> Iterator[Problem]:
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


def chained(scope: Scope) -> Iterator[Problem]:
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


def _place(sink: Sink) -> Place:
    return sink.connection.places.get("mode", sink.place)
