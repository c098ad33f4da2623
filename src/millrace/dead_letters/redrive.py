"""Redrive dead letters of a topic: send their records to where they came from, each exactly once.

- `redrive_topic` sends records and the markers of their letters in one Kafka transaction. All redrives of a dead topic
  share a transactional id: the last one fences the others, then reads the topic to its end. What was sent before is
  marked there, and nobody else can send since.
- `RedriveIndex`: the markers of a dead topic, and which letters belong to the same record.
- `RedriveTarget`: a topic that records are sent to, and what they look like there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

import orjson
from confluent_kafka import KafkaError, KafkaException

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import FENCED, REFUSED, Cluster
from millrace.clients.kafka.consumer import OffsetRanges, topic_ranges
from millrace.clients.kafka.record import Record, limited_batches
from millrace.clients.kafka.transactions import DeliveryFailed, TransactionalProducer
from millrace.dead_letters.fixes import NO_FIX, Fix, apply_fix
from millrace.dead_letters.letter import REDRIVEN_HEADER, DeadLetter
from millrace.dead_letters.offset_ledger import RedriveMarkers, marker_record
from millrace.dead_letters.redrive_filter import RedriveFilter
from millrace.dead_letters.redrive_result import OnProgress, RedriveResult
from millrace.dead_letters.store import StoredDeadLetter, letters_in_ranges
from millrace.errors import MillraceError, RedriveBusy, UnknownTopic


@dataclass
class RedriveIndex:
    """What a dead topic holds: marks, and which letters are of the same record.

    A record that several pipelines could not use has a letter of each. It is sent again once, for all of them.
    """

    topic: str
    marks: RedriveMarkers = field(default_factory=RedriveMarkers)
    _ours: set[int] = field(default_factory=set)
    """Letters that this redrive has sent or marked."""
    _first: dict[int, int] = field(default_factory=dict)
    _others: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, cluster: Cluster, topic: str, ranges: OffsetRanges) -> RedriveIndex:
        """Read the topic to its end: no marker may be missed."""
        index = cls(topic)
        for stored in letters_in_ranges(cluster, ranges, on_marker=index.marks.add, require_all=True):
            record, position = _record(stored.letter), _packed(stored.partition or 0, stored.offset)
            if index._first.setdefault(record, position) != position:
                index._others.setdefault(record, []).append(position)
        return index

    def positions(self, stored: StoredDeadLetter) -> tuple[tuple[int, int], ...]:
        """Return partition and offset of every letter of the same record."""
        record = _record(stored.letter)
        return tuple(map(_unpacked, (self._first[record], *self._others.get(record, ()))))

    def mark(self, positions: Iterable[tuple[int, int]]) -> None:
        """Add letters that this redrive has sent or marked."""
        self._ours.update(_packed(*position) for position in positions)

    def is_marked(self, partition: int, offset: int) -> bool:
        """Return whether a letter is marked, by an earlier redrive or by this one."""
        return _packed(partition, offset) in self._ours or self.marks.contains(self.topic, partition, offset)


def _record(letter: DeadLetter) -> int:
    """Return a number for the record of a letter; a topic that was recreated has other records at the same offsets."""
    source = repr((letter.topic, letter.partition, letter.offset, letter.timestamp, letter.key)).encode()
    return int.from_bytes(blake2b(source + (letter.value or b""), digest_size=16).digest(), "big")


def _packed(partition: int, offset: int) -> int:
    return partition << 64 | offset


def _unpacked(position: int) -> tuple[int, int]:
    return position >> 64, position & ((1 << 64) - 1)


_MAX_FRAMING_BYTES = 200
"""Bytes that Kafka adds to a record, at most: a batch of one."""
_MAX_REASON_CHARS = 500


@dataclass(frozen=True)
class RedriveTarget:
    """A topic that records are sent to."""

    partitions: int
    limit: int
    retention: int
    """Milliseconds that it keeps records; negative is for ever."""

    def to_record(self, stored: StoredDeadLetter, fixed: DeadLetter, fix: str | None, *, elsewhere: bool) -> Record:
        """The record as it is sent: as it was, where it was, with a header that says what happened to it."""
        now = round(time.time() * 1000)
        same_partition = not elsewhere and fixed.key == stored.letter.key and stored.letter.partition is not None
        partition = (stored.letter.partition or 0) % self.partitions if same_partition else None
        # What is nearly as old as what the topic deletes could be gone before it is read.
        old = fixed.timestamp is None or 0 <= self.retention < 2 * (now - fixed.timestamp)
        others = (header for header in fixed.headers if header[0] != REDRIVEN_HEADER)
        headers = (*others, (REDRIVEN_HEADER, _provenance(stored, fix, now)))
        return Record(fixed.value, fixed.key, now if old else fixed.timestamp, headers, partition)

    def refusal(self, record: Record) -> str | None:
        """Why the topic will not take a record; None when it will."""
        headers = sum(len(name) + len(content or b"") + 10 for name, content in record.headers)
        size = len(record.value or b"") + len(record.key or b"") + headers + _MAX_FRAMING_BYTES
        return f"{size:,} bytes are more than the topic takes ({self.limit:,})" if size > self.limit else None


def _provenance(stored: StoredDeadLetter, fix: str | None, now: int) -> bytes:
    letter = stored.letter
    provenance = {
        "attempt": letter.attempts + 1,
        "at": now,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp,
        "dead": stored.position,
        "reason": letter.reason[:_MAX_REASON_CHARS].encode("utf-8", "backslashreplace").decode("utf-8"),
        "pipeline": letter.pipeline,
        "source": letter.source,
        "fix": fix,
    }
    return orjson.dumps(provenance)


MAX_TRANSACTION_LETTERS = 1_000
_MAX_TRANSACTION_BYTES = 4_000_000
"""Of one transaction, which is to be short: who reads committed records waits for it."""


@dataclass(frozen=True)
class Redrive:
    """Which letters are sent again, how they are fixed, and where they go."""

    selection: RedriveFilter = field(default_factory=RedriveFilter)
    fix: Fix = NO_FIX
    to: str | None = None
    """Another topic than that of the record."""


@dataclass(frozen=True)
class _Sending:
    """A letter that is about to be sent, or only to be marked (no record)."""

    positions: tuple[tuple[int, int], ...]
    """Partition and offset of this letter and of all others of the same record."""
    topic: str = ""
    record: Record | None = None
    origin: str = ""

    @property
    def size(self) -> int:
        return len(self.record.value or b"") if self.record else 0


def redrive_topic(
    cluster: Cluster, dead_topic: str, wanted: Redrive, on_progress: OnProgress = lambda _: None
) -> RedriveResult:
    """Send letters of a dead topic again; report those that cannot be sent, which stay."""
    refused: dict[str, str] = {}
    result = RedriveResult()
    while True:
        attempt = _Attempt(cluster, dead_topic, wanted, refused, on_progress, result)
        try:
            return attempt.run()
        except _Refused as error:  # the topic will never take it: the others go without it
            refused[error.origin] = error.message
            result = RedriveResult(attempt.result.sent, attempt.result.already)


def redrive_transactional_id(dead_topic: str) -> str:
    """Return the transactional id that all redrives of a topic share."""
    return f"millrace.redrive.{dead_topic}"


class _Refused(Exception):
    def __init__(self, origin: str, message: str) -> None:
        super().__init__(message)
        self.origin, self.message = origin, message


@dataclass
class _Attempt:
    """One owner of the transactional id, as long as nothing goes wrong."""

    cluster: Cluster
    dead_topic: str
    wanted: Redrive
    refused: dict[str, str]
    on_progress: OnProgress
    result: RedriveResult
    targets: dict[str, RedriveTarget] = field(default_factory=dict)

    def run(self) -> RedriveResult:
        topics.require(self.cluster.connect(), self.dead_topic)
        try:
            producer = TransactionalProducer(self.cluster, redrive_transactional_id(self.dead_topic))
            # Read while we own the id: a redrive that sends after this answer has to fence us, and then we fail.
            ranges = topic_ranges(self.cluster, [self.dead_topic])
            index = RedriveIndex.read(self.cluster, self.dead_topic, ranges)
            sendings = self._sendings(letters_in_ranges(self.cluster, ranges), index)
            for batch in limited_batches(
                sendings, MAX_TRANSACTION_LETTERS, lambda sending: sending.size, _MAX_TRANSACTION_BYTES
            ):
                self._send(producer, batch)
        except KafkaException as error:
            raise self._problem(error.args[0]) from error
        return self.result

    def _sendings(self, letters: Iterable[StoredDeadLetter], index: RedriveIndex) -> Iterator[_Sending]:
        for stored in letters:
            if not self.wanted.selection.matches(stored) or index.is_marked(stored.partition or 0, stored.offset):
                continue
            positions = index.positions(stored)
            sent = any(index.is_marked(*position) for position in positions)
            sending = _Sending(positions) if sent else self._sending(stored, positions)
            if sending is not None:
                index.mark(positions)
                yield sending

    def _sending(self, stored: StoredDeadLetter, positions: tuple[tuple[int, int], ...]) -> _Sending | None:
        """Return what is to be sent; None when the letter stays."""
        fixed = apply_fix(self.wanted.fix, stored.letter)
        if fixed is None:
            self.result.left += 1
            return None
        origin, topic = stored.letter.origin, self.wanted.to or stored.letter.topic or ""
        if isinstance(fixed, str):
            self.result.fail(origin, fixed)
            return None
        try:
            target = self._target(topic)
        except UnknownTopic as error:
            self.result.fail(origin, error.message)
            return None
        record = target.to_record(stored, fixed, self.wanted.fix.name, elsewhere=self.wanted.to is not None)
        if problem := self.refused.get(origin) or target.refusal(record):
            self.result.fail(origin, problem)
            return None
        return _Sending(positions, topic, record, origin)

    def _target(self, topic: str) -> RedriveTarget:
        if topic not in self.targets:
            configs = topics.read_configs(self.cluster, [topic])[topic]
            partitions = len(self.cluster.connect().topics[topic].partitions)
            limit, retention = int(configs["max.message.bytes"]), int(configs["retention.ms"])
            self.targets[topic] = RedriveTarget(partitions, limit, retention)
        return self.targets[topic]

    def _send(self, producer: TransactionalProducer, batch: list[_Sending]) -> None:
        now = round(time.time() * 1000)
        marked: dict[int, list[int]] = {}
        for partition, offset in chain.from_iterable(sending.positions for sending in batch):
            marked.setdefault(partition, []).append(offset)
        details = {"at": now, "fix": self.wanted.fix.name, "to": self.wanted.to}
        marks = [(self.dead_topic, marker_record(partition, marked[partition], details)) for partition in marked]
        sent = [(sending.topic, sending.record, sending.origin) for sending in batch if sending.record]
        try:
            producer.write([*((topic, record) for topic, record, _ in sent), *marks])
        except DeliveryFailed as error:
            problem: KafkaError = error.args[0]
            if problem.code() in REFUSED and error.number < len(sent):
                raise _Refused(sent[error.number][2], problem.str()) from None
            raise
        self.result.sent += len(sent)
        self.result.already += len(batch) - len(sent)
        self.on_progress(self.result)

    def _problem(self, problem: KafkaError) -> MillraceError:
        if problem.code() in FENCED:
            why = f"{self.result.sent:,} letters were sent before; the other one continues with the rest"
            hint = "look at millrace dead list when it has ended"
            return RedriveBusy(f"another redrive of {self.dead_topic!r} has taken over", why=why, hint=hint)
        return self.cluster.error(problem, f"send dead letters of {self.dead_topic!r} again")
