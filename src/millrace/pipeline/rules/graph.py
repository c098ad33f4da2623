"""How elements hang together: cycles, dead ends, and sinks that nothing would ever flow into."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem
from millrace.pipeline.model import Pipeline, Table
from millrace.pipeline.rules.scope import Scope, written_to
from millrace.pipeline.rules.sql import parses


def cycles(scope: Scope) -> Iterator[Problem]:
    """A table cannot need itself."""
    told: set[str] = set()
    for table in scope.pipeline.tables:
        path = _cycle(scope.pipeline, table)
        if path and told.isdisjoint(name.lower() for name in path):
            told.update(name.lower() for name in path)
            said = f"table {table.name!r} needs itself: {' <- '.join(path)}"
            yield Problem("table.cycle", said, table.place, "let one of them read a source instead")


def no_sinks(scope: Scope) -> Iterator[Problem]:
    """Without a sink nothing runs."""
    if not scope.pipeline.sinks:
        in_python = scope.pipeline.place.file.endswith(".py")
        hint = 'pipeline.sink("TABLE", mr.console())' if in_python else "sinks: [{from: TABLE, console: }]"
        yield Problem(
            "sink.none", "the pipeline has no sinks, so it does nothing", scope.pipeline.place, f"add one, as {hint}"
        )


def unused_tables(scope: Scope) -> Iterator[Problem]:
    """A table that no sink, panel or other table takes."""
    used = _used(scope)
    for table in scope.pipeline.tables if used is not None else ():
        if table.name.lower() not in (used or ()):
            said = f"nothing uses table {table.name!r}"
            yield Problem("table.unused", said, table.place, "add a sink for it, or remove it", severity="warning")


def unused_sources(scope: Scope) -> Iterator[Problem]:
    """A source that nothing takes."""
    used = _used(scope)
    for source in scope.pipeline.sources if used is not None else ():
        if source.name.lower() not in (used or ()):
            said = f"nothing reads source {source.name!r}"
            yield Problem("source.unused", said, source.place, "read it in a table, or remove it", severity="warning")


def static_sinks(scope: Scope) -> Iterator[Problem]:
    """A query needs a stream to follow."""
    for sink in scope.pipeline.sinks:
        if scope.shape(sink.table).streaming is False:
            said = f"{written_to(sink)} would never get a row: nothing it is made of is a stream"
            yield Problem("sink.static", said, sink.place, "leave static: true out of one of its sources")


def _used(scope: Scope) -> set[str] | None:
    """What is taken by something; None when a table cannot be read, since then nobody knows."""
    pipeline = scope.pipeline
    if not all(table.function or (table.sql and parses(table.sql)) for table in pipeline.tables):
        return None
    reads = [read for table in pipeline.tables for read in table.reads]
    taken = [*(sink.table for sink in pipeline.sinks), *(panel.table for panel in pipeline.panels)]
    return {name.lower() for name in (*reads, *taken)}


def _cycle(pipeline: Pipeline, start: Table) -> list[str]:
    """The names on a way from a table back to itself, or nothing."""
    came: dict[str, Table] = {}
    waiting = [start]
    while waiting:
        table = waiting.pop()
        for read in table.reads:
            found = pipeline.table(read)
            if found is None or found.name.lower() in came:
                continue
            came[found.name.lower()] = table
            if found is start:
                return _path(came, start)
            waiting.append(found)
    return []


def _path(came: dict[str, Table], start: Table) -> list[str]:
    path = [start.name]
    table = came[start.name.lower()]
    while table is not start:
        path.append(table.name)
        table = came[table.name.lower()]
    return [*path, start.name][::-1]
