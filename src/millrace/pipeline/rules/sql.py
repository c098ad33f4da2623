"""The SQL of tables: that it parses, and reads what its function says."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import InvalidSql, Problem
from millrace.pipeline.rules.scope import Scope
from millrace.pipeline.sql import parsed


def unparsable(scope: Scope) -> Iterator[Problem]:
    """SQL that does not parse, with its place in the user's file."""
    for table in scope.pipeline.tables:
        try:
            parsed(table.sql) if table.sql is not None else None
        except InvalidSql as error:
            place = table.sql_line(error.line, error.column)
            yield Problem("sql.invalid", f"table {table.name!r}: {error.message}", place, error.hint, error.why)


def other_parameters(scope: Scope) -> Iterator[Problem]:
    """A function that returns SQL names as its parameters what the SQL reads."""
    for table in scope.pipeline.tables:
        if table.parameters is None or table.sql is None or not parses(table.sql):
            continue
        named = {name.lower() for name in table.parameters}
        read = {name.lower() for name in table.reads}
        if named != read:
            said = f"the parameters of {table.name!r} are not what its SQL reads"
            why = f"the SQL reads {', '.join(table.reads) or 'nothing'}"
            hint = f"write def {table.name}({', '.join(table.reads)}):"
            yield Problem("sql.parameters", said, table.place, hint, why)


def parses(text: str) -> bool:
    """Whether a text is SQL."""
    try:
        parsed(text)
    except InvalidSql:
        return False
    return True
