"""Records that cannot be decoded, in Spark's workers and on the way there.

- `BadRecordPolicy` says what happens to the bad records of a source; `BadRecordHandler` does it in a task.
- `DeadLetterFilter` keeps the good rows of a frame and writes the bad ones as dead letters, before the task ends.
- `DeadLetterCount` counts them; those of a batch that comes again count once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.kafka.record import from_base64, to_base64
from millrace.connectors.base.api import MessageSource, RunContext
from millrace.connectors.base.batch_tasks import QUERY_ID
from millrace.connectors.base.message_source import ON_BAD
from millrace.connectors.base.query_checkpoint import last_committed_batch, query_id
from millrace.dead_letters.letter import DeadLetter, Headers
from millrace.dead_letters.writer import DeadLetterTarget, DeadLetterWriter, FolderDeadLetterTarget, WriterTask
from millrace.engine.queries.late_records import MARK, EventTimeCounter, Spans, add_spans, spans_in
from millrace.errors import BadRecord, InvalidOption
from millrace.errors.transport import to_transport

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ID = "streaming.sql.batchId"
_SHARD_COLUMNS = ("stream", "shard", "sequence")


@dataclass(frozen=True)
class DeadLetterCount:
    """A count. That of the newest batch is kept by origin, since the same batch may come again and replaces it."""

    before: int = 0
    batch: int = -1
    newest: Mapping[str, int] = field(default_factory=dict)

    def __int__(self) -> int:
        return self.before + sum(self.newest.values())

    def plus(self, other: DeadLetterCount) -> DeadLetterCount:
        """Return the count together with that of another task."""
        if other.batch > self.batch:
            return replace(other, before=int(self) + other.before)
        if other.batch < self.batch:
            return replace(self, before=self.before + int(other))
        return DeadLetterCount(self.before + other.before, self.batch, {**self.newest, **other.newest})


class DeadLetterCountParam:
    """Adds counts in an accumulator of Spark."""

    def zero(self, value: DeadLetterCount) -> DeadLetterCount:
        del value
        return DeadLetterCount()

    def addInPlace(self, value: DeadLetterCount, other: DeadLetterCount) -> DeadLetterCount:  # noqa: N802 - Spark's
        return value.plus(other)


@dataclass(frozen=True)
class BadRecordPolicy:
    """What happens to the bad records of a source in one query. Can be pickled."""

    on_bad: str
    target: DeadLetterTarget | None
    """None where another query of the pipeline writes the same dead letters."""
    pipeline: str
    source: str
    count: Any = None
    """An accumulator of `DeadLetterCount`."""
    static: bool = False
    """Whether the same records are read again in every batch."""

    @contextmanager
    def open(self) -> Iterator[BadRecordHandler]:
        """Give the handler of a task, and close it at the end; after a failure discard what is not stored."""
        handler = BadRecordHandler(self)
        try:
            yield handler
            handler.close()
        except GeneratorExit:
            handler.close()  # nobody wants more rows, as after a LIMIT: the bad records so far still count
            raise
        except BaseException as error:
            handler.abandon()
            raise to_transport(error) from error


class BadRecordHandler:
    """Handles the bad records of one task; closed before the task ends, so they are stored before its batch counts."""

    def __init__(self, policy: BadRecordPolicy) -> None:
        self._policy = policy
        self._writer: DeadLetterWriter | None = None
        self._by_partition: dict[tuple[str | None, int | None], tuple[DeadLetter, int]] = {}
        """The first letter of each partition, and how many there are; those of no partition are together."""

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Write bad records as dead letters, drop them, or raise: as the pipeline says."""
        policy = self._policy
        if policy.on_bad == "fail" and letters:
            first = letters[0]
            what = f"a record of {policy.source!r} cannot be decoded: {first.reason}"
            hint = "fix what writes it, or set on_bad: dead_letter to keep it as a dead letter and continue"
            raise to_transport(BadRecord(what, why=f"it is at {first.origin}", hint=hint))
        for letter in letters:
            partition = (letter.topic, letter.partition)
            first, count = self._by_partition.get(partition, (letter, 0))
            self._by_partition[partition] = (first, count + 1)
        if policy.on_bad == "dead_letter" and policy.target and letters:
            self._writer = self._writer or policy.target.open(_writer_task(static=policy.static))
            self._writer.write(letters)

    def close(self) -> None:
        """Return when the letters are stored and counted; raise if they cannot be."""
        if self._writer:
            self._writer.close()
        if self._policy.count is not None and self._by_partition:
            task = _writer_task(static=self._policy.static)
            # The keys are the same when the batch comes again.
            counts = {
                f"{first.file} {task.partition_id}" if first.topic is None else first.origin: count
                for first, count in self._by_partition.values()
            }
            self._policy.count.add(DeadLetterCount(0, -1 if task.batch_id is None else task.batch_id, counts))

    def abandon(self) -> None:
        """Discard what is not stored, after a failure: the task will be tried again."""
        if self._writer:
            self._writer.abandon()


@dataclass(frozen=True)
class DeadLetterFilter:
    """The function of a filter: letters as JSON in (null for a good row), whether a row is good out.

    Some good rows carry counts of event times instead.
    """

    policy: BadRecordPolicy
    times: EventTimeCounter | None = None

    def __call__(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Handle what is not null."""
        import pyarrow.compute as pc

        spans: Spans = {}
        with self.policy.open() as handler:
            for batch in batches:
                if batch.null_count == len(batch):
                    yield batch.is_null()
                    continue
                texts = batch.drop_null().to_pylist()
                handler.add([self._letter(json.loads(text)) for text in texts if not text.startswith(MARK)])
                for text in texts if self.times else ():
                    add_spans(spans, spans_in(text) if text.startswith(MARK) else {})
                yield pc.fill_null(pc.starts_with(batch, MARK), True)
        if self.times:
            self.times.report(spans)

    def _letter(self, fields: dict[str, Any]) -> DeadLetter:
        shard = [fields.pop(name, None) for name in _SHARD_COLUMNS]
        fields |= {"file": _shard_url(*shard)} if shard[2] else {}
        fields |= {name: from_base64(fields.get(name)) for name in ("value", "key")}
        fields["headers"] = _headers(fields.get("headers"))
        return DeadLetter(**fields, pipeline=self.policy.pipeline, source=self.policy.source)


def bad_record_policy(source: MessageSource, context: RunContext, *, owns: bool, count: Any) -> BadRecordPolicy:
    """Return what happens to a source's bad records in a query.

    Dead letters in topics are written by every query that finds them, and stored once: one query may be ahead of the
    others, or be removed one day. Those in folders have no such ledger, so the query that owns the source writes them.
    """
    target = source.dead_letter_target(context) if source.keeps_dead_letters else None
    if isinstance(target, FolderDeadLetterTarget) and not owns:
        target = None
    if source.when_bad not in ON_BAD:
        what = f"source {context.name!r} returns when_bad {source.when_bad!r}"
        raise InvalidOption(what, hint=f"return one of {', '.join(ON_BAD)}")
    return BadRecordPolicy(source.when_bad, target, context.pipeline, context.name, count, context.static)


def forget_repeated_batches(target: DeadLetterTarget | None, checkpoint: Path, *, resumes: bool) -> None:
    """Remove from folders the letters of batches that a query runs again: it may divide them into other tasks."""
    query = query_id(checkpoint)
    if isinstance(target, FolderDeadLetterTarget) and query:
        target.forget(query, last_committed_batch(checkpoint) + 1 if resumes else 0)


def to_error_column(letter: DeadLetter) -> str:
    """Return a letter as JSON, as Spark would write it and `DeadLetterFilter` reads it."""
    fields = {
        "reason": letter.reason,
        "value": to_base64(letter.value),
        "key": to_base64(letter.key),
        "headers": json.dumps([{"key": key, "value": to_base64(value)} for key, value in letter.headers]),
        **{name: getattr(letter, name) for name in ("topic", "partition", "offset", "timestamp", "file")},
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def to_dead_letters(rows: pa.RecordBatch, reasons: Sequence[str], policy: BadRecordPolicy) -> list[DeadLetter]:
    """Return rows of a source, as it gives them, as dead letters."""
    return [
        DeadLetter(
            **{name: row.get(name) for name in ("value", "key", "topic", "partition", "offset")},
            headers=_headers(row.get("headers")),
            timestamp=_milliseconds(row.get("timestamp")),
            file=_shard_url(*map(row.get, _SHARD_COLUMNS)) or row.get("file"),
            reason=reason,
            pipeline=policy.pipeline,
            source=policy.source,
        )
        for row, reason in zip(rows.to_pylist(), reasons, strict=True)
    ]


def _shard_url(stream: str | None, shard: str | None, sequence: str | None) -> str | None:
    """Return the address of a record of Kinesis; None for any other record."""
    return f"kinesis://{stream}/{shard}/{sequence}" if sequence else None


def _headers(headers: str | list[dict[str, Any]] | None) -> Headers:
    """Return headers from JSON, as which they pass between Spark and Python, or as a source in Python has them."""
    if isinstance(headers, list):
        return tuple((header["key"], header["value"]) for header in headers)
    parsed = json.loads(headers) if headers else ()
    return tuple((header["key"], from_base64(header.get("value"))) for header in parsed)


def _milliseconds(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _writer_task(*, static: bool) -> WriterTask:
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return WriterTask("", None, 0)
    query, batch = task.getLocalProperty(QUERY_ID), "0" if static else task.getLocalProperty(_BATCH_ID)
    return WriterTask(query or "", int(batch) if batch else None, task.partitionId(), task.attemptNumber())
