"""The sink: rows of a pipeline's table are inserted into a table of an SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millrace.extend import OptionMistake, RunContext, RunError, Sink, option, to_transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST_BATCHES = "CREATE TABLE IF NOT EXISTS millrace_batches (writer TEXT PRIMARY KEY, batch INTEGER NOT NULL)"


@dataclass(frozen=True, kw_only=True)
class SqliteSink(Sink):
    """A table of an SQLite database, which must have the columns of the rows."""

    delivery_guarantee: ClassVar[str] = "exactly once: a batch and its number are written in one transaction"
    modes: ClassVar[tuple[str, ...]] = ("append",)

    path: str = option(help="The file of the database.", argument=True)
    table: str = option(help="The table that rows are inserted into.")

    def mistakes(self) -> Iterator[OptionMistake]:
        """Report a table name that would need quoting."""
        if not self.table.isidentifier():
            yield OptionMistake("option.invalid", f"{self.table!r} is not the name of a table", "table")

    def resources(self, table: str) -> tuple[str, ...]:
        """Return what is written, so that `check` finds a sink that writes what the query reads."""
        return (f"sqlite {self.path} {self.table}",)

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        """Insert a batch, unless it was committed before Spark could record it."""
        columns = ", ".join(f'"{name}"' for name in frame.columns)
        marks = ", ".join("?" for _ in frame.columns)
        writer = f"{context.state_id} {context.query} {self.table}"
        rows = [tuple(row) for row in frame.collect()]
        try:
            with closing(sqlite3.connect(self.path)) as database, database:
                database.execute(_LAST_BATCHES)
                last = database.execute("SELECT batch FROM millrace_batches WHERE writer = ?", (writer,)).fetchone()
                if last and last[0] >= batch:
                    return
                database.executemany(f"INSERT INTO {self.table} ({columns}) VALUES ({marks})", rows)
                database.execute("INSERT OR REPLACE INTO millrace_batches VALUES (?, ?)", (writer, batch))
        except sqlite3.Error as error:
            raise to_transport(RunError(f"{self.path}: rows were not written", why=str(error))) from error
