"""Names: that they can be used in SQL, stand for one thing, and lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.errors import Place, Problem, did_you_mean
from millrace.pipeline.model import Source, Table
from millrace.pipeline.rules.scope import Scope

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PIPELINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LETTERS = "dead."
"""How the groups of dead letters go on after our own name: a pipeline's groups must be others."""
_WORDS = ("from", "lateral", "stream")
"""Words that Spark does not take for a table's name."""


def invalid_names(scope: Scope) -> Iterator[Problem]:
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


def duplicate_names(scope: Scope) -> Iterator[Problem]:
    """Sources and tables share their names, and to SQL capitals make no difference."""
    first: dict[str, Source | Table] = {}
    for element in scope.elements:
        before = first.setdefault(element.name.lower(), element)
        if before is not element:
            said = f"{element.name!r} is the name of two things"
            why = f"a {_kind(before)} {before.name!r} stands in {before.place}; to SQL they are the same"
            yield Problem("name.duplicate", said, element.place, "rename one of them", why)


def unknown_names(scope: Scope) -> Iterator[Problem]:
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


def _reading_place(table: Table, read: str) -> Place:
    if table.sql is None:
        return table.place
    from sqlglot import exp

    from millrace.pipeline.sql import parsed

    for node in parsed(table.sql).find_all(exp.Table):
        if node.name.lower() == read.lower() and "line" in node.this.meta:
            return table.sql_line(node.this.meta["line"], node.this.meta["col"] - len(read) + 1)
    return table.sql_line(1)


def _kind(element: Source | Table) -> str:
    return "source" if isinstance(element, Source) else "table"
