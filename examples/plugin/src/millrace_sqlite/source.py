"""The source: rows that are inserted into a table of an SQLite database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.extend import InputError, OptionMistake, RunContext, Schema, Source, option, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class SqliteSource(Source):
    """Rows of a table of an SQLite database, in the order of their rowid; rows are only ever inserted."""

    path: str = option(help="The file of the database.", argument=True)
    table: str = option(help="The table that is read.")
    schema: str = option(help="The columns, in Spark's DDL: room string, celsius double.")

    def mistakes(self) -> Iterator[OptionMistake]:
        """Report a table name that would need quoting, and a schema that does not parse."""
        if not self.table.isidentifier():
            yield OptionMistake("option.invalid", f"{self.table!r} is not the name of a table", "table")
        try:
            self.columns()
        except InputError as error:
            yield OptionMistake(error.condition, error.message, "schema", error.hint, error.why)

    def columns(self) -> Schema:
        """Return the declared columns: `check` compares them with what the pipeline's SQL reads."""
        return parse_schema(self.schema)

    def resources(self) -> tuple[str, ...]:
        """Return what is read, in the words of the sink."""
        return (f"sqlite {self.path} {self.table}",)

    def load(self, context: RunContext) -> DataFrame:
        """Describe the stream; Spark reads it batch by batch."""
        from millrace_sqlite.stream import SqliteStream  # pyspark is imported only when a query starts

        context.spark.dataSource.register(SqliteStream)
        stream = context.spark.readStream.format(SqliteStream.name()).schema(self.schema)
        return stream.option("database", self.path).option("table", self.table).load()
