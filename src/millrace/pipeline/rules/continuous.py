"""`trigger: continuous`: only rows that are changed or left out, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem
from millrace.pipeline.rules.scope import Scope, written_to

_HINT = "use another trigger, as 1s, or leave it out"
_ALLOWED = ("python",)


def sources(scope: Scope) -> Iterator[Problem]:
    """Few sources can be read continuously."""
    for sink in scope.sinks_with("continuous"):
        for source in scope.sources_of(sink):
            reason = scope.source_facts(source).continuous
            if reason:
                said = f"source {source.name!r} prevents trigger: continuous"
                yield Problem("continuous.source", said, source.place, _HINT, reason)


def sink(scope: Scope) -> Iterator[Problem]:
    """Few sinks can be written continuously."""
    for one in scope.sinks_with("continuous"):
        reason = scope.sink_facts(one).continuous
        if reason:
            said = f"{written_to(one)} prevents trigger: continuous"
            yield Problem("continuous.sink", said, one.place, _HINT, reason)


def watermarks(scope: Scope) -> Iterator[Problem]:
    """Continuous processing has no event time."""
    for one in scope.sinks_with("continuous"):
        for element in scope.watermarked(one):
            said = f"the watermark of {element.name!r} prevents trigger: continuous"
            yield Problem("continuous.watermark", said, element.place, _HINT, "Spark has none there")


def operators(scope: Scope) -> Iterator[Problem]:
    """Continuous processing only projects and filters."""
    for one in scope.sinks_with("continuous"):
        for step in scope.shape(one.table).steps:
            if step.kind not in _ALLOWED and step.sure:
                said = f"{step.what} in {step.table!r} prevents trigger: continuous"
                why = "continuous processing only selects and filters rows"
                yield Problem("continuous.operator", said, step.place, _HINT, why)
