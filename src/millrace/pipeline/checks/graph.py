"""Names: that they can be used in SQL, stand for one thing, and lead somewhere.

How elements hang together: cycles, dead ends, and sinks that nothing would ever flow into.

What sinks write to: two that disturb each other, and rows that come back to where they came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation, did_you_mean
from millrace.pipeline.checks.context import CheckContext, written_to
from millrace.pipeline.checks.tables import parses_as_sql
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef


def cycles(scope: CheckContext) -> Iterator[Problem]:
    """A table cannot need itself."""
    told: set[str] = set()
    for table in scope.pipeline.tables:
        path = _cycle(scope.pipeline, table)
        if path and told.isdisjoint(name.lower() for name in path):
            told.update(name.lower() for name in path)
            said = f"table {table.name!r} needs itself: {' <- '.join(path)}"
            yield Problem("table.cycle", said, table.place, "let one of them read a source instead")


def no_sinks(scope: CheckContext) -> Iterator[Problem]:
    """Without a sink nothing runs."""
    if not scope.pipeline.sinks:
        in_python = scope.pipeline.place.file.endswith(".py")
        hint = 'pipeline.sink("TABLE", mr.console())' if in_python else "sinks: [{from: TABLE, console: }]"
        yield Problem(
            "sink.none", "the pipeline has no sinks, so it does nothing", scope.pipeline.place, f"add one, as {hint}"
        )


def unused_tables(scope: CheckContext) -> Iterator[Problem]:
    """A table that no sink, panel or other table takes."""
    used = _used(scope)
    for table in scope.pipeline.tables if used is not None else ():
        if table.name.lower() not in (used or ()):
            said = f"nothing uses table {table.name!r}"
            yield Problem("table.unused", said, table.place, "add a sink for it, or remove it", severity="warning")


def unused_sources(scope: CheckContext) -> Iterator[Problem]:
    """A source that nothing takes."""
    used = _used(scope)
    for source in scope.pipeline.sources if used is not None else ():
        if source.name.lower() not in (used or ()):
            said = f"nothing reads source {source.name!r}"
            yield Problem("source.unused", said, source.place, "read it in a table, or remove it", severity="warning")


def static_sinks(scope: CheckContext) -> Iterator[Problem]:
    """A query needs a stream to follow."""
    for sink in scope.pipeline.sinks:
        if scope.shape(sink.table).streaming is False:
            said = f"{written_to(sink)} would never get a row: nothing it is made of is a stream"
            yield Problem("sink.static", said, sink.place, "leave static: true out of one of its sources")


def _used(scope: CheckContext) -> set[str] | None:
    """What is taken by something; None when a table cannot be read, since then nobody knows."""
    pipeline = scope.pipeline
    if not all(table.function or (table.sql and parses_as_sql(table.sql)) for table in pipeline.tables):
        return None
    reads = [read for table in pipeline.tables for read in table.reads]
    taken = [*(sink.table for sink in pipeline.sinks), *(panel.table for panel in pipeline.panels)]
    return {name.lower() for name in (*reads, *taken)}


def _cycle(pipeline: PipelineDef, start: TableDef) -> list[str]:
    """The names on a way from a table back to itself, or nothing."""
    came: dict[str, TableDef] = {}
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


def _path(came: dict[str, TableDef], start: TableDef) -> list[str]:
    path = [start.name]
    table = came[start.name.lower()]
    while table is not start:
        path.append(table.name)
        table = came[table.name.lower()]
    return [*path, start.name][::-1]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PIPELINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LETTERS = "dead."
"""How the groups of dead letters go on after our own name: a pipeline's groups must be others."""
_WORDS = ("from", "lateral", "stream")
"""Words that Spark does not take for a table's name."""


def invalid_names(scope: CheckContext) -> Iterator[Problem]:
    """Names of elements are used in SQL without quotes; the pipeline's is a folder's and a consumer group's."""
    pipeline = scope.pipeline
    if pipeline.name and not _PIPELINE.fullmatch(pipeline.name):
        hint = "use letters, digits, _, - and ., at most 100"
        yield Problem("name.invalid", f"a pipeline cannot be called {pipeline.name!r}", pipeline.place, hint)
    if pipeline.name.startswith(_LETTERS):
        hint = f"choose another: what begins with {_LETTERS} belongs to dead letters"
        yield Problem("name.invalid", f"a pipeline cannot be called {pipeline.name!r}", pipeline.place, hint)
    for element in scope.elements:
        if not _NAME.fullmatch(element.name):
            hint = "use letters, digits and _, not beginning with a digit"
        elif element.name.lower() in _WORDS:
            hint = f"choose another: {element.name} is a word of SQL"
        else:
            continue
        yield Problem("name.invalid", f"a {_kind(element)} cannot be called {element.name!r}", element.place, hint)


def duplicate_names(scope: CheckContext) -> Iterator[Problem]:
    """Sources and tables share their names, and to SQL capitals make no difference."""
    first: dict[str, SourceDef | TableDef] = {}
    for element in scope.elements:
        before = first.setdefault(element.name.lower(), element)
        if before is not element:
            said = f"{element.name!r} is the name of two things"
            why = f"a {_kind(before)} {before.name!r} stands in {before.place}; to SQL they are the same"
            yield Problem("name.duplicate", said, element.place, "rename one of them", why)


def unknown_names(scope: CheckContext) -> Iterator[Problem]:
    """What tables, sinks and panels take must be there."""
    pipeline = scope.pipeline
    known = [element.name for element in scope.elements]
    lower = {name.lower() for name in known}
    for table in pipeline.tables:
        for read in table.reads:
            if read.lower() not in lower:
                said = f"table {table.name!r} reads {read!r}, which is no source and no table"
                others = [name for name in known if name != table.name]
                yield Problem("name.unknown", said, _reading_place(table, read), did_you_mean(read, others))
    sinks = [("sink", sink.table, sink.place) for sink in pipeline.sinks]
    panels = [("panel", panel.table, panel.place) for panel in pipeline.panels]
    for what, name, place in (*sinks, *panels):
        if name and name.lower() not in lower:
            said = f"a {what} takes {name!r}, which is no source and no table"
            yield Problem("name.unknown", said, place, did_you_mean(name, known))


def _reading_place(table: TableDef, read: str) -> SourceLocation:
    if table.sql is None:
        return table.place
    from sqlglot import exp

    from millrace.pipeline.sql import parsed

    for node in parsed(table.sql).find_all(exp.Table):
        if node.name.lower() == read.lower() and "line" in node.this.meta:
            return table.sql_line(node.this.meta["line"], node.this.meta["col"] - len(read) + 1)
    return table.sql_line(1)


def _kind(element: SourceDef | TableDef) -> str:
    return "source" if isinstance(element, SourceDef) else "table"


def shared_targets(scope: CheckContext) -> Iterator[Problem]:
    """Sinks that must be the only writers of something, and are not."""
    first: dict[str, SinkDef] = {}
    for sink in scope.pipeline.sinks:
        facts = scope.sink_facts(sink)
        for target in facts.touches if facts.alone else ():
            if target in first:
                said = f"{written_to(sink)} and {written_to(first[target])} both write to {target}"
                yield Problem("sink.shared", said, sink.place, "give each a place of its own")
            first.setdefault(target, sink)


def target_loops(scope: CheckContext) -> Iterator[Problem]:
    """A sink that writes to what its own rows are read from."""
    for sink in scope.pipeline.sinks:
        read = {one: source for source in scope.sources_of(sink) for one in scope.source_facts(source).touches}
        for target in scope.sink_facts(sink).touches:
            if target in read:
                said = f"{written_to(sink)} writes to {target}, which source {read[target].name!r} reads"
                why = "each row that is written is read again, for ever"
                yield Problem("sink.loop", said, sink.place, "write to another place", why, "warning")
