"""A batch into Kafka exactly once: a task writes its rows, and the note that they are written, in one transaction.

What a sink notes in the state folder before it writes: how the batch is cut into tasks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from millrace.atomic_files import write_whole
from millrace.clients.kafka.record import Record
from millrace.clients.kafka.transactions import TransactionalProducer
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.batch_tasks import (
    QUERY_ID,
    TaskPlan,
    fail_on_truncated_input,
    task_arguments,
    task_number,
)
from millrace.connectors.base.query_checkpoint import planned_batch, query_id
from millrace.connectors.kafka.commit_ledger import LEDGER, BatchCommit, CommitLedger
from millrace.errors import InvalidDefinition, StateMismatch
from millrace.errors.transport import to_transport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StartedBatch:
    """A batch that was begun: of which query, when, and what its tasks read, in few letters, to be compared."""

    query: str
    batch: int
    tasks: int
    read: str
    at: float = 0.0
    ledger: str = ""
    """Kafka's id of the topic that the notes of its tasks belong to; empty: not known."""

    @classmethod
    def of(cls, query: str, batch: int, read: tuple[str, ...], ledger: str = "") -> StartedBatch:
        """Now; as the tasks are, in whatever order."""
        told = sha256("\n".join(sorted(read)).encode()).hexdigest()[:16]
        return cls(query, batch, len(read), told, time.time(), ledger)

    def has_same_tasks_as(self, other: StartedBatch) -> bool:
        """Whether both are the same batch, cut into the same tasks."""
        return replace(self, at=0.0, ledger="") == replace(other, at=0.0, ledger="")


class BatchLog:
    """A small file that is safe before a batch is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: StartedBatch | None = StartedBatch(**json.loads(path.read_text("utf-8"))) if path.exists() else None

    def last(self, query: str) -> StartedBatch | None:
        """The newest batch of a query that was begun; None before the first."""
        return self._last if self._last and self._last.query == query else None

    def begin(self, begun: StartedBatch) -> None:
        """A batch is about to be written."""
        if begun != self._last:
            write_whole(self._path, json.dumps(asdict(begun)))
            self._last = begun


_MOST_ROWS = 20_000
_MOST_BYTES = 16_000_000
"""What is handed to the client at once; twice as much may be on its way."""
_FAREWELL = 10.0
"""Seconds that the end of a run may take to end what its tasks have left open."""


@dataclass(frozen=True)
class TransactionalWriter:
    """A function for mapInArrow: rows in; how many were written is all that comes out.

    It is made once for a query. What is said of a batch here, its tasks are told when it runs.
    """

    outlet: CommitLedger
    query: str = ""
    """Spark's id of the query, which lives as long as its checkpoint."""
    batch: int = -1
    anew: bool = False
    """Whether an earlier attempt at the batch may have failed."""
    plan: str = ""
    """Tells the batch from another of its number that a copy of the checkpoint has planned; empty: not known."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a worker, before Spark begins to read the task's rows: what breaks off must not be committed as whole."""
        fail_on_truncated_input()
        self.__dict__.update(state)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a task's rows, unless an earlier attempt has done so."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("there is no task")
        number, _ = task_number(context)
        told = replace(self, **task_arguments(context))
        if not told.query:
            raise RuntimeError("a task of no batch")  # it would take its rows for written
        rows = told.write(number, batches, anew=told.anew or context.attemptNumber() > 0)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    def write(self, number: int, batches: Iterator[pa.RecordBatch], *, anew: bool) -> int:
        """Write the rows of a task under its number; how many there were to write."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        rows = chain([first], batches)
        try:
            # Who was killed just before its commit has left a note that is neither there nor not: nobody is told of it
            # before the id is taken over. So only those ask now who may have it already.
            note = self.outlet.committed_batch(number) if not anew and self.outlet.keeps(number) else BatchCommit()
            self._require_known(note, anew=anew)
            if not note.says(self.query, self.batch):
                with self.outlet.owned(number, note, anew=anew) as lane:
                    return self._written(number, lane, note, rows, anew=anew)
        except KafkaException as error:
            raise to_transport(self.outlet.problem(error)) from error
        except Exception as error:
            raise to_transport(error) from error
        return _passed(rows)

    def _require_known(self, note: BatchCommit, *, anew: bool) -> None:
        """Raise when rows are noted that were never planned here: the checkpoint is older than what is in Kafka."""
        if note.query != self.query or note.batch < self.batch:
            return
        # Spark may run a stage again and not count that as another attempt: the plan tells.
        ours = note.plan == self.plan if note.plan and self.plan else anew
        if note.batch > self.batch or not ours:
            raise StateMismatch(
                f"batch {note.batch} of {self.outlet.name!r} is in Kafka already, and batch {self.batch} begins now",
                why="the state folder is older than what was written: another run has gone on with a copy of it, "
                "or it was restored",
                hint="go on with the newest state folder; to begin anew, choose another folder with --state",
            )

    def _written(
        self,
        number: int,
        lane: TransactionalProducer,
        note: BatchCommit,
        batches: Iterable[pa.RecordBatch],
        *,
        anew: bool,
    ) -> int:
        if note.lane != lane.instance:
            # Asked while we own the id: whoever noted something before has ended, and nobody else can any more.
            note = self.outlet.committed_batch(number)
            self._require_known(note, anew=anew)
        if note.says(self.query, self.batch):
            with self.outlet.transaction(number, lane, note):
                pass  # the same, but through our lane: others must see that theirs is not theirs any more
            return _passed(batches)
        rows = 0
        with self.outlet.transaction(number, lane, BatchCommit(self.query, self.batch, plan=self.plan)):
            shipping = _RecordSender(self.outlet, lane)
            for batch in batches:
                shipping.send(batch)
                rows += batch.num_rows
        return rows


def _passed(batches: Iterable[pa.RecordBatch]) -> int:
    """Rows that are in Kafka already, read to the end: what made them may have state to keep, or letters to bury."""
    for _ in batches:
        pass
    return 0


class _RecordSender:
    """Rows on their way, not too many at a time."""

    def __init__(self, outlet: CommitLedger, lane: TransactionalProducer) -> None:
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


def require_newest(site: RunContext, outlet: CommitLedger) -> None:
    """Raise, before a query goes on, when rows are noted that its checkpoint has never planned.

    Each task asks for itself as well. But a batch that is planned anew has its rows in other tasks, and one whose own
    note is old would write what is in Kafka by the task of another.
    """
    outlet.look()
    query = _query(site)
    if not query:
        return
    newest = site.newest_batch
    last = _batches(site, outlet).last(query)
    plan = _planned(site, newest) if site.unfinished_batch == newest else ""  # of one that is done the number is enough
    known = TransactionalWriter(outlet, query, newest, True, plan)
    for note in outlet.all_committed_batches(last.tasks if last else 1):
        known._require_known(note, anew=True)


def release_transactions(site: RunContext, outlet: CommitLedger) -> None:
    """End what the tasks of a batch that is not done have left open, by taking their ids over.

    A task that Spark kills because another has failed cannot do so itself, and readers of committed records would wait
    behind it. Only for a run that still owns its pipeline's name: another's transactions would be ended as well.
    """
    last = _batches(site, outlet).last(_query(site))
    if last is None or last.batch != site.unfinished_batch:
        return
    deadline = time.monotonic() + _FAREWELL
    for number in range(last.tasks):
        left = deadline - time.monotonic()
        if left < 1:
            return
        outlet.end(number, left)


def with_transactional_writer(frame: DataFrame, outlet: CommitLedger) -> DataFrame:
    """The frame whose tasks write its rows, once they are told of which batch they are."""
    return frame.mapInArrow(TransactionalWriter(outlet), "rows bigint")


def write_batch(frame: DataFrame, batch: int, site: RunContext, outlet: CommitLedger) -> None:
    """Write a batch of what comes `through`.

    An attempt leaves out the tasks that were written before: so a batch that comes again must be cut as it was.
    """
    query = site.spark.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise RuntimeError("a batch of no query")
    batches = _batches(site, outlet)
    last = batches.last(query)
    again = site.unfinished_batch == batch
    cut = TaskPlan.of(frame, site.task_inputs)
    begun = StartedBatch.of(query, batch, cut.inputs, outlet.ledger)
    if again and last:
        _require_alike(last, begun, outlet)
    # A batch that is repeated keeps the time of its first attempt: what that noted may be as old.
    batches.begin(last if again and last and last.has_same_tasks_as(begun) else begun)
    cut.finish({"query": query, "batch": batch, "anew": again, "plan": _planned(site, batch)})


def _batches(site: RunContext, outlet: CommitLedger) -> BatchLog:
    return BatchLog(batches_path(site, outlet.name))


def batches_path(site: RunContext, sink: str) -> Path:
    """Return the file that holds how the newest batch of a sink is cut into tasks."""
    return site.state / "sinks" / f"{site.query}-{sha256(sink.encode()).hexdigest()[:12]}.json"


def _query(site: RunContext) -> str:
    """Spark's id of the query that a site's checkpoint is of; empty before there is one."""
    return query_id(site.checkpoint) if site.checkpoint else ""


def _planned(site: RunContext, batch: int) -> str:
    """What tells a batch from any other of its number: Spark notes its offsets and the moment of its planning, once."""
    plan = planned_batch(site.checkpoint, batch) if site.checkpoint else b""
    return sha256(plan).hexdigest()[:12] if plan else ""


def _require_alike(last: StartedBatch, begun: StartedBatch, outlet: CommitLedger) -> None:
    """Raise when a batch that was begun before cannot be told from what is in Kafka already."""
    if last.batch != begun.batch:  # it was planned, and nothing of it was written
        return
    if time.time() - last.at > outlet.forgets_after():
        raise StateMismatch(
            f"batch {begun.batch} of {outlet.name!r} was begun too long ago to know what of it is written",
            why="Kafka removes the offsets of groups to which nobody commits for some days",
            hint=f"look whether it is in the topic; guarantee: at-least-once would write batch {begun.batch} again",
        )
    if last.ledger and begun.ledger and last.ledger != begun.ledger:
        raise StateMismatch(
            f"nobody can tell what of batch {begun.batch} of {outlet.name!r} is written",
            why=f"the topic {LEDGER} was deleted and made anew since it was begun, and the notes went with it",
            hint=f"look whether it is in the topic; guarantee: at-least-once would write batch {begun.batch} again",
        )
    if last.has_same_tasks_as(begun):
        return
    for number in range(last.tasks):
        outlet.open(number)  # whoever still writes for the old tasks is stopped, so that the answer stays true
    if any(outlet.committed_batch(number).says(begun.query, begun.batch) for number in range(last.tasks)):
        raise StateMismatch(
            f"batch {begun.batch} of {outlet.name!r} is written in part, and would be cut into other tasks than before",
            why=f"there were {last.tasks} tasks, and are {begun.tasks}; nobody could tell which rows are in Kafka",
            hint="run it once as before: with a master of as many cores, the same files, the same Spark settings",
        )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value
