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

import orjson
from confluent_kafka import KafkaError, KafkaException

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import FENCED, REFUSED, Cluster
from millrace.clients.kafka.consumer import OffsetRanges, topic_ranges
from millrace.clients.kafka.record import Record
from millrace.clients.kafka.transactions import DeliveryFailed, TransactionalProducer
from millrace.dead_letters.fixes import NO_FIX, Fix, apply_fix
from millrace.dead_letters.letter import REDRIVEN_HEADER, DeadLetter, Headers
from millrace.dead_letters.offset_ledger import RedriveMarkers, marker_record
from millrace.dead_letters.redrive_filter import RedriveFilter
from millrace.dead_letters.redrive_result import OnProgress, RedriveResult
from millrace.dead_letters.store import StoredDeadLetter, letters_in_ranges, topic_configs
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
        for one in letters_in_ranges(cluster, ranges, on_marker=index.marks.add, require_all=True):
            record, place = _record(one.letter), _packed(one.partition or 0, one.offset)
            if index._first.setdefault(record, place) != place:
                index._others.setdefault(record, []).append(place)
        return index

    def is_marked(self, one: StoredDeadLetter) -> bool:
        """Return whether the letter itself is marked."""
        return self._has(one.partition or 0, one.offset)

    def is_sent(self, one: StoredDeadLetter) -> bool:
        """Whether its record was sent again, for this letter or for another."""
        return any(self._has(*place) for place in self.places(one))

    def places(self, one: StoredDeadLetter) -> tuple[tuple[int, int], ...]:
        """Return partition and offset of every letter of the same record."""
        record = _record(one.letter)
        return tuple(map(_unpacked, (self._first[record], *self._others.get(record, ()))))

    def mark(self, places: Iterable[tuple[int, int]]) -> None:
        """Add letters that this redrive has sent or marked."""
        self._ours.update(_packed(*place) for place in places)

    def _has(self, partition: int, offset: int) -> bool:
        return _packed(partition, offset) in self._ours or self.marks.contains(self.topic, partition, offset)


def _record(letter: DeadLetter) -> int:
    """Return a number for the record of a letter; a topic that was recreated has other records at the same offsets."""
    place = repr((letter.topic, letter.partition, letter.offset, letter.timestamp, letter.key)).encode()
    return int.from_bytes(blake2b(place + (letter.value or b""), digest_size=16).digest(), "big")


def _packed(partition: int, offset: int) -> int:
    return partition << 64 | offset


def _unpacked(place: int) -> tuple[int, int]:
    return place >> 64, place & ((1 << 64) - 1)


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

    def to_record(self, one: StoredDeadLetter, fixed: DeadLetter, fix: str | None, *, elsewhere: bool) -> Record:
        """The record as it is sent: as it was, where it was, with a header that says what happened to it."""
        now = round(time.time() * 1000)
        same_place = not elsewhere and fixed.key == one.letter.key and one.letter.partition is not None
        partition = (one.letter.partition or 0) % self.partitions if same_place else None
        # What is nearly as old as what the topic deletes could be gone before it is read.
        old = fixed.timestamp is None or 0 <= self.retention < 2 * (now - fixed.timestamp)
        headers = (*_without_ours(fixed.headers), (REDRIVEN_HEADER, _provenance(one, fix, now)))
        return Record(fixed.value, fixed.key, now if old else fixed.timestamp, headers, partition)

    def refusal(self, record: Record) -> str | None:
        """Why the topic will not take a record; None when it will."""
        headers = sum(len(name) + len(content or b"") + 10 for name, content in record.headers)
        size = len(record.value or b"") + len(record.key or b"") + headers + _MAX_FRAMING_BYTES
        return f"{size:,} bytes are more than the topic takes ({self.limit:,})" if size > self.limit else None


def _without_ours(headers: Headers) -> Headers:
    return tuple(one for one in headers if one[0] != REDRIVEN_HEADER)


def _provenance(one: StoredDeadLetter, fix: str | None, now: int) -> bytes:
    letter = one.letter
    provenance = {
        "attempt": letter.attempts + 1,
        "at": now,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp,
        "dead": one.position,
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

    places: tuple[tuple[int, int], ...]
    """Partition and offset of this letter and of all others of the same record."""
    topic: str = ""
    record: Record | None = None
    shown: str = ""


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
        except _Refused as one:  # the topic will never take it: the others go without it
            refused[one.place] = one.why
            result = RedriveResult(attempt.result.sent, attempt.result.already)


def redrive_transactional_id(dead_topic: str) -> str:
    """Return the transactional id that all redrives of a topic share."""
    return f"millrace.redrive.{dead_topic}"


class _Refused(Exception):
    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place, self.why = place, why


class _Attempt:
    """One owner of the transactional id, as long as nothing goes wrong."""

    def __init__(
        self,
        cluster: Cluster,
        dead_topic: str,
        wanted: Redrive,
        refused: dict[str, str],
        on_progress: OnProgress,
        result: RedriveResult,
    ) -> None:
        self._cluster = cluster
        self._dead = dead_topic
        self._wanted = wanted
        self._refused = refused
        self._on_progress = on_progress
        self.result = result
        self._targets: dict[str, RedriveTarget] = {}

    def run(self) -> RedriveResult:
        topics.require(self._cluster.connect(), self._dead)
        try:
            producer = TransactionalProducer(self._cluster, redrive_transactional_id(self._dead))
            # Read while we own the id: a redrive that sends after this answer has to fence us, and then we fail.
            ranges = topic_ranges(self._cluster, [self._dead])
            index = RedriveIndex.read(self._cluster, self._dead, ranges)
            open_ = (one for one in letters_in_ranges(self._cluster, ranges) if self._wanted.selection.matches(one))
            for batch in _batches(self._sendings(open_, index)):
                self._send(producer, batch)
        except KafkaException as error:
            raise self._problem(error.args[0]) from error
        return self.result

    def _sendings(self, found: Iterable[StoredDeadLetter], index: RedriveIndex) -> Iterator[_Sending]:
        for one in found:
            if index.is_marked(one):
                continue
            places = index.places(one)
            if index.is_sent(one):
                index.mark(places)
                yield _Sending(places)
                continue
            made = self._made(one)
            if made is not None:
                index.mark(places)
                yield _Sending(places, made[0], made[1], one.letter.origin)

    def _made(self, one: StoredDeadLetter) -> tuple[str, Record] | None:
        """The record to be sent, and where to; None when the letter stays."""
        fixed = apply_fix(self._wanted.fix, one.letter)
        if fixed is None:
            self.result.left += 1
            return None
        if isinstance(fixed, str):
            self.result.fail(one.letter.origin, fixed)
            return None
        topic = self._wanted.to or one.letter.topic or ""
        try:
            target = self._target(topic)
        except UnknownTopic as error:
            self.result.fail(one.letter.origin, error.message)
            return None
        record = target.to_record(one, fixed, self._wanted.fix.name, elsewhere=self._wanted.to is not None)
        problem = self._refused.get(one.letter.origin) or target.refusal(record)
        if problem:
            self.result.fail(one.letter.origin, problem)
            return None
        return topic, record

    def _target(self, topic: str) -> RedriveTarget:
        if topic not in self._targets:
            settings = topic_configs(self._cluster, [topic])[topic]
            partitions = len(self._cluster.connect().topics[topic].partitions)
            self._targets[topic] = RedriveTarget(
                partitions, int(settings["max.message.bytes"]), int(settings["retention.ms"])
            )
        return self._targets[topic]

    def _send(self, producer: TransactionalProducer, batch: list[_Sending]) -> None:
        now = round(time.time() * 1000)
        marked: dict[int, list[int]] = {}
        for one in batch:
            for partition, offset in one.places:
                marked.setdefault(partition, []).append(offset)
        details = {"at": now, "fix": self._wanted.fix.name, "to": self._wanted.to}
        marks = [(self._dead, marker_record(partition, places, details)) for partition, places in marked.items()]
        sent = [one for one in batch if one.record]
        try:
            producer.write_all([*((one.topic, one.record) for one in sent if one.record), *marks])
        except DeliveryFailed as error:
            problem: KafkaError = error.args[0]
            if problem.code() in REFUSED and error.number < len(sent):
                raise _Refused(sent[error.number].shown, problem.str()) from None
            raise
        self.result.sent += len(sent)
        self.result.already += len(batch) - len(sent)
        self._on_progress(self.result)

    def _problem(self, problem: KafkaError) -> MillraceError:
        if problem.code() in FENCED:
            return RedriveBusy(
                f"another redrive of {self._dead!r} has taken over",
                why=f"{self.result.sent:,} letters were sent before; the other one continues with the rest",
                hint="look at millrace dead list when it has ended",
            )
        return self._cluster.error(problem, f"send dead letters of {self._dead!r} again")


def _batches(sendings: Iterable[_Sending]) -> Iterator[list[_Sending]]:
    batch: list[_Sending] = []
    size = 0
    for one in sendings:
        batch.append(one)
        size += len(one.record.value or b"") if one.record else 0
        if len(batch) >= MAX_TRANSACTION_LETTERS or size >= _MAX_TRANSACTION_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
