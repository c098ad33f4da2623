"""A batch into Kafka exactly once: a task writes its rows, and the note that they are written, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from millrace.clients.lane import Lane
from millrace.clients.records import Record
from millrace.connectors.batches import Batches, Begun
from millrace.connectors.carried import carry
from millrace.connectors.cutting import lanes, pieces
from millrace.connectors.outlet import Note, Outlet
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
    lanes: tuple[int, ...]
    """The number that each task writes under."""
    anew: bool
    """Whether an earlier attempt at the batch may have failed."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a task's rows, unless an earlier attempt has done so."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("there is no task")
        rows = self.write(self.lanes[context.partitionId()], batches, anew=self.anew or context.attemptNumber() > 0)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    def write(self, number: int, batches: Iterator[pa.RecordBatch], *, anew: bool) -> int:
        """Write the rows of a task under its number; how many there were to write."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        rows = chain([first], batches)
        try:
            note = self.outlet.noted(number)
            if not note.says(self.query, self.batch):
                with self.outlet.owned(number, note, anew=anew) as lane:
                    return self._written(number, lane, note, rows)
        except KafkaException as error:
            raise carry(self.outlet.problem(error)) from error
        except Exception as error:
            raise carry(error) from error
        return _passed(rows)

    def _written(self, number: int, lane: Lane, note: Note, batches: Iterable[pa.RecordBatch]) -> int:
        if note.lane != lane.instance:
            # Asked while we own the id: whoever noted something before has ended, and nobody else can any more.
            note = self.outlet.noted(number)
        if note.says(self.query, self.batch):
            with self.outlet.transaction(number, lane, note.query, note.batch):
                pass  # the same, but through our lane: others must see that theirs is not theirs any more
            return _passed(batches)
        rows = 0
        with self.outlet.transaction(number, lane, self.query, self.batch):
            shipping = _Shipping(self.outlet, lane)
            for batch in batches:
                shipping.send(batch)
                rows += batch.num_rows
        return rows


def _passed(batches: Iterable[pa.RecordBatch]) -> int:
    """Rows that are in Kafka already, read to the end: what made them may have state to keep, or letters to bury."""
    for _ in batches:
        pass
    return 0


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
    batches = Batches(site.state / "sinks" / f"{outlet.name}.json")
    last = batches.last(query)
    read = site.pieces or pieces(frame)
    begun = Begun.of(query, read, written=bool(last and last.written))
    again = site.replayed == batch
    if again and last:
        _require_alike(last, begun, batch, outlet)
    batches.begin(begun)
    sending = Transacting(outlet, query, batch, lanes(read), again)
    written: int = sum(row.rows for row in frame.mapInArrow(sending, "rows bigint").collect())
    if written:
        batches.begin(replace(begun, written=True))
    return written


def _require_alike(last: Begun, begun: Begun, batch: int, outlet: Outlet) -> None:
    """Raise when a batch that was begun before cannot be told from what is in Kafka already."""
    alike = last.is_cut_as(begun)
    if not alike:
        for lane in range(last.tasks):
            outlet.open(lane)  # whoever still writes for the old tasks is stopped, so that the answer stays true
    notes = [outlet.noted(lane) for lane in range(max(last.tasks, begun.tasks))]
    if not alike and any(note.says(begun.query, batch) for note in notes):
        raise StateMismatch(
            f"batch {batch} of {outlet.name!r} is written in part, and would be cut into other tasks than before",
            why=f"there were {last.tasks} tasks, and are {begun.tasks}; nobody could tell which rows are in Kafka",
            hint="run it once as before: with a master of as many cores, the same files, the same Spark settings",
        )
    if last.written and not any(note.query == begun.query for note in notes):
        raise StateMismatch(
            f"Kafka does not know any more which batches of {outlet.name!r} are written",
            why="the offsets of its group are gone: Kafka removes them when nobody commits for some days",
            hint=f"look whether batch {batch} is in the topic; guarantee: at-least-once would write it again",
        )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value
