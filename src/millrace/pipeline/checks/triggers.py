"""`trigger: realtime`: what Spark's real-time mode does not do, and which element asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from millrace.errors import Place, Problem
from millrace.pipeline.facts import Connectors
from millrace.pipeline.model import Pipeline, Sink, Trigger
from millrace.pipeline.rules.scope import Scope, written_to

_REFUSED = {
    "join": "a join of two streams",
    "python": "Python code of your own",
    "state": "state kept by Python code",
    "sort": "sorting",
    "limit": "a limit",
    "within": "deduplication within a watermark",
}
_HINT = "use another trigger, as 1s, or leave it out"


def obstacles(pipeline: Pipeline, written: Sink, connectors: Connectors) -> list[Problem]:
    """What would stand in the way of a sink if it had the trigger."""
    asked = replace(pipeline, sinks=(replace(written, trigger=Trigger("realtime")),))
    scope = Scope(asked, connectors)
    return [problem for rule in (mode, sources, sink, watermarks, operators) for problem in rule(scope)]


def mode(scope: Scope) -> Iterator[Problem]:
    """Real-time mode writes each row as it comes, which is update mode."""
    for sink in scope.sinks_with("realtime"):
        if sink.mode in ("append", "complete"):
            said = f"{written_to(sink)} is in {sink.mode} mode, and a realtime trigger needs update"
            yield Problem("realtime.mode", said, sink.connection.places.get("mode", sink.place), "use mode: update")


def sources(scope: Scope) -> Iterator[Problem]:
    """Not every source can be followed row by row."""
    for sink in scope.sinks_with("realtime"):
        for source in scope.sources_of(sink):
            reason = scope.source_facts(source).realtime
            if reason:
                said = f"source {source.name!r} prevents trigger: realtime"
                yield Problem("realtime.source", said, source.place, _HINT, reason)


def sink(scope: Scope) -> Iterator[Problem]:
    """Not every sink takes single rows."""
    for one in scope.sinks_with("realtime"):
        reason = scope.sink_facts(one).realtime
        if reason:
            yield Problem("realtime.sink", f"{written_to(one)} prevents trigger: realtime", one.place, _HINT, reason)


def watermarks(scope: Scope) -> Iterator[Problem]:
    """Real-time mode has no watermarks."""
    for one in scope.sinks_with("realtime"):
        for element in scope.watermarked(one):
            said = f"the watermark of {element.name!r} prevents trigger: realtime"
            why = "Spark's real-time mode has no watermarks"
            yield Problem("realtime.watermark", said, element.place, _HINT, why)


def operators(scope: Scope) -> Iterator[Problem]:
    """Real-time mode has projections, filters, explode, unions, static joins, aggregation and deduplication."""
    for one in scope.sinks_with("realtime"):
        for step in scope.shape(one.table).steps:
            if step.kind in _REFUSED and step.sure:
                yield refusal(step.kind, step.what, step.table, step.place)


def refusal(kind: str, what: str, table: str, place: Place) -> Problem:
    """What is in a table, of a kind that real-time mode does not do."""
    why = f"Spark's real-time mode does not do {_REFUSED[kind]}"
    return Problem("realtime.operator", f"{what} in {table!r} prevents trigger: realtime", place, _HINT, why)


def shared_table(scope: Scope) -> Iterator[Problem]:
    """In real-time mode each sink is a query of its own."""
    taken = Counter(one.table.lower() for one in scope.sinks_with("realtime"))
    for one in scope.sinks_with("realtime"):
        if taken[one.table.lower()] > 1:
            said = f"{one.table!r} has {taken[one.table.lower()]} sinks with trigger: realtime"
            why = "each of them reads the source and computes the table on its own"
            yield Problem("realtime.sinks", said, one.place, "write to one, and read from there", why, "warning")
