"""Dead letters in Kafka: each is written to `<topic>.dead` exactly once, however often its task runs.

- `KafkaDeadLetterTarget`: the dead topics of a source; created on the driver, pickled to the workers.
- `KafkaDeadLetterWriter`: collects the letters of a task and writes them partition by partition.

The letters of a partition of the source are written in a transaction that also commits, for the consumer group
`millrace.dead.<pipeline>.<source>`, which offsets of that partition are done (`offset_ledger`). All tasks that write
letters of a partition share a transactional id. Of two that write at once Kafka fences the first; it starts again,
reads what is committed, and writes the rest. docs/decisions/0011-dead-letters.md has the reasons.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.clients.kafka.cluster import REFUSED, Cluster
from millrace.clients.kafka.record import Record
from millrace.clients.kafka.transactions import CommittedOffsets, DeliveryFailed, TransactionalProducer
from millrace.clients.pool import Pool
from millrace.dead_letters.letter import DeadLetter, dead_topic, to_headers
from millrace.dead_letters.offset_ledger import DecoderId, OffsetLedger, OffsetRange
from millrace.dead_letters.store import create_dead_letter_topics
from millrace.dead_letters.writer import DeadLetterTarget, DeadLetterWriter, WriterTask
from millrace.errors import InputError, MillraceError, RecordRefused, TopicGone

WRITE_TIMEOUT_S = 120.0
"""How long a write is repeated before it fails the task."""
_NEW_TOPIC_TIMEOUT_S = 5.0
"""How long a broker may not know a new topic."""
_FIRST_RETRY_DELAY_S, _MAX_RETRY_DELAY_S = 0.02, 2.0
_MAX_BUFFERED_LETTERS = 5_000
_MAX_BUFFERED_BYTES = 8_000_000
_UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}

_PRODUCERS: Pool[TransactionalProducer] = Pool(16)
_COMMITTED: Pool[CommittedOffsets] = Pool(4)


def dead_letter_transactional_id(group: str, topic: str, partition: int) -> str:
    """Return the transactional id that all tasks share which write dead letters of a partition."""
    return f"{group}/{topic}/{partition}"


@dataclass(frozen=True)
class KafkaDeadLetterTarget(DeadLetterTarget):
    """Dead letters in `<topic>.dead`, each exactly once."""

    cluster: Cluster = field(repr=False)
    pipeline: str
    source: str
    topics: Mapping[str, str] = field(default_factory=dict)
    """The dead topic of a topic, where it is not `<topic>.dead`."""
    decoder_version: str | None = None
    """Tasks of the same version find the same records bad, whichever query they belong to: their letters are stored
    once. It must change with the schema, the format, the decoded columns and the state folder. None: each query is a
    version of its own, and writes its letters."""
    create: bool = False
    """Whether a worker creates a missing dead topic, as that of a topic which a pattern has just found."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", replace(self.cluster))  # without open connections, which cannot be pickled

    @property
    def group(self) -> str:
        """Return the consumer group in which finished offsets are committed."""
        return f"millrace.dead.{self.pipeline}.{self.source}"

    def dead_topic(self, topic: str) -> str:
        """Return the topic for the letters of a topic."""
        return self.topics.get(topic, dead_topic(topic))

    def prepare(self, topics: Iterable[str]) -> list[str]:
        """Create the missing dead topics of topics, on the driver, and return their names."""
        return create_dead_letter_topics(replace(self.cluster), {topic: self.dead_topic(topic) for topic in topics})

    def open(self, task: WriterTask) -> KafkaDeadLetterWriter:
        return KafkaDeadLetterWriter(self, DecoderId(task.query, self.decoder_version or task.query, task.batch_id))


class KafkaDeadLetterWriter(DeadLetterWriter):
    """Writes the letters of one task, each partition of the source in transactions of its own."""

    def __init__(self, target: KafkaDeadLetterTarget, decoder: DecoderId) -> None:
        self._target = target
        self._decoder = decoder
        self._buffers: dict[tuple[str, int], list[DeadLetter]] = {}
        self._buffered_letters = self._buffered_bytes = 0
        self._ranges: dict[tuple[str, int], OffsetRange] = {}
        """From the first letter of the task in each partition to the last one that was flushed."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            if letter.topic is None or letter.partition is None or letter.offset is None:
                raise ValueError(f"a letter that is not from a topic: {letter.origin}")
            buffer = self._buffers.setdefault((letter.topic, letter.partition), [])
            buffer.append(self._target.with_origin(letter))
            self._buffered_letters += 1
            self._buffered_bytes += len(letter.value or b"")
            if self._buffered_letters >= _MAX_BUFFERED_LETTERS or self._buffered_bytes >= _MAX_BUFFERED_BYTES:
                self.close()

    def close(self) -> None:
        for partition, letters in self._buffers.items():
            self._require_order(partition, letters)
            self._write_with_retries(partition, letters)
        self._buffers.clear()
        self._buffered_letters = self._buffered_bytes = 0

    def abandon(self) -> None:
        self._buffers.clear()

    def _require_order(self, partition: tuple[str, int], letters: Sequence[DeadLetter]) -> None:
        """Raise if a letter comes after one of a higher offset: it would count as written, and be lost."""
        offsets = [letter.offset or 0 for letter in letters]
        first, end = self._ranges.get(partition, (offsets[0], offsets[0]))
        for before, after in pairwise([end - 1, *offsets]):
            if after <= before:
                topic, number = partition
                raise ValueError(f"letters of {topic}[{number}] out of order: {after} after {before}")
        self._ranges[partition] = (first, offsets[-1] + 1)

    def _write_with_retries(self, partition: tuple[str, int], letters: Sequence[DeadLetter]) -> None:
        topic = partition[0]
        dead = self._target.dead_topic(topic)
        started, delay_s = time.monotonic(), _FIRST_RETRY_DELAY_S
        while True:
            try:
                self._write_transaction(dead, partition, letters)
                return
            except KafkaException as error:
                problem = self._problem(error, dead, letters)
                if isinstance(problem, RecordRefused) and len(letters) > 1:
                    break
                if time.monotonic() - started > _retry_timeout_s(problem):
                    raise problem from error
                if isinstance(problem, TopicGone) and self._target.create:
                    create_dead_letter_topics(replace(self._target.cluster), {topic: dead})
            time.sleep(random.uniform(0, delay_s))  # at random, so that two writers do not fence each other forever
            delay_s = min(2 * delay_s, _MAX_RETRY_DELAY_S)
        # Either one of them is too large, or only all of them together are.
        half = len(letters) // 2
        self._write_with_retries(partition, letters[:half])
        self._write_with_retries(partition, letters[half:])

    def _write_transaction(self, dead: str, source: tuple[str, int], letters: Sequence[DeadLetter]) -> None:
        """Write what is not written yet, with the offsets that are then done."""
        topic, partition = source
        cluster, group = self._target.cluster, self._target.group
        transactional_id = dead_letter_transactional_id(group, topic, partition)
        open_committed = partial(CommittedOffsets, cluster, group)
        with _COMMITTED.borrow((cluster.key, group), open_committed):
            pass  # a new client finds its coordinator while the producer connects
        open_producer = partial(TransactionalProducer, cluster, transactional_id)
        with _PRODUCERS.borrow((cluster.key, transactional_id), open_producer) as producer:
            # Read while we own the id: a task that writes after this answer has to fence us, and then we fail.
            with _COMMITTED.borrow((cluster.key, group), open_committed) as committed:
                offset, text = committed.read(topic, partition)
                group_metadata = committed.group
            ledger = OffsetLedger.parse(text)
            missing = set(ledger.missing(self._decoder, (letter.offset or 0 for letter in letters)))
            unwritten = [letter for letter in letters if letter.offset in missing]
            if not unwritten:
                return
            dead_partition = partition % producer.partitions(dead)  # keeps their order
            records = [
                (dead, Record(letter.value, letter.key, None, tuple(to_headers(letter)), dead_partition))
                for letter in unwritten
            ]
            end = (letters[-1].offset or 0) + 1
            # A task reads in order, so everything since its first letter is done.
            done = ledger.with_range(self._decoder, (self._ranges[source][0], end))
            position = TopicPartition(topic, partition, max(offset, end), done.text())
            producer.write(records, position, group_metadata)

    def _problem(self, error: KafkaException, dead: str, letters: Sequence[DeadLetter]) -> MillraceError:
        problem: KafkaError = error.args[0]
        first = letters[0]
        if problem.code() in REFUSED and isinstance(error, DeliveryFailed):
            return RecordRefused(
                f"topic {dead!r} refuses the dead letter of {first.origin} ({len(first.value or b''):,} bytes)",
                why=problem.str(),
                hint=f"allow larger records: millrace kafka topics alter {dead} --config max.message.bytes=N",
            )
        if problem.code() in _UNKNOWN_TOPIC:
            return TopicGone(
                f"dead letters cannot be written: there is no topic {dead!r}, or {first.topic!r} was deleted",
                why=problem.str(),
                hint=f"create it again: millrace kafka topics create {dead}",
            )
        return self._target.cluster.error(problem, f"write dead letters to topic {dead!r}")


def _retry_timeout_s(problem: MillraceError) -> float:
    """Return for how long a write is repeated; 0 if the next attempt would fail the same way."""
    if isinstance(problem, RecordRefused | InputError):
        return 0.0
    return _NEW_TOPIC_TIMEOUT_S if isinstance(problem, TopicGone) else WRITE_TIMEOUT_S
