"""The stream on Spark's side: offsets are rowids, and a batch is a range of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millrace.extend import RunError, to_transport


class SqliteStream(DataSource):
    """A table of an SQLite database."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `readStream.format` takes."""
        return "millrace_sqlite"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads the table."""
        return SqliteStreamReader(self.options["database"], self.options["table"], schema.names)


@dataclass
class RowidRange(InputPartition):
    """The rows after `first`, up to and including `last`."""

    first: int
    last: int


class SqliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads ranges of rowids. `read` runs in a worker, everything else beside the driver."""

    def __init__(self, path: str, table: str, columns: Sequence[str]) -> None:
        self._path, self._table, self._columns = path, table, columns
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return where a query without a checkpoint starts."""
        return {"rowid": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no further than what exists now (`--until-caught-up`)."""
        self._stop_at = self._newest_rowid()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch; with no new rows that is its start."""
        newest = self._newest_rowid() if self._stop_at is None else self._stop_at
        return {"rowid": max(start["rowid"], newest)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of a batch. The same offsets come again after a failure and give the same rows."""
        return [RowidRange(start["rowid"], end["rowid"])]

    def read(self, partition: RowidRange) -> Iterator[tuple[Any, ...]]:  # type: ignore[override]
        """Yield the rows of one task, which `partitions` has made."""
        columns = ", ".join(f'"{name}"' for name in self._columns)
        query = f"SELECT {columns} FROM {self._table} WHERE rowid > ? AND rowid <= ? ORDER BY rowid"
        yield from self._rows(query, (partition.first, partition.last))

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the offsets in Spark's checkpoint are all that is needed."""

    def _newest_rowid(self) -> int:
        ((newest,),) = self._rows(f"SELECT max(rowid) FROM {self._table}")
        return newest or 0

    def _rows(self, query: str, arguments: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(self._path)) as database:
                return database.execute(query, arguments).fetchall()
        except sqlite3.Error as error:
            raise to_transport(RunError(f"{self._path} cannot be read", why=str(error))) from error
