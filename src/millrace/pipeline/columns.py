"""The columns of a source or a table, as far as they are known without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import InvalidSql
from millrace.pipeline.schema import Decimal, Schema, Simple, Type
from millrace.pipeline.sql import parsed

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_WINDOWS = ("window", "session_window")


@dataclass(frozen=True, slots=True)
class Known:
    """A column: its name, what the page takes it for (`number`, `time`, `other`; None: not known), and Spark's type."""

    name: str
    type: str | None = None
    spark: str = ""


def columns_of_schema(schema: Schema) -> list[Known]:
    """The columns that a schema declares."""
    return [Known(field.name, _type(field.type), field.type.ddl()) for field in schema.fields]


def columns_of_sql(sql: str) -> list[Known] | None:
    """The columns that a query names; None when one of them has a name that only Spark can tell."""
    from sqlglot import exp

    try:
        chosen = parsed(sql).selects
    except InvalidSql:
        return None
    for one in chosen:
        windowed = isinstance(one, exp.Anonymous) and one.name.lower() in _WINDOWS
        if one.is_star or not one.alias_or_name or not (windowed or isinstance(one, exp.Alias | exp.Column | exp.Dot)):
            return None
    return [Known(one.alias_or_name) for one in chosen]


def _type(kind: Type) -> str:
    if isinstance(kind, Decimal):
        return "number"
    name = kind.name if isinstance(kind, Simple) else ""
    return "number" if name in _NUMBERS else "time" if name in _TIMES else "other"
