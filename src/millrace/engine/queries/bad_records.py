"""What becomes of records that cannot be decoded: told by who decodes, buried before the task ends.

How many bad records a source had; those of a batch that comes again count once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.kafka.record import from_base64, to_base64
from millrace.connectors.base.api import MessageSource, RunContext
from millrace.connectors.base.batch_tasks import QUERY_ID
from millrace.connectors.base.query_checkpoint import last_committed_batch, query_id
from millrace.dead_letters.letter import DeadLetter, Headers
from millrace.dead_letters.writer import DeadLetterTarget, DeadLetterWriter, FolderDeadLetterTarget, WriterTask
from millrace.errors import BadRecord
from millrace.errors.transport import to_transport

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DeadLetterCount:
    """A count; that of the newest batch is kept by where its records come from, since a repeated one replaces it."""

    before: int = 0
    batch: int = -1
    newest: Mapping[str, int] = field(default_factory=dict)

    def __int__(self) -> int:
        return self.before + sum(self.newest.values())

    def plus(self, more: DeadLetterCount) -> DeadLetterCount:
        """Together with what another task has found."""
        if more.batch > self.batch:
            return replace(more, before=int(self) + more.before)
        if more.batch < self.batch:
            return replace(self, before=self.before + int(more))
        return DeadLetterCount(self.before + more.before, self.batch, {**self.newest, **more.newest})


class DeadLetterCountParam:
    """How Spark's accumulator adds them up."""

    def zero(self, value: DeadLetterCount) -> DeadLetterCount:
        """Nothing yet, in a task."""
        del value
        return DeadLetterCount()

    def addInPlace(self, value: DeadLetterCount, more: DeadLetterCount) -> DeadLetterCount:  # noqa: N802 - Spark's name
        """Both."""
        return value.plus(more)


_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class BadRecordPolicy:
    """What becomes of bad records in one query: picklable, for the workers."""

    when: str
    burial: DeadLetterTarget | None
    """None where another query of the pipeline buries the same records."""
    pipeline: str
    source: str
    count: Any = None
    """An accumulator, which adds up what the workers buried."""
    static: bool = False
    """Whether the same records are read anew in every batch."""

    def open(self) -> BadRecordHandler:
        """In a task: ready for its bad records."""
        return BadRecordHandler(self)


class BadRecordHandler:
    """The bad records of one task; closed before the task ends, so that they are safe before its batch counts."""

    def __init__(self, bad: BadRecordPolicy) -> None:
        self._bad = bad
        self._grave: DeadLetterWriter | None = None
        self._found: dict[tuple[str | None, int | None], tuple[DeadLetter, int]] = {}
        """By partition, all others together: the first, and how many there are."""

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Take bad records, as the pipeline wants it: buried, dropped, or the end of the query."""
        if self._bad.when == "fail" and letters:
            first = letters[0]
            raise to_transport(
                BadRecord(
                    f"a record of {self._bad.source!r} cannot be decoded: {first.reason}",
                    why=f"it is at {first.origin}",
                    hint="mend what writes it, or set on_bad: dead_letter to keep it apart and go on",
                )
            )
        for letter in letters:
            partition = (letter.topic, letter.partition)
            first, count = self._found.get(partition, (letter, 0))
            self._found[partition] = (first, count + 1)
        if self._bad.when == "dead_letter" and self._bad.burial and letters:
            self._grave = self._grave or self._bad.burial.open(_task(static=self._bad.static))
            self._grave.write(letters)

    def close(self) -> None:
        """Make them safe, or raise; then they count."""
        if self._grave:
            self._grave.close()
        if self._bad.count is not None and self._found:
            task = _task(static=self._bad.static)
            counts = {_named(first, task): count for first, count in self._found.values()}
            self._bad.count.add(DeadLetterCount(0, -1 if task.batch_id is None else task.batch_id, counts))

    def abandon(self) -> None:
        """The task failed: it will be tried again."""
        if self._grave:
            self._grave.abandon()


def _named(first: DeadLetter, task: WriterTask) -> str:
    """What bad records are counted under: the same when their batch comes again."""
    return f"{first.file} {task.partition_id}" if first.topic is None else first.origin


@dataclass(frozen=True)
class DeadLetterFilter:
    """A filter's function: bad rows in, as JSON (null for a good one); whether a row is good."""

    bad: BadRecordPolicy

    def __call__(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Bury what is not null."""
        burying = self.bad.open()
        try:
            for batch in batches:
                if batch.null_count < len(batch):
                    burying.add([self._letter(json.loads(told)) for told in batch.drop_null().to_pylist()])
                yield batch.is_null()
            burying.close()
        except GeneratorExit:
            burying.close()
            raise
        except BaseException as error:
            burying.abandon()
            raise to_transport(error) from error

    def _letter(self, told: dict[str, Any]) -> DeadLetter:
        value, key = told.pop("value", None), told.pop("key", None)
        shard = [told.pop(name, None) for name in ("stream", "shard", "sequence")]
        told |= {"file": _in_shard(*shard)} if shard[2] else {}
        return DeadLetter(
            value=from_base64(value),
            key=from_base64(key),
            headers=_headers(told.pop("headers", None)),
            pipeline=self.bad.pipeline,
            source=self.bad.source,
            **told,
        )


def bad_of(reader: MessageSource, site: RunContext, *, owns: bool, count: Any) -> BadRecordPolicy:
    """What becomes of a source's bad records in a query.

    Letters in topics are written by every query that finds them, and are there once: each may be ahead of the others,
    or be removed one day. Letters in folders have no such ledger, so the query that owns the source writes them.
    """
    burial = reader.dead_letter_target(site) if reader.keeps_dead_letters else None
    if isinstance(burial, FolderDeadLetterTarget) and not owns:
        burial = None
    return BadRecordPolicy(reader.when_bad, burial, site.pipeline, site.name, count, site.static)


def forget_repeated(burial: DeadLetterTarget | None, checkpoint: Path, *, anew: bool) -> None:
    """Remove from folders the letters of batches that a query will run again: it may cut them into other tasks."""
    query = query_id(checkpoint)
    if isinstance(burial, FolderDeadLetterTarget) and query:
        burial.forget(query, 0 if anew else last_committed_batch(checkpoint) + 1)


def to_error_column(letter: DeadLetter) -> str:
    """A letter as `DeadLetterFilter` reads it, and as Spark would write it."""
    told = {
        "reason": letter.reason,
        "value": to_base64(letter.value),
        "key": to_base64(letter.key),
        "headers": json.dumps([{"key": key, "value": to_base64(value)} for key, value in letter.headers]),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp,
        "file": letter.file,
    }
    return json.dumps({name: value for name, value in told.items() if value is not None})


def letters_of(rows: pa.RecordBatch, reasons: Sequence[str], bad: BadRecordPolicy) -> list[DeadLetter]:
    """Rows of the raw source as dead letters."""
    named: dict[str, list[Any]] = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    empty: list[Any] = [None] * rows.num_rows

    def column(name: str) -> list[Any]:
        return named.get(name, empty)

    return [
        DeadLetter(
            value=column("value")[at],
            key=column("key")[at],
            headers=_headers(column("headers")[at]),
            topic=column("topic")[at],
            partition=column("partition")[at],
            offset=column("offset")[at],
            timestamp=_milliseconds(column("timestamp")[at]),
            file=_in_shard(*(column(name)[at] for name in ("stream", "shard", "sequence"))) or column("file")[at],
            reason=reasons[at],
            pipeline=bad.pipeline,
            source=bad.source,
        )
        for at in range(rows.num_rows)
    ]


def _in_shard(stream: str | None, shard: str | None, sequence: str | None) -> str | None:
    """The place of a record of Kinesis, in the form of an address; None of any other."""
    return f"kinesis://{stream}/{shard}/{sequence}" if sequence else None


def _headers(told: str | list[dict[str, Any]] | None) -> Headers:
    """As JSON, in which they travel between Spark and Python, or as a source in Python has them."""
    if isinstance(told, list):
        return tuple((one["key"], one["value"]) for one in told)
    return tuple((one["key"], from_base64(one.get("value"))) for one in (json.loads(told) if told else ()))


def _milliseconds(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _task(*, static: bool) -> WriterTask:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return WriterTask("", None, 0)
    query, batch = context.getLocalProperty(QUERY_ID), "0" if static else context.getLocalProperty(_BATCH)
    return WriterTask(query or "", int(batch) if batch else None, context.partitionId(), context.attemptNumber())
