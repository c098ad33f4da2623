"""Kafka topics as the source of a DStream: the driver decides which offsets a batch reads.

- Read the first and last offsets of the topics, and tolerate brokers that do not answer for a while.
- Apply the rate limits of Spark's settings and of backpressure.
- Commit the offsets of completed batches to a consumer group, if there is one.
- Raise OffsetsGone when Kafka no longer has the records of a batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark import RDD

from millrace.clients.kafka import consumer_groups, offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.dstreams.batch_log import BatchInput
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_rdd import RddDecoder, read_ranges
from millrace.dstreams.kafka_types import OffsetRange
from millrace.dstreams.source import DStreamBatch, StreamSource
from millrace.errors import GroupInUse, KafkaFailed, KafkaUnreachable, OffsetsGone, RunError, TopicGone

log = logging.getLogger("millrace.dstreams")
_TOPIC_TIMEOUT_S = 30.0
"""How long a topic may be unknown to a cluster that answers: a starting cluster knows few topics."""
_MAX_RATE = "spark.streaming.kafka.maxRatePerPartition"
_MIN_RATE = "spark.streaming.kafka.minRatePerPartition"
Sharing = dict[str, list[str]]
"""The streams of one consumer group by topic: each reads a share of the partitions."""


@dataclass
class ClusterSnapshot:
    """The partitions and offsets of a cluster at one moment; a partition without a leader has no offsets."""

    partitions: list[PartitionId]
    first: Mapping[PartitionId, int] = field(default_factory=dict)
    end: Mapping[PartitionId, int] = field(default_factory=dict)


@dataclass
class KafkaDriverClient:
    """The driver's connection to the brokers."""

    cluster: Cluster
    last_input: BatchInput | None = None
    """The input that was decided last, whose offsets need not be checked again."""
    start_committed: set[PartitionId] | None = None
    """The partitions whose start offset is committed to the group; None before the first batch."""
    _problems_since: dict[str, float] = field(default_factory=dict)

    def snapshot(self, topics: Collection[str], *, committed: bool) -> ClusterSnapshot | None:
        """Return the offsets that can be read now; None while no broker answers."""
        try:
            metadata = self.cluster.connect()
            existing = [topic for topic in topics if self._topic_exists(topic, metadata)]
            partitions = [(topic, number) for topic in existing for number in metadata.topics[topic].partitions]
            wanted = [TopicPartition(*partition) for partition in partitions]
            first = offsets.list_available_offsets(self.cluster, wanted, OffsetSpec.earliest())
            end = offsets.list_available_offsets(self.cluster, wanted, OffsetSpec.latest(), committed=committed)
        except (KafkaUnreachable, KafkaFailed) as error:
            self._log_problem("the cluster", f"{error.message}; batches read nothing until it is back")
            return None
        with_leader = first.keys() & end.keys()
        for topic, number in partitions:
            name = f"partition {number} of {topic}"
            if (topic, number) in with_leader:
                self._problems_since.pop(name, None)
            else:
                self._log_problem(name, f"{name} has no leader: batches read nothing of it until it has one")
        self._problems_since.pop("the cluster", None)
        return ClusterSnapshot(partitions, first, end)

    def _topic_exists(self, topic: str, metadata: Any) -> bool:
        if topic in metadata.topics:
            self._problems_since.pop(topic, None)
            return True
        since = self._log_problem(topic, f"the cluster does not know the topic {topic} at the moment")
        if time.monotonic() - since > _TOPIC_TIMEOUT_S:
            raise TopicGone(f"the topic {topic!r} is gone", hint="start again when it exists again")
        return False

    def _log_problem(self, subject: str, message: str) -> float:
        """Log a problem when it begins; return when that was."""
        if subject not in self._problems_since:
            log.warning("%s", message)
        return self._problems_since.setdefault(subject, time.monotonic())


class KafkaStreamSource(StreamSource):
    """Topics of a cluster. With a consumer group, the offsets of completed batches are committed to it."""

    def __init__(
        self,
        parameters: Parameters,
        topics: Sequence[str],
        start: Mapping[PartitionId, int],
        decoding: RddDecoder,
        *,
        without: Iterable[PartitionId] = (),
        group: str | None = None,
    ) -> None:
        super().__init__()
        self.parameters, self.topics, self.decoding = parameters, tuple(topics), decoding
        self.start = dict(start)
        """Where the first batch starts; partitions that are added later start with their first record."""
        self.without = frozenset(without)
        """Partitions that are not read."""
        self.group = group
        self.sharing: Sharing = {}

    def description(self) -> str:
        return f"Kafka topic{'s' if len(self.topics) > 1 else ''} {', '.join(self.topics)}"

    def open(self) -> KafkaDriverClient:
        return KafkaDriverClient(self.parameters.cluster())

    def next_input(self, previous: BatchInput | None, batch: DStreamBatch, client: KafkaDriverClient) -> BatchInput:
        """Return ranges from the end of the previous batch to the end of the topics, or as far as the rate allows."""
        start = self._next_offsets(previous)
        if client.start_committed is None:  # before an error can separate a first input from its commit
            client.start_committed = set(start) if previous else set()
        snapshot = client.snapshot(self.topics, committed=self.parameters.committed)
        if snapshot is None:
            return self.empty_input(previous)
        for partition in snapshot.partitions:
            if self._reads(partition) and partition not in start and partition in snapshot.first:
                start[partition] = snapshot.first[partition]
        _check_available(start, start, snapshot)
        blocked = self._commit_starts(start, client)
        waiting = {key: snapshot.end.get(key, at) - at if key not in blocked else 0 for key, at in start.items()}
        limits = record_limits(waiting, batch if self.group is None else batch.with_receiver_limit())
        client.last_input = _input_of(
            (key, offset, offset + min(waiting[key], limits[key])) for key, offset in start.items()
        )
        return client.last_input

    def empty_input(self, previous: BatchInput | None) -> BatchInput:
        return _input_of((partition, offset, offset) for partition, offset in self._next_offsets(previous).items())

    def read(self, batch_input: BatchInput, batch: DStreamBatch, client: KafkaDriverClient) -> RDD[Any]:
        ranges = ranges_of(batch_input)
        filled = [range_ for range_ in ranges if range_.count()]
        if batch_input is not client.last_input and filled:  # a repeated batch: Kafka may have deleted its records
            snapshot = client.snapshot(self.topics, committed=False)
            if snapshot is not None:
                start = {(range_.topic, range_.partition): range_.fromOffset for range_ in filled}
                _check_available(start, _end_offsets(filled), snapshot)
        return read_ranges(batch.session(), self.parameters, ranges, self.decoding)

    def record_count(self, batch_input: BatchInput) -> int:
        return sum(range_.count() for range_ in ranges_of(batch_input))

    def commit(self, batch_input: BatchInput, client: KafkaDriverClient) -> bool:
        """Commit the end of the input to the group, if there is one."""
        try:
            self._commit_offsets(_end_offsets(ranges_of(batch_input)), client)
        except (RunError, GroupInUse) as error:  # the commit of the next batch includes this one
            log.warning("the offsets of the group %s were not committed yet: %s", self.group, error.message)
            return False
        return True

    def _commit_starts(self, start: Mapping[PartitionId, int], client: KafkaDriverClient) -> set[PartitionId]:
        """Commit the start of partitions that no batch has read yet; return those that cannot be read for now.

        A program that dies before its first batch is done starts there again, instead of at the end of that moment.
        """
        committed = client.start_committed or set()
        new = {partition: offset for partition, offset in start.items() if partition not in committed}
        try:
            self._commit_offsets(new, client)
        except (KafkaUnreachable, KafkaFailed) as error:
            log.warning("%s; batches read nothing of new partitions until their start is committed", error.message)
            return set(new)
        client.start_committed = committed | new.keys()
        return set()

    def _commit_offsets(self, ends: Mapping[PartitionId, int], client: KafkaDriverClient) -> None:
        if self.group is not None and ends:  # else another stream of the group has every partition
            moves = [consumer_groups.OffsetChange(*key, None, offset) for key, offset in sorted(ends.items())]
            consumer_groups.apply_reset(client.cluster, self.group, moves)

    def _next_offsets(self, previous: BatchInput | None) -> dict[PartitionId, int]:
        if previous is None:
            return {partition: offset for partition, offset in self.start.items() if self._reads(partition)}
        return _end_offsets(ranges_of(previous))

    def _reads(self, partition: PartitionId) -> bool:
        streams = self.sharing.get(partition[0], [self.stream])
        return partition not in self.without and streams[partition[1] % len(streams)] == self.stream


def ranges_of(batch_input: BatchInput) -> list[OffsetRange]:
    """Return the offset ranges of a batch."""
    return [OffsetRange(*range_) for range_ in batch_input["ranges"]]


def _end_offsets(ranges: Iterable[OffsetRange]) -> dict[PartitionId, int]:
    return {(range_.topic, range_.partition): range_.untilOffset for range_ in ranges}


def _input_of(ranges: Iterable[tuple[PartitionId, int, int]]) -> BatchInput:
    return {"ranges": [[*partition, start, until] for partition, start, until in sorted(ranges)]}


def _check_available(
    start: Mapping[PartitionId, int], until: Mapping[PartitionId, int], snapshot: ClusterSnapshot
) -> None:
    deleted = [key for key in start if start[key] < snapshot.first.get(key, 0)]
    ahead = [key for key in until if key in snapshot.end and until[key] > snapshot.end[key]]
    if not deleted and not ahead:
        return
    limits = [(key, "begins", snapshot.first[key], start[key]) for key in deleted]
    limits += [(key, "ends", snapshot.end[key], until[key]) for key in ahead]
    missing = [
        f"partition {number} of {topic!r} {verb} at {limit}, offset {offset} is wanted"
        for (topic, number), verb, limit, offset in limits
    ]
    raise OffsetsGone(
        "records that are to be read are not in Kafka: " + "; ".join(missing),
        why="Kafka deleted them (retention.ms, retention.bytes)" if deleted else "the topic was recreated or truncated",
        hint="start from scratch with another checkpoint folder, or with fromOffsets that exist",
    )


def record_limits(waiting: Mapping[PartitionId, int], batch: DStreamBatch) -> dict[PartitionId, int]:
    """Return how many records of each partition the batch may have, in proportion to what waits there."""
    max_rate, min_records = float(batch.setting(_MAX_RATE, "0")), int(batch.setting(_MIN_RATE, "1"))
    total = sum(waiting.values())
    if batch.rate and total:
        rates = {partition: batch.rate * records / total for partition, records in waiting.items()}
        rates = {partition: min(rate, max_rate) if max_rate > 0 else rate for partition, rate in rates.items()}
    elif max_rate > 0:
        rates = dict.fromkeys(waiting, max_rate)
    else:
        return dict(waiting)
    return {partition: max(int(rate * batch.seconds), min_records) for partition, rate in rates.items()}
