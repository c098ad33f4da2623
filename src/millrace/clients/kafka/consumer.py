"""Consumers of topics.

- `read_records` reads a topic from a start, or with a consumer group, until there are enough records or none arrive.
- `read_ranges` reads the committed records of offset ranges to their ends; `committed_records`, `committed_between` and
  `count_committed` use it for whole topics and for parts of one.
- `TopicTail` follows partitions from given offsets, without a group.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import consumer_groups, offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.errors import InvalidOption, KafkaFailed, KafkaUnreachable, TopicGone

OffsetRanges = Mapping[PartitionId, tuple[int, int]]
"""The first offset of each partition, and the one after the last."""

FETCH_MAX_WAIT_MS = 20
"""How long a broker waits for records that are not there yet, where Spark's source reads a batch.

Spark's consumer asks for the records after those it has got, and on the same connection where the partition ends. A
broker answers one request after the other, so a small batch would take Kafka's default of 500 ms for each partition.
"""
_POLL_TIMEOUT_S = 0.2
_METADATA_INTERVAL_S = 2.0
"""How long no record arrives before the topic is looked up: the client does not report that it was deleted."""
_MAX_POLL_RECORDS = 500
_MAX_RANGE_POLL_RECORDS = 5000
_MAX_TAIL_POLL_RECORDS = 1000
_COMMIT_WAIT_S = 2.0
"""How long a transaction that is being committed is waited for: it is decided before its records can be read."""
_TRANSACTION_TIMEOUT_S = 90.0
"""How long a transaction of ours can stay open, whatever happens to its producer."""
_TOPIC_DELETED = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_TRANSIENT = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
"""Events after which the client continues by itself."""


def _open_consumer(cluster: Cluster, **config: Any) -> Consumer:
    """Open a consumer that commits nothing unless `config` (with _ for the dot) says otherwise."""
    tuning = {"topic.metadata.refresh.interval.ms": 5000, "fetch.wait.max.ms": 100}
    defaults = {
        "group.id": f"millrace-{uuid.uuid4()}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
    }
    chosen = {name.replace("_", "."): value for name, value in config.items()}
    with cluster.translated_errors("open a consumer"):
        return Consumer({**tuning, **cluster.config(), **defaults, **chosen})


def _find_leaders(consumer: Consumer, cluster: Cluster, topic: str | None = None) -> None:
    with suppress(KafkaException):  # a client that knows no leaders yet may take a second to find them
        consumer.list_topics(topic, timeout=cluster.timeout)


def receive(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """Return messages as soon as there are any: `Consumer.consume` would wait for as many as it may return."""
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]


@dataclass(frozen=True)
class ReadRequest:
    """What to read of a topic, and when to stop."""

    topic: str
    start: str | int | datetime = "latest"
    """`earliest`, `latest`, an offset, or a time. With a group: where it starts if it has no offsets yet."""
    partition: int | None = None
    group: str | None = None
    most: int | None = None
    timeout: float | None = None
    """Seconds without a record after which reading ends; None waits for ever."""
    committed: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    notify: Callable[[str], None] = lambda _: None
    """Called with a line about what is being waited for."""


def read_records(cluster: Cluster, request: ReadRequest) -> Iterator[list[Message]]:
    """Yield records in batches as they arrive; a group's offsets are committed when the next batch is asked for."""
    _check(request)
    topics.require(cluster.connect(), request.topic, request.partition)
    consumer = _open_consumer(
        cluster,
        group_id=request.group or f"millrace-{uuid.uuid4()}",
        isolation_level="read_committed" if request.committed else "read_uncommitted",
        # Without a group every offset is explicit; one that retention has removed must not be skipped silently.
        auto_offset_reset=request.start if request.group else "error",
        enable_auto_commit=request.group is not None,
        enable_auto_offset_store=False,
    )
    try:
        joined = threading.Event()
        if request.group and request.partition is None:
            consumer.subscribe([request.topic], on_assign=lambda *_: joined.set())
        else:
            partitions = _start_offsets(cluster, request)
            _find_leaders(consumer, cluster, request.topic)
            consumer.assign(partitions)
            joined.set()
        yield from _batches(consumer, cluster, request, joined)
    finally:
        consumer.close()


def _check(request: ReadRequest) -> None:
    if isinstance(request.start, int) and request.partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    if request.group is None:
        return
    consumer_groups.check_name(request.group)
    if not isinstance(request.start, str):
        hint = "leave --offset and --from-time out, or move the group first: millrace kafka groups reset"
        raise InvalidOption("a group resumes from its own offsets", hint=hint)


def _start_offsets(cluster: Cluster, request: ReadRequest) -> list[TopicPartition]:
    """Return the partitions to assign, with explicit offsets unless a group has its own."""
    if request.group:
        return [TopicPartition(request.topic, request.partition or 0)]
    numbers = sorted(cluster.connect().topics[request.topic].partitions)
    wanted = [TopicPartition(request.topic, number) for number in numbers if request.partition in (None, number)]
    start = offsets.resolve(cluster, wanted, request.start)
    return [TopicPartition(*partition, start[partition]) for partition in sorted(start)]


def _batches(
    consumer: Consumer, cluster: Cluster, request: ReadRequest, joined: threading.Event
) -> Iterator[list[Message]]:
    left = request.most
    idle = _IdleTime(cluster, request, joined)
    while (left is None or left > 0) and not request.stop.is_set():
        messages = receive(consumer, min(_MAX_POLL_RECORDS, left or _MAX_POLL_RECORDS), _POLL_TIMEOUT_S)
        records = [message for message in messages if message.error() is None]
        if records:
            yield records
            if request.group:
                for message in records:
                    consumer.store_offsets(message)
            left = left if left is None else left - len(records)
        _raise_errors(cluster, request, messages)
        if idle.is_over(consumer, received=bool(records)):
            return


class _IdleTime:
    """Measures how long no record has arrived, and checks why."""

    def __init__(self, cluster: Cluster, request: ReadRequest, joined: threading.Event) -> None:
        self._cluster, self._request, self._joined = cluster, request, joined
        self._waiting_to_join, self._notified = not joined.is_set(), False
        self._since = self._checked = time.monotonic()

    def is_over(self, consumer: Consumer, *, received: bool) -> bool:
        """Return whether the timeout has passed; raise if the brokers, the group or the topic are the reason."""
        now, joined = time.monotonic(), self._joined.is_set()
        if received or (joined and self._waiting_to_join):
            self._since = self._checked = now
            self._waiting_to_join, self._notified = not joined, False
            return False
        timeout = self._request.timeout
        if timeout is not None and self._waiting_to_join:
            timeout = max(timeout, self._cluster.timeout)
        if timeout is not None and now - self._since >= timeout:
            self._require_connection(consumer, timeout)
            return True
        if now - self._checked >= _METADATA_INTERVAL_S:
            self._checked = now
            self._require_topic(consumer)
        return False

    def _require_connection(self, consumer: Consumer, timeout: float) -> None:
        if self._waiting_to_join:
            hint = "a member may hold it up (millrace kafka groups describe), or __consumer_offsets has no leader"
            raise KafkaFailed(f"could not join the group {self._request.group!r} within {timeout:.0f} s", hint=hint)
        with self._cluster.translated_errors(f"read topic {self._request.topic!r}"):
            consumer.list_topics(self._request.topic, timeout=self._cluster.timeout)

    def _require_topic(self, consumer: Consumer) -> None:
        topic = self._request.topic
        try:
            error = consumer.list_topics(topic, timeout=1.0).topics[topic].error
        except KafkaException:
            if not self._notified:
                self._notified = True
                self._request.notify(f"no broker answers at {self._cluster.bootstrap}; still trying")
            return
        if error is not None and error.code() in _TOPIC_DELETED:
            raise _topic_deleted(topic, error)


def _raise_errors(cluster: Cluster, request: ReadRequest, messages: list[Message]) -> None:
    for message in messages:
        error = message.error()
        if error is None:
            continue
        if error.code() in _TOPIC_DELETED:
            raise _topic_deleted(request.topic, error)
        if error.code() != KafkaError._PARTITION_EOF:
            raise cluster.error(error, f"read topic {request.topic!r}")


def _topic_deleted(topic: str, error: KafkaError) -> TopicGone:
    hint = "somebody deleted it; the records read until then were printed"
    return TopicGone(f"topic {topic!r} disappeared while it was read", why=error.str(), hint=hint)


def topic_ranges(cluster: Cluster, names: Sequence[str], *, committed: bool = False) -> OffsetRanges:
    """Return the offsets that the partitions of topics have now, without empty partitions.

    With `committed` a range ends before the first transaction that is still open.
    """
    metadata = cluster.connect()
    for name in names:
        topics.require(metadata, name)
    partitions = [TopicPartition(name, number) for name in names for number in metadata.topics[name].partitions]
    first = offsets.list_offsets(cluster, partitions, OffsetSpec.earliest())
    ends = offsets.list_offsets(cluster, partitions, OffsetSpec.latest(), committed=committed)
    return {partition: (first[partition], end) for partition, end in ends.items() if end > first[partition]}


def count_committed(
    cluster: Cluster, names: Sequence[str], on_batch: Callable[[int], None] = lambda _: None
) -> Counter[PartitionId]:
    """Return the number of committed records in each partition; `on_batch` gets the sum so far.

    All records are read: some offsets belong to transaction markers, or to records that compaction has removed.
    """
    counts: Counter[PartitionId] = Counter()
    for batch in committed_records(cluster, names):
        counts.update(map(partition_of, batch))
        on_batch(counts.total())
    return counts


def committed_records(cluster: Cluster, names: Sequence[str]) -> Iterator[list[Message]]:
    """Yield the committed records that topics have now."""
    yield from read_ranges(cluster, topic_ranges(cluster, names, committed=True))


def committed_between(
    cluster: Cluster, name: str, start: str | int | datetime, end: str | int | datetime
) -> Iterator[list[Message]]:
    """Yield the committed records of a topic from `start` (`earliest`, an offset, a time) to before `end`."""
    present = topic_ranges(cluster, [name], committed=True)
    partitions = [TopicPartition(*partition) for partition in present]
    begin, stop = offsets.resolve(cluster, partitions, start), offsets.resolve(cluster, partitions, end)
    ranges = {partition: (begin[partition], min(last, stop[partition])) for partition, (_, last) in present.items()}
    yield from read_ranges(cluster, {partition: (low, high) for partition, (low, high) in ranges.items() if high > low})


def read_ranges(
    cluster: Cluster,
    ranges: OffsetRanges,
    *,
    require_all: bool = True,
    open_transaction_timeout_s: float = _TRANSACTION_TIMEOUT_S,
    time_limit_s: float | None = None,
) -> Iterator[list[Message]]:
    """Yield the committed records of offset ranges in batches, those of a partition in order.

    A transaction that is still open hides the rest of its partition. It is waited for until the timeout, and then
    KafkaFailed is raised; without `require_all` reading ends soon, with what can be read. With `time_limit_s`
    reading ends then in any case. Raise KafkaUnreachable if no record arrives for the cluster's timeout.
    """
    if not ranges:
        return
    consumer = _open_consumer(cluster, enable_partition_eof=True)  # the last offset may be a transaction marker
    try:
        _find_leaders(consumer, cluster)
        consumer.assign([TopicPartition(*partition, first) for partition, (first, _) in ranges.items()])
        unread = {partition: end for partition, (_, end) in ranges.items()}
        at_end: set[PartitionId] = set()
        started = received = time.monotonic()
        while unread:
            messages = receive(consumer, _MAX_RANGE_POLL_RECORDS, 0.1)
            now = time.monotonic()
            if any(_is_progress(message, unread) for message in messages):
                received = now
            if messages:
                yield _records_within(cluster, messages, unread, at_end)
                now = time.monotonic()
            if time_limit_s is not None and now - started > time_limit_s:
                return
            if unread.keys() <= at_end:  # only open transactions are left
                if not require_all and now - received > _COMMIT_WAIT_S:
                    return
                if require_all and now - received > open_transaction_timeout_s:
                    names = ", ".join(f"{topic}[{number}]" for topic, number in unread)
                    hint = "try again when its producer has ended, or when its timeout has passed"
                    what = f"a transaction is still open in {names}: its records, and those after it, cannot be read"
                    raise KafkaFailed(what, hint=hint)
            elif now - received > cluster.timeout:
                names = ", ".join(sorted({repr(topic) for topic, _ in unread}))
                raise KafkaUnreachable(
                    f"topic {names} could not be read to the end: no record arrived for {cluster.timeout:.0f} s",
                    hint="see millrace kafka status",
                )
    finally:
        consumer.close()


def _is_progress(message: Message, unread: Collection[PartitionId]) -> bool:
    """Return whether a message is of a partition that is still read: others stay assigned, and may have traffic."""
    error = message.error()
    return partition_of(message) in unread and (error is None or error.code() == KafkaError._PARTITION_EOF)


def _records_within(
    cluster: Cluster, messages: list[Message], unread: dict[PartitionId, int], at_end: set[PartitionId]
) -> list[Message]:
    """Return the records before the end offsets; update which partitions are unread, and which have no more records."""
    records = []
    for message in messages:
        partition, offset, error = partition_of(message), message.offset() or 0, message.error()
        if error is not None:
            if error.code() not in _TRANSIENT:
                raise cluster.error(error, f"read topic {partition[0]!r}")
            if error.code() != KafkaError._PARTITION_EOF:
                continue
            at_end.add(partition)
        else:
            at_end.discard(partition)
            if partition in unread and offset < unread[partition]:
                records.append(message)
            offset += 1
        if partition in unread and offset >= unread[partition]:
            del unread[partition]
    return records


def partition_of(message: Message) -> PartitionId:
    """Return the topic and the partition of a record."""
    return message.topic() or "", message.partition() or 0


class TopicTail(AbstractContextManager["TopicTail"]):
    """A consumer that follows partitions until it is closed, and commits nothing."""

    def __init__(self, cluster: Cluster, start: Mapping[PartitionId, int], *, ahead: int = 16_384) -> None:
        """Start at these offsets; the client fetches at most `ahead` kilobytes before they are asked for."""
        self._cluster = cluster
        self._consumer = _open_consumer(
            cluster,
            queued_max_messages_kbytes=ahead,
            fetch_message_max_bytes=min(ahead * 1024, 1024 * 1024),
        )
        _find_leaders(self._consumer, cluster)
        self.assign(start)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def assign(self, start: Mapping[PartitionId, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in start.items()])

    def add(self, start: Mapping[PartitionId, int]) -> None:
        """Read these partitions too."""
        self._consumer.incremental_assign([TopicPartition(*partition, offset) for partition, offset in start.items()])

    def take(self, seconds: float, most: int = _MAX_TAIL_POLL_RECORDS) -> list[Message]:
        """Return the records that arrive within some seconds."""
        records = []
        for message in self._consumer.consume(most, seconds):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() not in _TRANSIENT:
                raise self._cluster.error(error, "read records")
        return records
