"""A batch into Kafka exactly once: a task writes its rows, and the note that they are written, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from millrace.clients.lane import Lane
from millrace.clients.records import Record
from millrace.connectors.batches import Batches
from millrace.connectors.carried import carry
from millrace.connectors.outlet import Outlet
from millrace.connectors.stream import Site
from millrace.errors import InvalidDefinition, StateMismatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_QUERY = "sql.streaming.queryId"
_MOST_ROWS = 20_000
_MOST_BYTES = 16_000_000
"""What is handed to the client at once; twice as much may be on its way."""


@dataclass(frozen=True)
class Transacting:
    """A function for mapInArrow: rows in; how many were written is all that comes out."""

    outlet: Outlet
    query: str
    """Spark's id of the query, which lives as long as its checkpoint."""
    batch: int
    anew: bool
    """Whether an earlier attempt at the batch may have failed."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a task's rows, unless an earlier attempt has done so."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("there is no task")
        rows = self.write(context.partitionId(), batches, anew=self.anew or context.attemptNumber() > 0)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    def write(self, task: int, batches: Iterator[pa.RecordBatch], *, anew: bool) -> int:
        """Write the rows of a task; how many there were to write."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        try:
            with self.outlet.owned(task, anew=anew) as (lane, note):
                if not note.says(self.query, self.batch):
                    return self._written(task, lane, chain([first], batches))
        except KafkaException as error:
            raise carry(self.outlet.problem(error)) from error
        except Exception as error:
            raise carry(error) from error
        for _ in batches:  # to the end: what made them may have state to keep, or dead letters to bury
            pass
        return 0

    def _written(self, task: int, lane: Lane, batches: Iterable[pa.RecordBatch]) -> int:
        rows = 0
        with self.outlet.transaction(task, lane, self.query, self.batch):
            shipping = _Shipping(self.outlet, lane)
            for batch in batches:
                shipping.send(batch)
                rows += batch.num_rows
        return rows


class _Shipping:
    """Rows on their way, not too many at a time."""

    def __init__(self, outlet: Outlet, lane: Lane) -> None:
        self._outlet = outlet
        self._lane = lane
        self._rows = self._bytes = 0
        self._known = {outlet.topic} if outlet.topic else set()

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand rows to the client; waits when there are too many on their way."""
        size = max(1, batch.nbytes // max(1, batch.num_rows))
        step = max(1, min(_MOST_ROWS, _MOST_BYTES // size))
        quick = not {"headers", "topic", "partition"} & set(batch.schema.names)
        for start in range(0, batch.num_rows, step):
            rows: list[dict[str, Any]] = batch.slice(start, step).to_pylist()
            if quick and self._outlet.topic:
                self._lane.send_many(self._outlet.topic, rows)
            else:
                self._send_each(rows)
            self._rows += len(rows)
            self._bytes += size * len(rows)
            if self._bytes > _MOST_BYTES or self._rows > 10 * _MOST_ROWS:
                self._lane.settle()
                self._rows = self._bytes = 0

    def _send_each(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            topic = row.get("topic") or self._outlet.topic
            if topic is None:
                raise InvalidDefinition(
                    "a row names no topic", why="its topic_column is null", hint="fill it, or name a topic for all rows"
                )
            if topic not in self._known:
                self._outlet.require(self._lane, topic)
                self._known.add(topic)
            headers = tuple((one["key"], one["value"]) for one in row.get("headers") or ())
            self._lane.send(
                topic, Record(_bytes(row.get("value")), _bytes(row.get("key")), None, headers, row.get("partition"))
            )


def write_once(frame: DataFrame, batch: int, site: Site, outlet: Outlet) -> int:
    """Write a batch; how many rows were not there yet.

    An attempt leaves out the tasks that were written before: so a batch that comes again must be cut as it was.
    """
    query = site.spark.sparkContext.getLocalProperty(_QUERY)
    if not query:
        raise RuntimeError("a batch of no query")
    tasks: int = frame._jdf.queryExecution().toRdd().getNumPartitions()
    begun = Batches(site.state / "sinks" / f"{outlet.name}.json")
    again = site.replayed == batch
    if again:
        _require_alike(begun, query, batch, tasks, outlet)
    begun.begin(query, tasks)
    rows = frame.mapInArrow(Transacting(outlet, query, batch, again), "rows bigint").collect()
    written: int = sum(row.rows for row in rows)
    if written:
        begun.wrote(query)
    return written


def _require_alike(begun: Batches, query: str, batch: int, tasks: int, outlet: Outlet) -> None:
    """Raise when a batch that was begun before cannot be told from what is in Kafka already."""
    before = begun.tasks(query)
    if before is None:
        return
    if before != tasks:
        for task in range(before):
            outlet.open(task)  # whoever still writes for the old tasks is stopped, so that the answer stays true
    notes = [outlet.noted(task) for task in range(max(before, tasks))]
    if before != tasks and any(note.says(query, batch) for note in notes):
        raise StateMismatch(
            f"batch {batch} of {outlet.name!r} is written in part, by {before} tasks; now it would be cut into {tasks}",
            why="nobody could tell which of its rows are in Kafka",
            hint=f"run it once as before (a master with as many cores, the same files): it needs {before} tasks",
        )
    if begun.has_written(query) and not any(note.query == query for note in notes):
        raise StateMismatch(
            f"Kafka does not know any more which batches of {outlet.name!r} are written",
            why="the offsets of its group are gone: Kafka removes them when nobody commits for some days",
            hint=f"look whether batch {batch} is in the topic; guarantee: at-least-once would write it again",
        )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value
