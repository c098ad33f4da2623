"""Write each batch of a query to Kafka exactly once.

The protocol. A sink has a name (pipeline/query/topic). Task t of batch b of query q does this:

1. Wait for the first row. Without rows there is nothing to write.
2. Take the transactional id of t. A producer that this process kept is still the owner if the last commit of t went
   through it and no attempt at the batch has failed. Otherwise open a new producer: Kafka fences the previous owner and
   aborts its open transaction.
3. Read the last commit of t from the ledger, while the id is ours. If it has q, b and the same plan, the rows are in
   Kafka already: read the input to its end, write nothing.
4. In one transaction send the rows and commit b to the ledger.

The driver returns from the batch when all tasks have done so; then Spark commits the batch to its checkpoint.

| failure | what follows |
| --- | --- |
| killed before a task commits | the next run opens the same id, Kafka aborts the transaction, the rows are written |
| killed between the commits of two tasks | one finds its commit and writes nothing, the other one writes |
| killed after all commits, before Spark's own | all tasks find their commits |
| a task is retried or runs twice | same id: the older attempt is fenced |
| the input of a task breaks off | the transaction is aborted (`truncated_input`) |
| the batch would have other tasks than before | refused if a part of it is written, otherwise it continues |
| an older copy of the state folder is used | the ledger is ahead of the checkpoint: refused |
| Kafka has deleted the commits, or the ledger | refused: nobody knows what is written |

This module has the parts of the driver and of the tasks; `commit_ledger` has the transactional ids and the commits in
Kafka, `connectors.base.batch_tasks` numbers the tasks of a batch by what they read. Proof, assumptions and all
failures: docs/decisions/0016-exactly-once.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.atomic_files import write_whole
from millrace.clients.kafka.record import Record
from millrace.clients.kafka.transactions import TransactionalProducer
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.batch_tasks import QUERY_ID, TaskPlan, task_arguments, task_number
from millrace.connectors.base.query_checkpoint import planned_batch, query_id
from millrace.connectors.kafka.commit_ledger import LEDGER, BatchCommit, CommitLedger
from millrace.connectors.kafka.truncated_input import fail_on_truncated_input
from millrace.errors import InvalidDefinition, StateMismatch
from millrace.errors.transport import errors_in_transport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Batches = Iterable[pa.RecordBatch]

_MAX_CHUNK_ROWS = 20_000
_MAX_CHUNK_BYTES = 16_000_000
"""What is handed to the client at once; twice as much may be unacknowledged."""
_RELEASE_TIMEOUT_S = 10.0
"""How long a run that ends may take to abort what its tasks left open."""


@dataclass(frozen=True)
class StartedBatch:
    """A batch that a sink has started to write, as the state folder stores it."""

    query: str
    batch: int
    tasks: int
    read: str
    """A digest of what the tasks read."""
    at: float = 0.0
    ledger: str = ""
    """Kafka's id of the ledger topic that its tasks commit to; empty: unknown."""

    @classmethod
    def of(cls, query: str, batch: int, task_inputs: tuple[str, ...], ledger: str = "") -> StartedBatch:
        """Return a batch that starts now; the order of its tasks does not matter."""
        digest = sha256("\n".join(sorted(task_inputs)).encode()).hexdigest()[:16]
        return cls(query, batch, len(task_inputs), digest, time.time(), ledger)

    def has_same_tasks_as(self, other: StartedBatch) -> bool:
        """Return whether both are the same batch with the same tasks."""
        return replace(self, at=0.0, ledger="") == replace(other, at=0.0, ledger="")


class BatchLog:
    """The file that holds the batch a sink has started last; it is on disk before the batch is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: StartedBatch | None = StartedBatch(**json.loads(path.read_text("utf-8"))) if path.exists() else None

    def last(self, query: str) -> StartedBatch | None:
        """Return the newest batch of a query that was started; None before the first."""
        return self._last if self._last and self._last.query == query else None

    def begin(self, started: StartedBatch) -> None:
        """Store a batch that is about to be written."""
        if started != self._last:
            write_whole(self._path, json.dumps(asdict(started)))
            self._last = started


@dataclass(frozen=True)
class TransactionalWriter:
    """The function that tasks run (for `mapInArrow`): rows in, the number of written rows out.

    It is part of the query's plan, which is made once. What differs from batch to batch comes with the job of the batch
    (`task_arguments`).
    """

    ledger: CommitLedger
    query: str = ""
    """Spark's id of the query, which is as old as its checkpoint."""
    batch: int = -1
    repeated: bool = False
    """Whether an earlier attempt at the batch may have failed."""
    plan: str = ""
    """Distinguishes the batch from one of the same number that a copy of the checkpoint has planned; empty: unknown."""

    def __reduce__(self) -> tuple[Callable[..., TransactionalWriter], tuple[Any, ...]]:
        """Pickle it so that a worker installs the check of its input before it reads the first row."""
        return _unpickle_in_worker, (type(self), dict(self.__dict__))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, unless an earlier attempt has done so."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("there is no task")
        task, _ = task_number(context)
        writer = replace(self, **task_arguments(context))
        if not writer.query:
            raise RuntimeError("a task of no batch")  # its rows would count as written
        rows = writer.write(task, batches, repeated=writer.repeated or context.attemptNumber() > 0)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    def write(self, task: int, batches: Iterator[pa.RecordBatch], *, repeated: bool) -> int:
        """Write the rows of a task and return how many were written."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        rows = chain([first], batches)
        with errors_in_transport(), self.ledger.translated_errors():
            # If a task was killed just before its commit, Kafka does not answer before the id is taken over.
            # So only a process that may still own the id reads the last commit now.
            may_own = not repeated and self.ledger.has_open_producer(task)
            commit = self.ledger.committed_batch(task) if may_own else BatchCommit()
            self._require_known(commit, repeated=repeated)
            if not commit.includes(self.query, self.batch):
                with self.ledger.producer(task, commit, reopen=repeated) as producer:
                    return self._write_as_owner(task, producer, commit, rows, repeated=repeated)
        return _skip(rows)

    def _require_known(self, commit: BatchCommit, *, repeated: bool) -> None:
        """Raise if rows are committed that were never planned here: the checkpoint is older than the topic."""
        if commit.query != self.query or commit.batch < self.batch:
            return
        # Spark may run a stage again without counting an attempt; then the plan decides.
        own = commit.plan == self.plan if commit.plan and self.plan else repeated
        if commit.batch > self.batch or not own:
            raise StateMismatch(
                f"batch {commit.batch} of {self.ledger.name!r} is in Kafka already, and batch {self.batch} starts now",
                why="the state folder is older than what was written: another run has continued with a copy of it, "
                "or it was restored",
                hint="continue with the newest state folder; to start from scratch choose another one with --state",
            )

    def _write_as_owner(
        self, task: int, producer: TransactionalProducer, commit: BatchCommit, batches: Batches, *, repeated: bool
    ) -> int:
        if commit.producer != producer.instance:
            # Read while we own the id: every earlier owner has ended, and nobody else can commit.
            commit = self.ledger.committed_batch(task)
            self._require_known(commit, repeated=repeated)
        if commit.includes(self.query, self.batch):
            with self.ledger.transaction(task, producer, commit):
                pass  # the same commit through our producer: processes that kept another one must see that they lost it
            return _skip(batches)
        rows = 0
        with self.ledger.transaction(task, producer, BatchCommit(self.query, self.batch, plan=self.plan)):
            sender = _RecordSender(self.ledger, producer)
            for batch in batches:
                sender.send(batch)
                rows += batch.num_rows
        return rows


def _unpickle_in_worker(kind: type[TransactionalWriter], fields: dict[str, Any]) -> TransactionalWriter:
    """Return the writer of a task. Spark's worker unpickles it before it reads rows, so the check must start here."""
    fail_on_truncated_input()
    return kind(**fields)


def _skip(batches: Iterable[pa.RecordBatch]) -> int:
    """Read rows that are in Kafka already: their operators may have state to store, or dead letters to write."""
    for _ in batches:
        pass
    return 0


class _RecordSender:
    """Sends rows in a transaction, with a limit on what is not acknowledged."""

    def __init__(self, ledger: CommitLedger, producer: TransactionalProducer) -> None:
        self._ledger = ledger
        self._producer = producer
        self._unacknowledged_rows = self._unacknowledged_bytes = 0
        self._existing_topics = {ledger.topic} if ledger.topic else set()

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand rows to the client; wait while too many are not acknowledged."""
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        step = max(1, min(_MAX_CHUNK_ROWS, _MAX_CHUNK_BYTES // row_bytes))
        plain = not {"headers", "topic", "partition"} & set(batch.schema.names)
        for start in range(0, batch.num_rows, step):
            rows: list[dict[str, Any]] = batch.slice(start, step).to_pylist()
            if plain and self._ledger.topic:
                self._producer.send_many(self._ledger.topic, rows)
            else:
                self._send_each(rows)
            self._unacknowledged_rows += len(rows)
            self._unacknowledged_bytes += row_bytes * len(rows)
            too_many = self._unacknowledged_rows > 10 * _MAX_CHUNK_ROWS
            if too_many or self._unacknowledged_bytes > _MAX_CHUNK_BYTES:
                self._producer.settle()
                self._unacknowledged_rows = self._unacknowledged_bytes = 0

    def _send_each(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            topic = row.get("topic") or self._ledger.topic
            if topic is None:
                raise InvalidDefinition(
                    "a row names no topic", why="its topic_column is null", hint="fill it, or name a topic for all rows"
                )
            if topic not in self._existing_topics:
                self._ledger.require_topic(self._producer, topic)
                self._existing_topics.add(topic)
            headers = tuple((header["key"], header["value"]) for header in row.get("headers") or ())
            value, key = _bytes(row.get("value")), _bytes(row.get("key"))
            self._producer.send(topic, Record(value, key, None, headers, row.get("partition")))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value


def with_transactional_writer(frame: DataFrame, ledger: CommitLedger) -> DataFrame:
    """Return the frame whose tasks write its rows; `write_batch` runs it."""
    return frame.mapInArrow(TransactionalWriter(ledger), "rows bigint")


def write_batch(frame: DataFrame, batch: int, context: RunContext, ledger: CommitLedger) -> None:
    """Write a batch of a frame `with_transactional_writer`.

    A repeated batch leaves out the tasks that are committed, so it must have the same tasks as before.
    """
    query = context.spark.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise RuntimeError("a batch of no query")
    log = _batch_log(context, ledger)
    last = log.last(query)
    repeated = context.unfinished_batch == batch
    tasks = TaskPlan.of(frame, context.task_inputs)
    started = StartedBatch.of(query, batch, tasks.inputs, ledger.ledger_id)
    if repeated and last:
        _require_same_tasks(last, started, ledger)
    # A repeated batch keeps the time of its first attempt: its commits may be as old.
    log.begin(last if repeated and last and last.has_same_tasks_as(started) else started)
    tasks.finish({"query": query, "batch": batch, "repeated": repeated, "plan": _plan_digest(context, batch)})


def require_newest(context: RunContext, ledger: CommitLedger) -> None:
    """Raise, before a query resumes, if batches are committed that its checkpoint has never planned.

    Each task checks its own commit as well. But a batch that is planned again may have its rows in other tasks, and a
    task whose own commit is old would write what another task has written.
    """
    ledger.read_ledger_id()
    query = _query_id(context)
    if not query:
        return
    newest = context.newest_batch
    last = _batch_log(context, ledger).last(query)
    # Of a finished batch the number will do.
    plan = _plan_digest(context, newest) if context.unfinished_batch == newest else ""
    writer = TransactionalWriter(ledger, query, newest, True, plan)
    for commit in ledger.all_committed_batches(last.tasks if last else 1):
        writer._require_known(commit, repeated=True)


def release_transactions(context: RunContext, ledger: CommitLedger) -> None:
    """Abort what the tasks of an unfinished batch left open, by taking over their transactional ids.

    A task that Spark kills because another has failed cannot do so itself, and readers of committed records would wait
    for it. Only a run that still owns its pipeline's name may do this: it would abort the transactions of another run.
    """
    last = _batch_log(context, ledger).last(_query_id(context))
    if last is None or last.batch != context.unfinished_batch:
        return
    deadline = time.monotonic() + _RELEASE_TIMEOUT_S
    for task in range(last.tasks):
        left_s = deadline - time.monotonic()
        if left_s < 1:
            return
        ledger.abort_open_transaction(task, left_s)


def _batch_log(context: RunContext, ledger: CommitLedger) -> BatchLog:
    return BatchLog(batches_path(context, ledger.name))


def batches_path(context: RunContext, sink: str) -> Path:
    """Return the file that holds the batch a sink has started last."""
    return context.state / "sinks" / f"{context.query}-{sha256(sink.encode()).hexdigest()[:12]}.json"


def _query_id(context: RunContext) -> str:
    return query_id(context.checkpoint) if context.checkpoint else ""


def _plan_digest(context: RunContext, batch: int) -> str:
    """Return a digest of what Spark wrote when it planned a batch: its offsets, and when that was."""
    plan = planned_batch(context.checkpoint, batch) if context.checkpoint else b""
    return sha256(plan).hexdigest()[:12] if plan else ""


def _require_same_tasks(last: StartedBatch, started: StartedBatch, ledger: CommitLedger) -> None:
    """Raise if nobody can know which rows of a repeated batch are in Kafka."""
    if last.batch != started.batch:  # it was planned, and nothing of it was written
        return
    hint = f"look whether it is in the topic; guarantee: at-least-once would write batch {started.batch} again"
    if time.time() - last.at > ledger.retention_s():
        raise StateMismatch(
            f"batch {started.batch} of {ledger.name!r} was started too long ago to know what of it is written",
            why="Kafka deletes the offsets of groups that do not commit for some days",
            hint=hint,
        )
    if last.ledger and started.ledger and last.ledger != started.ledger:
        raise StateMismatch(
            f"it is unknown what of batch {started.batch} of {ledger.name!r} is written",
            why=f"the topic {LEDGER} was deleted and created again since it was started, and the commits with it",
            hint=hint,
        )
    if last.has_same_tasks_as(started):
        return
    for task in range(last.tasks):
        ledger.open_producer(task)  # fences a task that still writes, so that the answers below stay true
    if any(ledger.committed_batch(task).includes(started.query, started.batch) for task in range(last.tasks)):
        raise StateMismatch(
            f"batch {started.batch} of {ledger.name!r} is written in part, and would have other tasks than before",
            why=f"there were {last.tasks} tasks, and are {started.tasks}; it is unknown which rows are in Kafka",
            hint="run it once as before: with a master of as many cores, the same files, the same Spark settings",
        )
