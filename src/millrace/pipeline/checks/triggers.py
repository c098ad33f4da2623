"""`trigger: realtime`: what Spark's real-time mode does not do, and which element asks for it.

`trigger: continuous`: only rows that are changed or left out, one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks.context import CheckContext, written_to
from millrace.pipeline.connector_facts import Connectors
from millrace.pipeline.model import PipelineDef, SinkDef, Trigger

_REFUSED = {
    "join": "a join of two streams",
    "python": "Python code of your own",
    "state": "state kept by Python code",
    "sort": "sorting",
    "limit": "a limit",
    "within": "deduplication within a watermark",
}
_REALTIME_HINT = "use another trigger, as 1s, or leave it out"


def realtime_obstacles(pipeline: PipelineDef, written: SinkDef, connectors: Connectors) -> list[Problem]:
    """What would stand in the way of a sink if it had the trigger."""
    asked = replace(pipeline, sinks=(replace(written, trigger=Trigger("realtime")),))
    scope = CheckContext(asked, connectors)
    return [
        problem
        for rule in (realtime_mode, realtime_sources, realtime_sink, realtime_watermarks, realtime_operators)
        for problem in rule(scope)
    ]


def realtime_mode(scope: CheckContext) -> Iterator[Problem]:
    """Real-time mode writes each row as it comes, which is update mode."""
    for sink in scope.sinks_with("realtime"):
        if sink.mode in ("append", "complete"):
            said = f"{written_to(sink)} is in {sink.mode} mode, and a realtime trigger needs update"
            yield Problem("realtime.mode", said, sink.connection.places.get("mode", sink.place), "use mode: update")


def realtime_sources(scope: CheckContext) -> Iterator[Problem]:
    """Not every source can be followed row by row."""
    for sink in scope.sinks_with("realtime"):
        for source in scope.sources_of(sink):
            reason = scope.source_facts(source).realtime
            if reason:
                said = f"source {source.name!r} prevents trigger: realtime"
                yield Problem("realtime.source", said, source.place, _REALTIME_HINT, reason)


def realtime_sink(scope: CheckContext) -> Iterator[Problem]:
    """Not every sink takes single rows."""
    for one in scope.sinks_with("realtime"):
        reason = scope.sink_facts(one).realtime
        if reason:
            yield Problem(
                "realtime.sink", f"{written_to(one)} prevents trigger: realtime", one.place, _REALTIME_HINT, reason
            )


def realtime_watermarks(scope: CheckContext) -> Iterator[Problem]:
    """Real-time mode has no watermarks."""
    for one in scope.sinks_with("realtime"):
        for element in scope.watermarked(one):
            said = f"the watermark of {element.name!r} prevents trigger: realtime"
            why = "Spark's real-time mode has no watermarks"
            yield Problem("realtime.watermark", said, element.place, _REALTIME_HINT, why)


def realtime_operators(scope: CheckContext) -> Iterator[Problem]:
    """Real-time mode has projections, filters, explode, unions, static joins, aggregation and deduplication."""
    for one in scope.sinks_with("realtime"):
        for step in scope.shape(one.table).steps:
            if step.kind in _REFUSED and step.sure:
                yield realtime_refusal(step.kind, step.what, step.table, step.place)


def realtime_refusal(kind: str, what: str, table: str, place: SourceLocation) -> Problem:
    """What is in a table, of a kind that real-time mode does not do."""
    why = f"Spark's real-time mode does not do {_REFUSED[kind]}"
    return Problem("realtime.operator", f"{what} in {table!r} prevents trigger: realtime", place, _REALTIME_HINT, why)


def realtime_shared_table(scope: CheckContext) -> Iterator[Problem]:
    """In real-time mode each sink is a query of its own."""
    taken = Counter(one.table.lower() for one in scope.sinks_with("realtime"))
    for one in scope.sinks_with("realtime"):
        if taken[one.table.lower()] > 1:
            said = f"{one.table!r} has {taken[one.table.lower()]} sinks with trigger: realtime"
            why = "each of them reads the source and computes the table on its own"
            yield Problem("realtime.sinks", said, one.place, "write to one, and read from there", why, "warning")


_CONTINUOUS_HINT = "use another trigger, as 1s, or leave it out"
_ALLOWED = ("python",)


def continuous_sources(scope: CheckContext) -> Iterator[Problem]:
    """Few sources can be read continuously."""
    for sink in scope.sinks_with("continuous"):
        for source in scope.sources_of(sink):
            reason = scope.source_facts(source).continuous
            if reason:
                said = f"source {source.name!r} prevents trigger: continuous"
                yield Problem("continuous.source", said, source.place, _CONTINUOUS_HINT, reason)


def continuous_sink(scope: CheckContext) -> Iterator[Problem]:
    """Few sinks can be written continuously."""
    for one in scope.sinks_with("continuous"):
        reason = scope.sink_facts(one).continuous
        if reason:
            said = f"{written_to(one)} prevents trigger: continuous"
            yield Problem("continuous.sink", said, one.place, _CONTINUOUS_HINT, reason)


def continuous_watermarks(scope: CheckContext) -> Iterator[Problem]:
    """Continuous processing has no event time."""
    for one in scope.sinks_with("continuous"):
        for element in scope.watermarked(one):
            said = f"the watermark of {element.name!r} prevents trigger: continuous"
            yield Problem("continuous.watermark", said, element.place, _CONTINUOUS_HINT, "Spark has none there")


def continuous_operators(scope: CheckContext) -> Iterator[Problem]:
    """Continuous processing only projects and filters."""
    for one in scope.sinks_with("continuous"):
        for step in scope.shape(one.table).steps:
            if step.kind not in _ALLOWED and step.sure:
                said = f"{step.what} in {step.table!r} prevents trigger: continuous"
                why = "continuous processing only selects and filters rows"
                yield Problem("continuous.operator", said, step.place, _CONTINUOUS_HINT, why)
