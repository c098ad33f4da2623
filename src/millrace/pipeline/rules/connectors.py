"""What the connectors find wrong with what they are given."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem
from millrace.pipeline.facts import Facts
from millrace.pipeline.model import Connection
from millrace.pipeline.rules.scope import Scope


def mistakes(scope: Scope) -> Iterator[Problem]:
    """An unknown connector, an unknown or missing option, a value that cannot be, a schema that does not parse."""
    for source in scope.pipeline.sources:
        yield from _told(source.connection, scope.source_facts(source), f"source {source.name!r}")
    for sink in scope.pipeline.sinks:
        yield from _told(sink.connection, scope.sink_facts(sink), f"the sink of {sink.table!r}")


def _told(connection: Connection, facts: Facts, what: str) -> Iterator[Problem]:
    for one in facts.mistakes:
        place = connection.option_place(one.option) if one.option else connection.place
        yield Problem(one.condition, f"{what}: {one.message}", place, one.hint, one.why)
