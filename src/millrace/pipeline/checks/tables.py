"""Rules about tables and panels.

- The SQL of a table parses, and reads what the parameters of its function name.
- A panel has a known kind, valid options and columns, and shows a stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import InvalidSql, Problem, did_you_mean
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import PANELS
from millrace.pipeline.panels import column_mistakes, mistakes
from millrace.pipeline.plan import WITHOUT_BATCHES
from millrace.pipeline.sql import parsed


def unknown_panel_kind(context: CheckContext) -> Iterator[Problem]:
    """A panel has a kind that the dashboard can draw."""
    for panel in context.pipeline.panels:
        if panel.kind and panel.kind not in PANELS:
            message = f"there is no panel of the kind {panel.kind!r}"
            yield Problem("panel.unknown", message, panel.place, did_you_mean(panel.kind, PANELS))


def panel_options(context: CheckContext) -> Iterator[Problem]:
    """A panel has the options of its kind."""
    for panel in context.pipeline.panels:
        for mistake in mistakes(panel) if panel.readable else ():
            yield Problem(mistake.condition, mistake.message, panel.option_place(mistake.option or ""), mistake.hint)


def panel_columns(context: CheckContext) -> Iterator[Problem]:
    """A panel names columns of its table, as far as they are known without Spark."""
    for panel in context.pipeline.panels:
        element = context.pipeline.element(panel.table)
        columns = context.columns(element) if element else None
        skipped = columns is None or not panel.readable or any(mistakes(panel))
        for mistake in column_mistakes(panel, columns or ()) if not skipped else ():
            yield Problem(mistake.condition, mistake.message, panel.option_place(mistake.option or ""), mistake.hint)


def panel_without_stream(context: CheckContext) -> Iterator[Problem]:
    """A static table never has new rows."""
    for panel in context.pipeline.panels:
        if context.plan(panel.table).streaming is False:
            message = f"the panel of {panel.table!r} would never show a row: nothing it is made of is a stream"
            yield Problem("panel.static", message, panel.place, "show a table that reads a stream")


def panel_own_query(context: CheckContext) -> Iterator[Problem]:
    """A panel needs batches; for a trigger without any, the table is computed again in a query of its own."""
    for panel in context.pipeline.panels:
        sinks = [sink for sink in context.pipeline.sinks if sink.table.lower() == panel.table.lower()]
        kinds = {context.trigger(sink).kind for sink in sinks}
        if sinks and kinds <= set(WITHOUT_BATCHES):
            message = f"the panel of {panel.table!r} gets a query of its own, which reads and computes the table again"
            why = f"a {' or '.join(sorted(kinds))} trigger has no batches that a panel could look into"
            hint = "run it with --no-dashboard where that is too much, or let the panel show what reads the result"
            yield Problem("panel.query", message, panel.place, hint, why, "warning")


def unparsable_sql(context: CheckContext) -> Iterator[Problem]:
    """SQL must parse."""
    for table in context.pipeline.tables:
        try:
            parsed(table.sql) if table.sql is not None else None
        except InvalidSql as error:
            place = table.sql_line(error.line, error.column)
            yield Problem("sql.invalid", f"table {table.name!r}: {error.message}", place, error.hint, error.why)


def other_sql_parameters(context: CheckContext) -> Iterator[Problem]:
    """A function that returns SQL has a parameter for each table that the SQL reads."""
    for table in context.pipeline.tables:
        if table.parameters is None or table.sql is None or not parses_as_sql(table.sql):
            continue
        if set(map(str.lower, table.parameters)) != set(map(str.lower, table.reads)):
            message = f"the parameters of {table.name!r} are not what its SQL reads"
            why = f"the SQL reads {', '.join(table.reads) or 'nothing'}"
            hint = f"write def {table.name}({', '.join(table.reads)}):"
            yield Problem("sql.parameters", message, table.place, hint, why)


def parses_as_sql(text: str) -> bool:
    """Return whether a text is valid SQL."""
    try:
        parsed(text)
    except InvalidSql:
        return False
    return True
