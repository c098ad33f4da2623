"""Rows kept in memory, to be looked at with `millrace query` while the pipeline runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.connectors.base.api import RunContext, Sink
from millrace.plugins import option

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass
class MemoryTable:
    """The rows of one table, newest last; with keys, one row for each."""

    limit: int
    key: tuple[str, ...] = ()
    batches: list[pa.Table] = field(default_factory=list)
    keyed: dict[str, dict[str, Any]] = field(default_factory=dict)
    newest: int = -1
    """The last batch that was taken."""
    version: int = 0
    """Another one after each change, in every table that had this name."""

    def add(self, rows: pa.Table) -> None:
        """Append rows, or replace those of the same key; the oldest go when there are too many."""
        if self.key:
            for row in rows.to_pylist():
                name = repr([row.get(column) for column in self.key])
                self.keyed.pop(name, None)
                self.keyed[name] = row
            while len(self.keyed) > self.limit:
                del self.keyed[next(iter(self.keyed))]
            self.batches = [rows.slice(0, 0)]
            return
        if rows.num_rows == 0 and self.batches:
            return
        self.batches.append(rows)
        total = sum(batch.num_rows for batch in self.batches)
        while len(self.batches) > 1 and total - self.batches[0].num_rows >= self.limit:
            total -= self.batches.pop(0).num_rows

    def whole(self) -> pa.Table:
        """All rows that are kept."""
        import pyarrow as pa

        if self.key:
            return pa.Table.from_pylist(list(self.keyed.values()), schema=self.batches[0].schema)
        return pa.concat_tables(self.batches)


class Memory:
    """Every table in memory, by name; written by the threads of queries, read by `millrace query` and the dashboard."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, MemoryTable] = {}
        self._versions = count(1)

    def put(self, name: str, rows: pa.Table, batch: int, *, mode: str, key: tuple[str, ...], limit: int) -> None:
        """Take a batch in, as its output mode says; one that is run again after a failure is there already."""
        with self._lock:
            table = self._tables.get(name)
            if table and batch <= table.newest:
                return
            if mode == "complete" or table is None:
                table = self._tables[name] = MemoryTable(limit, key if mode == "update" else ())
            table.add(rows)
            table.newest, table.version = batch, next(self._versions)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._tables)

    def version(self, name: str) -> int:
        """A number that changes when the table does."""
        with self._lock:
            return self._tables[name].version

    def schema(self, name: str) -> pa.Schema:
        with self._lock:
            return self._tables[name].batches[0].schema

    def table(self, name: str) -> pa.Table:
        """The rows of one table; they are combined without the lock."""
        with self._lock:
            table = self._tables[name]
            kept = replace(table, batches=list(table.batches), keyed=dict(table.keyed))
        return kept.whole()

    def tables(self) -> dict[str, pa.Table]:
        return {name: self.table(name) for name in self.names()}

    def clear(self) -> None:
        with self._lock:
            self._tables.clear()


MEMORY = Memory()


@dataclass(frozen=True, kw_only=True)
class MemorySink(Sink):
    """A table in memory; `millrace query` reads it while the pipeline runs."""

    delivery_guarantee: ClassVar[str] = "none beyond the run: each run starts with an empty table"
    resumes: ClassVar[bool] = False
    exclusive_target: ClassVar[bool] = True
    transient: ClassVar[bool] = True

    name: str | None = option(None, "The table's name.", argument=True, shown_default="the pipeline's table's")
    key: tuple[str, ...] = option((), "In update mode: columns whose newest row replaces the one before.", columns=True)
    rows: int = option(1_000_000, "About how many rows are kept, the newest.", least=1)

    def resources(self, table: str) -> tuple[str, ...]:
        return (f"the memory table {(self.name or table).lower()}",)  # to SQL, capitals make no difference

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        rows: Any = frame.toArrow()
        MEMORY.put(self.name or context.name, rows, batch, mode=context.mode, key=self.key, limit=self.rows)
