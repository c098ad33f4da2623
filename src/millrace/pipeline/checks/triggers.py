"""Rules for `trigger: realtime` and `trigger: continuous`.

- Both triggers need sources and sinks that support them, and have no watermarks.
- Real-time mode writes in update mode, and has a limited set of operators.
- Continuous processing only selects and filters rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks.context import CheckContext, sink_name
from millrace.pipeline.connector_facts import Connectors, Facts
from millrace.pipeline.model import PipelineDef, SinkDef, Trigger

_SOURCE_CONDITIONS = {"realtime": "realtime.source", "continuous": "continuous.source"}
_SINK_CONDITIONS = {"realtime": "realtime.sink", "continuous": "continuous.sink"}
_WATERMARK_CONDITIONS = {
    "realtime": ("realtime.watermark", "Spark's real-time mode has no watermarks"),
    "continuous": ("continuous.watermark", "Spark has none there"),
}
_REFUSED_OPERATORS = {
    "join": "a join of two streams",
    "python": "Python code of your own",
    "state": "state kept by Python code",
    "sort": "sorting",
    "limit": "a limit",
    "within": "deduplication within a watermark",
}
_HINT = "use another trigger, as 1s, or leave it out"


def realtime_obstacles(pipeline: PipelineDef, sink: SinkDef, connectors: Connectors) -> list[Problem]:
    """Return the problems that a sink would have with the real-time trigger."""
    realtime = replace(pipeline, sinks=(replace(sink, trigger=Trigger("realtime")),))
    context = CheckContext(realtime, connectors)
    rules = (realtime_mode, trigger_sources, trigger_sink, trigger_watermarks, realtime_operators)
    return [problem for rule in rules for problem in rule(context)]


def _sinks_without_batches(context: CheckContext) -> Iterator[tuple[str, SinkDef]]:
    for trigger in _SOURCE_CONDITIONS:
        yield from ((trigger, sink) for sink in context.sinks_with(trigger))


def _obstacle(facts: Facts, trigger: str) -> str | None:
    return facts.realtime if trigger == "realtime" else facts.continuous


def trigger_sources(context: CheckContext) -> Iterator[Problem]:
    """A source must support its sink's trigger."""
    for trigger, sink in _sinks_without_batches(context):
        for source in context.sources_of(sink):
            if reason := _obstacle(context.source_facts(source), trigger):
                message = f"source {source.name!r} prevents trigger: {trigger}"
                yield Problem(_SOURCE_CONDITIONS[trigger], message, source.place, _HINT, reason)


def trigger_sink(context: CheckContext) -> Iterator[Problem]:
    """A sink must support its trigger."""
    for trigger, sink in _sinks_without_batches(context):
        if reason := _obstacle(context.sink_facts(sink), trigger):
            message = f"{sink_name(sink)} prevents trigger: {trigger}"
            yield Problem(_SINK_CONDITIONS[trigger], message, sink.place, _HINT, reason)


def trigger_watermarks(context: CheckContext) -> Iterator[Problem]:
    """Real-time mode and continuous processing have no watermarks."""
    for trigger, sink in _sinks_without_batches(context):
        condition, why = _WATERMARK_CONDITIONS[trigger]
        for element in context.watermarked(sink):
            message = f"the watermark of {element.name!r} prevents trigger: {trigger}"
            yield Problem(condition, message, element.place, _HINT, why)


def realtime_mode(context: CheckContext) -> Iterator[Problem]:
    """Real-time mode writes each row as it comes, which is update mode."""
    for sink in context.sinks_with("realtime"):
        if sink.mode in ("append", "complete"):
            message = f"{sink_name(sink)} is in {sink.mode} mode, and a realtime trigger needs update"
            yield Problem("realtime.mode", message, sink.mode_place, "use mode: update")


def realtime_operators(context: CheckContext) -> Iterator[Problem]:
    """Real-time mode has projections, filters, explode, unions, static joins, aggregation and deduplication."""
    for sink, operator in context.sink_operators(*_REFUSED_OPERATORS):
        if context.trigger(sink).kind == "realtime":
            yield realtime_refusal(operator.kind, operator.what, operator.table, operator.place)


def realtime_refusal(kind: str, what: str, table: str, place: SourceLocation) -> Problem:
    """Return the problem of an operator that real-time mode does not have."""
    why = f"Spark's real-time mode does not do {_REFUSED_OPERATORS[kind]}"
    return Problem("realtime.operator", f"{what} in {table!r} prevents trigger: realtime", place, _HINT, why)


def realtime_shared_table(context: CheckContext) -> Iterator[Problem]:
    """In real-time mode each sink is a query of its own."""
    sinks_of_table = Counter(sink.table.lower() for sink in context.sinks_with("realtime"))
    for sink in context.sinks_with("realtime"):
        if (count := sinks_of_table[sink.table.lower()]) > 1:
            message = f"{sink.table!r} has {count} sinks with trigger: realtime"
            why = "each of them reads the source and computes the table on its own"
            yield Problem("realtime.sinks", message, sink.place, "write to one, and read from there", why, "warning")


def continuous_operators(context: CheckContext) -> Iterator[Problem]:
    """Continuous processing only projects and filters."""
    for sink in context.sinks_with("continuous"):
        for operator in context.plan(sink.table).operators:
            if operator.kind != "python" and operator.certain:
                message = f"{operator.what} in {operator.table!r} prevents trigger: continuous"
                why = "continuous processing only selects and filters rows"
                yield Problem("continuous.operator", message, operator.place, _HINT, why)
