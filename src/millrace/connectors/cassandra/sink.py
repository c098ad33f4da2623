"""The work of one task: rows of Arrow become prepared statements, a few rows of a partition in each."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.clients.cassandra import Cassandra
from millrace.clients.outflow import Outflow
from millrace.connectors.carried import carry
from millrace.connectors.cql.table import Table, quoted, quoted_table
from millrace.connectors.cql.types import Cql
from millrace.connectors.cql.values import rows_of
from millrace.connectors.cutting import lane_of
from millrace.errors import MillraceError, RowRefused

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "rows bigint"
_ROWS, _BYTES = 30, 4096
"""How large a batch of statements may be: below what Cassandra warns of in its log (5 KiB)."""


@dataclass(frozen=True)
class Insertion:
    """All that a task must know; rows of Arrow in, one row out that tells how many there were."""

    door: Cassandra
    table: Table
    columns: Mapping[str, Cql]
    """The columns of the rows, in their order, with the types of the table."""
    timestamp: int
    """Where the timestamps begin, in microseconds. Row i of task t gets t more, and i times the number of tasks:
    no two are equal, which Cassandra would mix, and of two rows of a task with the same key the later one wins."""
    ttl: int | None = None
    consistency: str = "LOCAL_QUORUM"
    in_flight: int = 64
    patience: float = 120.0
    erase: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        try:
            count = self.insert(batches, *(lane_of(context) if context else ()))
        except MillraceError as error:
            raise carry(error) from None
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})

    def insert(self, batches: Iterable[pa.RecordBatch], lane: int = 0, tasks: int = 1) -> int:
        """Write all rows of a task, which has a number among others; returns how many when every one is safe."""
        count, work = 0, None
        for batch in batches:
            if batch.num_rows:
                work = work or _Work(self)
                work.add(batch, self.timestamp + count * tasks + lane, tasks)
                count += batch.num_rows
        if work:
            work.outflow.finish()
        return count

    @property
    def statement(self) -> str:
        """The INSERT."""
        names = ", ".join(map(quoted, self.columns))
        marks = ", ".join("?" * len(self.columns))
        kept = f" AND TTL {self.ttl}" if self.ttl else ""
        into = f"INSERT INTO {quoted_table(self.table.name)} ({names})"
        return f"{into} VALUES ({marks}) USING TIMESTAMP ?{kept}"


class _Work:
    """An insertion under way."""

    def __init__(self, insertion: Insertion) -> None:
        from cassandra import ConsistencyLevel
        from cassandra.query import UNSET_VALUE

        doing = f"write to table {insertion.table.name}"
        self.outflow = Outflow(insertion.door, most=insertion.in_flight, patience=insertion.patience, doing=doing)
        self._prepared = self.outflow.prepared(insertion.statement)
        self._consistency = getattr(ConsistencyLevel, insertion.consistency)
        self._prepared.consistency_level = self._consistency
        self._prepared.is_idempotent = True
        self._kinds = tuple(insertion.columns.values())
        names = list(insertion.columns)
        self._partition = tuple(names.index(name) for name in insertion.table.partition)
        self._keys = frozenset(names.index(name) for name in insertion.table.key)
        self._absent = None if insertion.erase else UNSET_VALUE
        # Where one node has everything, rows of several partitions may share a batch: it goes there anyway.
        self._together = len(self.outflow.session.cluster.metadata.all_hosts()) == 1

    def add(self, batch: pa.RecordBatch, timestamp: int, step: int = 1) -> None:
        """Send the rows of a batch of Arrow."""
        rows = rows_of(batch, self._kinds, self._keys, self._absent)
        stamped = [(*row, timestamp + number * step) for number, row in enumerate(rows)]
        for group in [stamped] if self._together else self._grouped(stamped):
            self._send(group)

    def _grouped(self, rows: list[tuple[Any, ...]]) -> Iterable[list[tuple[Any, ...]]]:
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for row in rows:
            key = tuple(one if one.__hash__ else str(one) for one in (row[number] for number in self._partition))
            groups.setdefault(key, []).append(row)
        return groups.values()

    def _send(self, rows: list[tuple[Any, ...]]) -> None:
        bound: list[Any] = []
        size = 0
        for row in rows:
            one = self._bound(row)
            length = sum(len(value) for value in one.values if value.__class__ is bytes)
            if bound and (len(bound) == _ROWS or size + length > _BYTES):
                self.outflow.send(self._statement(bound))
                bound, size = [], 0
            bound.append(one)
            size += length
        if bound:
            self.outflow.send(self._statement(bound))

    def _bound(self, row: tuple[Any, ...]) -> Any:
        try:
            return self._prepared.bind(row)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise RowRefused(
                f"a value of a row cannot be written: {error}", hint="cast it, or leave such rows out"
            ) from None

    def _statement(self, bound: list[Any]) -> Any:
        from cassandra.query import BatchStatement, BatchType

        if len(bound) == 1:
            return bound[0]
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=self._consistency)
        batch.is_idempotent = True
        for one in bound:
            batch.add(one)
        return batch
