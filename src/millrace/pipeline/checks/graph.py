"""Rules about the graph of sources, tables and sinks.

- Names are valid in SQL, unique, and refer to something.
- Tables form no cycle, every element is used, and every sink reads a stream.
- Sinks do not write to the same target, nor to what they read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation, did_you_mean
from millrace.pipeline.checks.context import CheckContext, sink_name
from millrace.pipeline.checks.tables import parses_as_sql
from millrace.pipeline.model import Panel, PipelineDef, SinkDef, SourceDef, TableDef
from millrace.pipeline.sql import named_tables, parsed


def cycles(context: CheckContext) -> Iterator[Problem]:
    """A table cannot need itself."""
    reported: set[str] = set()
    for table in context.pipeline.tables:
        path = _cycle(context.pipeline, table)
        if path and reported.isdisjoint(name.lower() for name in path):
            reported.update(name.lower() for name in path)
            message = f"table {table.name!r} needs itself: {' <- '.join(path)}"
            yield Problem("table.cycle", message, table.place, "let one of them read a source instead")


def no_sinks(context: CheckContext) -> Iterator[Problem]:
    """Without a sink nothing runs."""
    if not context.pipeline.sinks:
        place = context.pipeline.place
        in_python = place.file.endswith(".py")
        example = 'pipeline.sink("TABLE", mr.console())' if in_python else "sinks: [{from: TABLE, console: }]"
        yield Problem("sink.none", "the pipeline has no sinks, so it does nothing", place, f"add one, as {example}")


def unused_elements(context: CheckContext) -> Iterator[Problem]:
    """A sink, a panel or another table reads every source and table."""
    pipeline = context.pipeline
    if not all(table.function or (table.sql and parses_as_sql(table.sql)) for table in pipeline.tables):
        return  # what such a table reads is not known
    reads = [read for table in pipeline.tables for read in table.reads]
    outputs = [*(sink.table for sink in pipeline.sinks), *(panel.table for panel in pipeline.panels)]
    used = {name.lower() for name in (*reads, *outputs)}
    for element in context.elements:
        if element.name.lower() in used:
            continue
        if isinstance(element, SourceDef):
            if element.included:  # for other pipelines
                continue
            condition, verb, hint = "source.unused", "reads source", "read it in a table, or remove it"
        else:
            condition, verb, hint = "table.unused", "uses table", "add a sink for it, or remove it"
        yield Problem(condition, f"nothing {verb} {element.name!r}", element.place, hint, severity="warning")


def static_sinks(context: CheckContext) -> Iterator[Problem]:
    """A query needs a stream to read."""
    for sink in context.pipeline.sinks:
        if context.plan(sink.table).streaming is False:
            message = f"{sink_name(sink)} would never get a row: nothing it is made of is a stream"
            yield Problem("sink.static", message, sink.place, "leave static: true out of one of its sources")


def _cycle(pipeline: PipelineDef, start: TableDef) -> list[str]:
    """Return the names on a path from a table back to itself; empty if there is none."""
    reader_of: dict[str, TableDef] = {}
    waiting = [start]
    while waiting:
        reader = waiting.pop()
        for read in reader.reads:
            table = pipeline.table(read)
            if table is None or table.name.lower() in reader_of:
                continue
            reader_of[table.name.lower()] = reader
            if table is start:
                path = [start.name]
                while reader is not start:
                    path.append(reader.name)
                    reader = reader_of[reader.name.lower()]
                return [*path, start.name][::-1]
            waiting.append(table)
    return []


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_DEAD_LETTER_PREFIX = "dead."
"""Consumer groups of dead letters start with millrace.dead., so those of a pipeline must not."""
_RESERVED_NAMES = ("from", "lateral", "stream")
"""Names of tables that Spark's SQL refuses."""


def invalid_names(context: CheckContext) -> Iterator[Problem]:
    """Names of elements are used in SQL without quotes; the pipeline's is a folder's and a consumer group's."""
    pipeline = context.pipeline
    message = f"a pipeline cannot be called {pipeline.name!r}"
    if pipeline.name and not _PIPELINE_NAME.fullmatch(pipeline.name):
        yield Problem("name.invalid", message, pipeline.place, "use letters, digits, _, - and ., at most 100")
    if pipeline.name.startswith(_DEAD_LETTER_PREFIX):
        hint = f"choose another: what begins with {_DEAD_LETTER_PREFIX} belongs to dead letters"
        yield Problem("name.invalid", message, pipeline.place, hint)
    for element in context.elements:
        if not _NAME.fullmatch(element.name):
            hint = "use letters, digits and _, not beginning with a digit"
        elif element.name.lower() in _RESERVED_NAMES:
            hint = f"choose another: {element.name} is a word of SQL"
        else:
            continue
        yield Problem("name.invalid", f"a {_kind(element)} cannot be called {element.name!r}", element.place, hint)


def duplicate_names(context: CheckContext) -> Iterator[Problem]:
    """A source and a table cannot have the same name, which in SQL is case-insensitive."""
    first: dict[str, SourceDef | TableDef] = {}
    for element in context.elements:
        before = first.setdefault(element.name.lower(), element)
        if before is not element:
            message = f"{element.name!r} is the name of two things"
            why = f"a {_kind(before)} {before.name!r} is in {before.place}; to SQL they are the same"
            yield Problem("name.duplicate", message, element.place, "rename one of them", why)


def unknown_names(context: CheckContext) -> Iterator[Problem]:
    """Tables, sinks and panels refer to sources and tables that exist."""
    pipeline = context.pipeline
    names = [element.name for element in context.elements]
    lower = {name.lower() for name in names}
    for table in pipeline.tables:
        for read in table.reads:
            if read.lower() not in lower:
                message = f"table {table.name!r} reads {read!r}, which is no source and no table"
                others = [name for name in names if name != table.name]
                yield Problem("name.unknown", message, _reading_place(table, read), did_you_mean(read, others))
    outputs: list[SinkDef | Panel] = [*pipeline.sinks, *pipeline.panels]
    for output in outputs:
        if output.table and output.table.lower() not in lower:
            what = "sink" if isinstance(output, SinkDef) else "panel"
            message = f"a {what} takes {output.table!r}, which is no source and no table"
            yield Problem("name.unknown", message, output.place, did_you_mean(output.table, names))


def _reading_place(table: TableDef, read: str) -> SourceLocation:
    if table.sql is None:
        return table.place
    for node in named_tables(parsed(table.sql)) if parses_as_sql(table.sql) else ():
        if node.name.lower() == read.lower() and "line" in node.this.meta:
            return table.sql_line(node.this.meta["line"], node.this.meta["col"] - len(read) + 1)
    return table.sql_line(1)


def _kind(element: SourceDef | TableDef) -> str:
    return "source" if isinstance(element, SourceDef) else "table"


def shared_targets(context: CheckContext) -> Iterator[Problem]:
    """A sink that needs a target of its own does not share it."""
    first: dict[str, SinkDef] = {}
    for sink in context.pipeline.sinks:
        facts = context.sink_facts(sink)
        for target in facts.touches if facts.alone else ():
            if target in first:
                message = f"{sink_name(sink)} and {sink_name(first[target])} both write to {target}"
                yield Problem("sink.shared", message, sink.place, "give each a place of its own")
            first.setdefault(target, sink)


def target_loops(context: CheckContext) -> Iterator[Problem]:
    """A sink does not write to what its own rows are read from."""
    for sink in context.pipeline.sinks:
        sources = list(context.sources_of(sink))
        read = {target: source for source in sources for target in context.source_facts(source).touches}
        for target in context.sink_facts(sink).touches:
            if target in read:
                message = f"{sink_name(sink)} writes to {target}, which source {read[target].name!r} reads"
                why = "each row that is written is read again, for ever"
                yield Problem("sink.loop", message, sink.place, "write to another place", why, "warning")
