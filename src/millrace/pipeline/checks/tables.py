"""Pictures on the page.

The SQL of tables: that it parses, and reads what its function says.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import InvalidSql, Problem, did_you_mean
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import PANELS
from millrace.pipeline.panels import column_mistakes, mistakes
from millrace.pipeline.plan import WITHOUT_BATCHES
from millrace.pipeline.sql import parsed


def unknown_panel_kind(scope: CheckContext) -> Iterator[Problem]:
    """A panel is of a kind that the page can draw."""
    for panel in scope.pipeline.panels:
        if panel.kind and panel.kind not in PANELS:
            said = f"there is no panel of the kind {panel.kind!r}"
            yield Problem("panel.unknown", said, panel.place, did_you_mean(panel.kind, PANELS))


def panel_options(scope: CheckContext) -> Iterator[Problem]:
    """A panel says what its kind needs, and nothing else."""
    for panel in scope.pipeline.panels:
        for mistake in mistakes(panel) if panel.readable else ():
            yield Problem(mistake.condition, mistake.message, panel.option_place(mistake.option or ""), mistake.hint)


def panel_columns(scope: CheckContext) -> Iterator[Problem]:
    """A panel names columns that its table has, where that is known before Spark is asked."""
    for panel in scope.pipeline.panels:
        element = scope.pipeline.table(panel.table) or scope.pipeline.source(panel.table)
        known = scope.columns(element) if element else None
        if known is None or not panel.readable or any(mistakes(panel)):
            continue
        for mistake in column_mistakes(panel, known):
            yield Problem(mistake.condition, mistake.message, panel.option_place(mistake.option or ""), mistake.hint)


def panel_without_stream(scope: CheckContext) -> Iterator[Problem]:
    """A static table never has news."""
    for panel in scope.pipeline.panels:
        if scope.shape(panel.table).streaming is False:
            said = f"the panel of {panel.table!r} would never show a row: nothing it is made of is a stream"
            yield Problem("panel.static", said, panel.place, "show a table that reads a stream")


def panel_own_query(scope: CheckContext) -> Iterator[Problem]:
    """Without batches there is nothing to look into, so the page has the table computed once more."""
    for panel in scope.pipeline.panels:
        sinks = [one for one in scope.pipeline.sinks if one.table.lower() == panel.table.lower()]
        kinds = {scope.trigger(sink).kind for sink in sinks}
        if sinks and kinds <= set(WITHOUT_BATCHES):
            said = f"the panel of {panel.table!r} gets a query of its own, which reads and computes the table again"
            why = f"a {' or '.join(sorted(kinds))} trigger has no batches that a panel could look into"
            hint = "run it with --no-dashboard where that is too much, or let the panel show what reads the result"
            yield Problem("panel.query", said, panel.place, hint, why, "warning")


def unparsable_sql(scope: CheckContext) -> Iterator[Problem]:
    """SQL that does not parse, with its place in the user's file."""
    for table in scope.pipeline.tables:
        try:
            parsed(table.sql) if table.sql is not None else None
        except InvalidSql as error:
            place = table.sql_line(error.line, error.column)
            yield Problem("sql.invalid", f"table {table.name!r}: {error.message}", place, error.hint, error.why)


def other_sql_parameters(scope: CheckContext) -> Iterator[Problem]:
    """A function that returns SQL names as its parameters what the SQL reads."""
    for table in scope.pipeline.tables:
        if table.parameters is None or table.sql is None or not parses_as_sql(table.sql):
            continue
        named = {name.lower() for name in table.parameters}
        read = {name.lower() for name in table.reads}
        if named != read:
            said = f"the parameters of {table.name!r} are not what its SQL reads"
            why = f"the SQL reads {', '.join(table.reads) or 'nothing'}"
            hint = f"write def {table.name}({', '.join(table.reads)}):"
            yield Problem("sql.parameters", said, table.place, hint, why)


def parses_as_sql(text: str) -> bool:
    """Whether a text is SQL."""
    try:
        parsed(text)
    except InvalidSql:
        return False
    return True
