"""The work of one task: rows of Arrow become prepared statements, a few rows of a partition in each.

- `CassandraBatchWriter` sends a limited number of statements at once, and repeats them while Cassandra is away.
- `rows_of` makes values that Cassandra's driver takes of columns of Arrow; `Insertion` writes them.
- `WriteTimestamps`: when each batch was written first, which is the timestamp that its rows carry.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millrace.atomic_files import write_whole
from millrace.clients.cassandra import Cassandra, explain_refusal, is_transient
from millrace.clients.kafka.record import limited_batches
from millrace.connectors.base.batch_tasks import task_number
from millrace.connectors.cassandra.table import CassandraTable, quoted, quoted_table
from millrace.connectors.cassandra.types import Cql
from millrace.errors import CassandraUnreachable, RowRefused, StateMismatch
from millrace.errors.transport import errors_in_transport

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class CassandraBatchWriter:
    """Sends idempotent statements; `send` waits while too many are under way, `finish` until all are safe.

    What fails for a reason that may pass is sent again, with growing pauses, until `patience` seconds have gone by
    in which nothing at all was taken; any other failure is raised by the next call.
    """

    def __init__(self, door: Cassandra, *, most: int, patience: float, doing: str) -> None:
        self._door, self._most, self._patience, self._doing = door, most, patience, doing
        self.session = self._insist(door.session)
        self._changed = threading.Condition()
        self._under_way = 0
        self._again: deque[Any] = deque()
        self._failure: BaseException | None = None
        self._away: float | None = None
        """Since when nothing was taken; None while all is well."""
        self._pause = _FIRST_PAUSE

    def prepared(self, statement: str) -> Any:
        """A prepared statement; waits for a Cassandra that is away."""
        return self._insist(lambda: self.session.prepare(statement))

    def send(self, statement: Any) -> None:
        """Begin to send one more; raises what an earlier one failed with."""
        with self._changed:
            self._await_at_most(self._most - 1)
            self._under_way += 1
        self._start(statement)

    def finish(self) -> None:
        """Wait until every statement is safe."""
        with self._changed:
            self._await_at_most(0)

    def _await_at_most(self, most: int) -> None:
        """Wait, with the lock held, until at most that many are under way and none has to be sent again."""
        while True:
            if self._failure is not None:
                raise explain_refusal(self._failure, self._door.address, self._doing) from self._failure
            if self._again:
                self._send_again()
            elif self._under_way <= most:
                return
            else:
                self._changed.wait()

    def _send_again(self) -> None:
        due = list(self._again)
        self._again.clear()
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        self._under_way += len(due)
        self._changed.release()
        try:
            time.sleep(pause)
            for statement in due:
                self._start(statement)
        finally:
            self._changed.acquire()

    def _start(self, statement: Any) -> None:
        self.session.execute_async(statement).add_callbacks(self._taken, self._refused, errback_args=(statement,))

    def _taken(self, _: object) -> None:
        with self._changed:
            self._under_way -= 1
            self._away, self._pause = None, _FIRST_PAUSE
            self._changed.notify()

    def _refused(self, error: BaseException, statement: Any) -> None:
        with self._changed:
            self._under_way -= 1
            now = time.monotonic()
            self._away = self._away or now
            if is_transient(error) and now - self._away < self._patience:
                self._again.append(statement)
            else:
                self._failure = self._failure or error
            self._changed.notify()

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """What a call gives, tried again while nobody answers."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                with self._door.translated_errors(self._doing):
                    return ask()
            except CassandraUnreachable:
                if time.monotonic() - began > self._patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


_EPOCH = 2**31
"""Cassandra counts days from the middle of what 32 bits can hold."""


def rows_of(batch: pa.RecordBatch, kinds: Sequence[Cql], keys: frozenset[int], absent: Any) -> list[tuple[Any, ...]]:
    """The rows of a batch; `absent` stands for null, which no column of the key (`keys`, by position) may be."""
    columns = []
    for number, kind in enumerate(kinds):
        column, name = batch.column(number), batch.schema.names[number]
        if column.null_count and number in keys:
            hint = f"leave such rows out: WHERE {name} IS NOT NULL"
            raise RowRefused(f"a row has no {name}, which is part of the key", hint=hint)
        try:
            values = _values(column, kind)
        except _UnfitError as error:
            raise RowRefused(f"column {name}: {error}", hint=error.hint) from None
        columns.append([absent if value is None else value for value in values] if column.null_count else values)
    return list(zip(*columns, strict=True))


class _UnfitError(Exception):
    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def _values(column: pa.Array, kind: Cql) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.name == "timestamp":  # as a number: quicker, and years that Python does not have are whole
        moments = pc.floor_temporal(column.cast(pa.timestamp("us")), unit="millisecond")
        return list(moments.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist())
    if kind.name == "date":
        return [None if days is None else days + _EPOCH for days in column.cast(pa.int32()).to_pylist()]
    convert = _converter(kind)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: Cql) -> Callable[[Any], Any] | None:
    """What makes one value of Arrow one of the driver's; None where they are the same."""
    if kind.name in ("uuid", "timeuuid"):
        return _uuid
    if kind.name in ("list", "set", "vector"):
        return lambda values: _elements(values, _converter(kind.inner[0]))
    if kind.name == "map":
        of_key, of_value = map(_converter, kind.inner)
        return lambda pairs: dict(
            zip(_elements([k for k, _ in pairs], of_key), _elements([v for _, v in pairs], of_value), strict=True)
        )
    return None


def _elements(values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    if None in values:
        raise _UnfitError("a list or map of Cassandra cannot hold null", "array_compact(…) leaves nulls out")
    return list(map(convert, values)) if convert else values


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise _UnfitError(f"{text[:60]!r} is not a UUID") from None


INSERT_RESULT = "rows bigint"
_MAX_BATCH_ROWS, _MAX_BATCH_BYTES = 30, 4096
"""How large a batch of statements may be: below what Cassandra warns of in its log (5 KiB)."""


@dataclass(frozen=True)
class Insertion:
    """All that a task must know; rows of Arrow in, one row out that tells how many there were."""

    door: Cassandra
    table: CassandraTable
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
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        with errors_in_transport():
            count = self.insert(batches, *(task_number(context) if context else ()))
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})

    def insert(self, batches: Iterable[pa.RecordBatch], task: int = 0, tasks: int = 1) -> int:
        """Write all rows of a task, which has a number among others; returns how many when every one is safe."""
        count, work = 0, None
        for batch in batches:
            if batch.num_rows:
                work = work or _Work(self)
                work.add(batch, self.timestamp + count * tasks + task, tasks)
                count += batch.num_rows
        if work:
            work.outflow.finish()
        return count

    @property
    def statement(self) -> str:
        into = f"INSERT INTO {quoted_table(self.table.name)} ({', '.join(map(quoted, self.columns))})"
        ttl = f" AND TTL {self.ttl}" if self.ttl else ""
        return f"{into} VALUES ({', '.join('?' * len(self.columns))}) USING TIMESTAMP ?{ttl}"


class _Work:
    """An insertion under way."""

    def __init__(self, insertion: Insertion) -> None:
        from cassandra import ConsistencyLevel
        from cassandra.query import UNSET_VALUE

        doing = f"write to table {insertion.table.name}"
        self.outflow = CassandraBatchWriter(
            insertion.door, most=insertion.in_flight, patience=insertion.patience, doing=doing
        )
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
            for bound in limited_batches(map(self._bound, group), _MAX_BATCH_ROWS, _size, _MAX_BATCH_BYTES):
                self.outflow.send(self._statement(bound))

    def _grouped(self, rows: list[tuple[Any, ...]]) -> Iterable[list[tuple[Any, ...]]]:
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for row in rows:
            values = (row[number] for number in self._partition)
            key = tuple(value if value.__hash__ else str(value) for value in values)
            groups.setdefault(key, []).append(row)
        return groups.values()

    def _bound(self, row: tuple[Any, ...]) -> Any:
        try:
            return self._prepared.bind(row)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            what = f"a value of a row cannot be written: {error}"
            raise RowRefused(what, hint="cast it, or leave such rows out") from None

    def _statement(self, bound: list[Any]) -> Any:
        from cassandra.query import BatchStatement, BatchType

        if len(bound) == 1:
            return bound[0]
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=self._consistency)
        batch.is_idempotent = True
        for statement in bound:
            batch.add(statement)
        return batch


def _size(bound: Any) -> int:
    return sum(len(value) for value in bound.values if value.__class__ is bytes)


_KEPT = 200
"""How many batches are stored; Spark itself keeps 100 to go back to."""
_ROOM = 10**9
"""Timestamps for a batch of which nobody knows how many it needs."""


@dataclass(frozen=True)
class WriteTimestamps:
    """A small file of the state folder: batch numbers of one query and their timestamps in microseconds.

    A batch gets the time of its first attempt, and more than any batch before it got; a batch that is repeated gets
    what it got before. So what a repeated batch writes never wins over a later one, and what is written now wins over
    what anybody wrote before. `width` is how many timestamps a batch used: one for each row of its longest task.
    """

    path: Path
    query: str
    """Distinguishes batch 0 of a query that started from scratch from a repeated batch 0."""

    def of(self, batch: int) -> int:
        """The timestamp of a batch, noted before anything is written with it."""
        known = self._known()
        times: dict[str, list[int]] = known["batches"] if known["query"] == self.query else {}
        if str(batch) in times:
            return times[str(batch)][0]
        later = [(int(number), begin) for number, (begin, _) in times.items() if int(number) > batch]
        if later:  # it is older than what is remembered: whatever it gets must be less than that
            number, begin = min(later)
            return begin - (number - batch) * _ROOM
        ended = max((begin + width for begin, width in known["batches"].values()), default=0)
        begin = max(time.time_ns() // 1000, ended + 1)
        self._save({**times, str(batch): [begin, 0]})
        return begin

    def used(self, batch: int, width: int) -> None:
        """Note how many timestamps a batch has used."""
        known = self._known()
        batches = known["batches"] if known["query"] == self.query else {}
        if str(batch) in batches and width > batches[str(batch)][1]:
            self._save({**batches, str(batch): [batches[str(batch)][0], width]})

    def _known(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"query": self.query, "batches": {}}
        try:
            known: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
            return {"query": known["query"], "batches": dict(known["batches"])}
        except (ValueError, KeyError, TypeError):
            hint = "remove it: rows are then written with the time of now"
            raise StateMismatch(f"{self.path} is damaged", hint=hint) from None

    def _save(self, batches: dict[str, list[int]]) -> None:
        newest = sorted(batches.items(), key=lambda item: int(item[0]))[-_KEPT:]
        write_whole(self.path, json.dumps({"query": self.query, "batches": dict(newest)}))
