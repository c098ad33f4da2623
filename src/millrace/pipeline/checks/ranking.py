"""Rules about tables of the forms `latest` and `top`.

- The column of the rank is a new one.
- An order of both directions keeps whole groups.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import TableDef
from millrace.pipeline.ranking import Ranking


def _rankings(context: CheckContext) -> Iterator[tuple[TableDef, Ranking, list[str] | None]]:
    """Yield each table that ranks rows with the columns of these rows; None if only Spark knows them."""
    for table in context.pipeline.tables:
        if table.ranking:
            source = context.pipeline.element(table.reads[0])
            columns = context.columns(source) if source else None
            yield table, table.ranking, None if columns is None else [column.name for column in columns]


def rank_column(context: CheckContext) -> Iterator[Problem]:
    """The column of the rank is a new one."""
    for table, ranking, names in _rankings(context):
        if ranking.rank and ranking.rank.lower() in map(str.lower, names or ()):
            message = f"top of table {table.name!r}: {table.reads[0]!r} has a column {ranking.rank!r} already"
            hint = "choose another name for the rank"
            yield Problem("ranking.column", message, _place(table, ranking, "rank"), hint)


def mixed_directions(context: CheckContext) -> Iterator[Problem]:
    """Of an order in one direction Spark keeps the best rows only; of one in both it keeps all."""
    for table, ranking, _ in _rankings(context):
        if not ranking.bounded:
            message = f"the state of {table.name!r} has every row of a group, and not only the best {ranking.n}"
            why = "its order has both directions, for which Spark needs the whole group"
            hint = "turn a number around, as -count instead of count DESC, so that all keys have one direction"
            yield Problem("ranking.unbounded", message, _place(table, ranking, "order"), hint, why, "warning")


def _place(table: TableDef, ranking: Ranking, key: str) -> SourceLocation:
    return ranking.places.get(key) or table.sql_place or table.place
