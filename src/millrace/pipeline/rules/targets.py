"""What sinks write to: two that disturb each other, and rows that come back to where they came from."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem
from millrace.pipeline.model import Sink
from millrace.pipeline.rules.scope import Scope, written_to


def shared(scope: Scope) -> Iterator[Problem]:
    """Sinks that must be the only writers of something, and are not."""
    first: dict[str, Sink] = {}
    for sink in scope.pipeline.sinks:
        facts = scope.sink_facts(sink)
        for target in facts.touches if facts.alone else ():
            if target in first:
                said = f"{written_to(sink)} and {written_to(first[target])} both write to {target}"
                yield Problem("sink.shared", said, sink.place, "give each a place of its own")
            first.setdefault(target, sink)


def loops(scope: Scope) -> Iterator[Problem]:
    """A sink that writes to what its own rows are read from."""
    for sink in scope.pipeline.sinks:
        read = {one: source for source in scope.sources_of(sink) for one in scope.source_facts(source).touches}
        for target in scope.sink_facts(sink).touches:
            if target in read:
                said = f"{written_to(sink)} writes to {target}, which source {read[target].name!r} reads"
                why = "each row that is written is read again, for ever"
                yield Problem("sink.loop", said, sink.place, "write to another place", why, "warning")
