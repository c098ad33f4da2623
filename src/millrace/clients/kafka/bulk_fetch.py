"""Bulk reads of partitions, without confluent-kafka.

- `partition_leaders` and `partition_ends` find the leader and the end offset of partitions.
- `fetch_records` reads all records of a range, in columns, and follows a partition to a new leader.
- `fetch_newest_times` reads the times in the headers of record batches only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from millrace.clients.kafka import record_batch
from millrace.clients.kafka.authentication import AuthenticationFailed, Sasl, tls_context, unsupported_access
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import Offsets, PartitionId
from millrace.clients.kafka.protocol import (
    EARLIEST,
    LATEST,
    MOVED,
    OUT_OF_RANGE,
    UNKNOWN,
    UNSUPPORTED_CODEC,
    BrokerConnection,
    ConnectionLost,
    FetchRequest,
    FetchResponse,
)
from millrace.clients.pool import Pool
from millrace.errors import AccessDenied, KafkaFailed, KafkaUnreachable, MillraceError, OffsetsGone

Address = tuple[str, int]
"""A host and a port."""

FETCH_TIMEOUT_S = 60.0
"""How long a broker may be unreachable, or a partition be without a leader."""
_RETRY_DELAY_S = 0.1
_MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Large enough for pyarrow to be quick, small enough to stay in the processor's cache."""
_MIN_RESPONSE_BYTES, _BYTES_PER_RECORD = 64 * 1024, 1024
"""The response for a short range: its least size, and the size for each record."""
_MAX_WAIT_S, _MAX_THROTTLE_S = 0.5, 30.0
"""How long a broker waits for a record, and how long we wait when it throttles us."""
_DENIED = {29, 30, 31}
_HINT = "MILLRACE_BULK_READER=off reads topics by Spark's own source instead"
_connections: Pool[BrokerConnection] = Pool(16)
"""Connections of this process, by broker."""


@dataclass(frozen=True)
class FetchRange:
    """The records of a partition from `start` to before `stop`, and the last known leader."""

    topic: str
    partition: int
    start: int
    stop: int
    leader: Address | None = None

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


def unsupported(cluster: Cluster) -> str:
    """Return which property of the cluster bulk reads do not know; empty if they know all."""
    return unsupported_access(cluster.config())


def partition_leaders(cluster: Cluster, topics: Sequence[str] | None = None) -> dict[PartitionId, Address | None]:
    """Return the leader of every partition of some topics, or of all; None while a partition has none."""
    metadata = cluster.connect()
    addresses = {number: (str(broker.host), broker.port) for number, broker in metadata.brokers.items()}
    names = sorted(metadata.topics) if topics is None else [name for name in topics if name in metadata.topics]
    return {
        (name, number): addresses.get(partition.leader)
        for name in names
        for number, partition in sorted(metadata.topics[name].partitions.items())
    }


def partition_ends(
    cluster: Cluster, leaders: Mapping[PartitionId, Address | None], *, committed: bool
) -> dict[PartitionId, int]:
    """Return the end offset of each partition; with `committed` before the first transaction that is open.

    Raise LeaderChanged if a broker does not lead its partition any more.
    """
    ends: Offsets = {}
    for address in {leader for leader in leaders.values() if leader}:
        numbers: dict[str, list[int]] = {}
        for (topic, number), leader in leaders.items():
            if leader == address:
                numbers.setdefault(topic, []).append(number)
        with _borrow_connection(cluster, address) as connection:
            answers = connection.offsets(numbers, LATEST, committed=committed)
        for partition, (error, offset) in answers.items():
            if error:
                _raise_error(error, FetchRange(*partition, 0, 0, address))
            ends[partition] = offset
    if missing := leaders.keys() - ends.keys():
        raise LeaderChanged(f"{FetchRange(*min(missing), 0, 0)}: it has no leader")
    return ends


class LeaderChanged(Exception):
    """A partition has another leader, or none at this moment: a retry may succeed."""


def fetch_records(
    cluster: Cluster, span: FetchRange, *, committed: bool = True, skip_lost: bool = False
) -> Iterator[record_batch.RecordColumns]:
    """Yield all records of a range; raise OffsetsGone if records are lost, unless `skip_lost`."""
    for since, batches in _Reading(cluster, span, committed=committed, skips_lost=skip_lost).all():
        try:
            for records in record_batch.read(batches):
                yield records.between(since, span.stop)  # a batch may start before the requested offset
        except record_batch.DamagedBatch as error:
            raise _damaged(span, error) from error


def fetch_newest_times(
    cluster: Cluster, span: FetchRange, *, committed: bool = True, skip_lost: bool = False
) -> Iterator[tuple[int, int, int]]:
    """Yield the first and last offset of each record batch of a range, and its newest time: what the headers say."""
    for _, batches in _Reading(cluster, span, committed=committed, skips_lost=skip_lost).all():
        yield from ((batch.base, batch.last, batch.last_time) for batch in batches if batch.size)


class _Reading:
    def __init__(self, cluster: Cluster, span: FetchRange, *, committed: bool, skips_lost: bool) -> None:
        self._cluster, self._span, self._committed, self._skips_lost = cluster, span, committed, skips_lost
        self._at, self._leader = span.start, span.leader
        self._failing_since: float | None = None
        """Since when no record has arrived."""

    @property
    def done(self) -> bool:
        return self._at >= self._span.stop

    def all(self) -> Iterator[tuple[int, list[record_batch.RecordBatch]]]:
        """Yield the record batches of each response, and the offset that was requested."""
        while not self.done:
            try:
                yield from self._some()
            except (ConnectionLost, LeaderChanged) as failure:
                self._find_leader(str(failure))

    def _some(self) -> Iterator[tuple[int, list[record_batch.RecordBatch]]]:
        """Yield batches while the broker has some; the next are requested before these are yielded."""
        if self._leader is None:
            raise LeaderChanged("it has no leader")
        with _borrow_connection(self._cluster, self._leader) as connection:
            connection.ask_records(self._request())
            while not self.done:
                since, answer = self._at, connection.records()
                if answer.error == OUT_OF_RANGE:
                    self._skip_lost(connection)
                    batches = []
                else:
                    batches = self._batches(answer)
                failure = None if self.done else self._request_next(connection)
                yield since, batches
                if failure:
                    raise failure

    def _request(self) -> FetchRequest:
        most = min(_MAX_RESPONSE_BYTES, max(_MIN_RESPONSE_BYTES, (self._span.stop - self._at) * _BYTES_PER_RECORD))
        wait = min(_MAX_WAIT_S, self._cluster.timeout / 2)
        return FetchRequest(self._span.topic, self._span.partition, self._at, self._committed, most, wait)

    def _request_next(self, connection: BrokerConnection) -> ConnectionLost | None:
        """Request the next records. A failure is returned, to be raised after the present records are yielded."""
        try:
            connection.ask_records(self._request())
        except ConnectionLost as failure:
            return failure
        return None

    def _batches(self, answer: FetchResponse) -> list[record_batch.RecordBatch]:
        if answer.error:
            _raise_error(answer.error, self._span)
        if answer.throttled:
            time.sleep(min(answer.throttled, _MAX_THROTTLE_S))
        batches = []
        try:
            for batch in record_batch.batches(answer.records, answer.aborted):
                if batch.base >= self._span.stop:
                    self._at = self._span.stop
                    break
                batches.append(batch)
                self._at = max(self._at, batch.last + 1)
        except record_batch.DamagedBatch as error:
            raise _damaged(self._span, error) from error
        if batches or self.done or answer.throttled:
            self._failing_since = None
        elif self._waited() > FETCH_TIMEOUT_S:
            why = f"it reports the end offset {answer.stable}, after {self._span.stop} before"
            hint = "a broker may have lost records that were not replicated; see the logs of the brokers"
            raise KafkaUnreachable(f"{self._span}: the broker has no record at offset {self._at}", why=why, hint=hint)
        return batches

    def _skip_lost(self, connection: BrokerConnection) -> None:
        """Continue after records that are lost, or raise OffsetsGone."""
        partition = {self._span.topic: [self._span.partition]}
        error, first = connection.offsets(partition, EARLIEST, committed=False)[self._span.topic, self._span.partition]
        if error:
            _raise_error(error, self._span)
        if not self._skips_lost:
            raise _lost(self._span, self._at, first)
        self._at = first if self._at < first < self._span.stop else self._span.stop

    def _find_leader(self, why: str) -> None:
        """Look up the leader of the partition; raise KafkaUnreachable if that has failed for too long."""
        if self._waited() > FETCH_TIMEOUT_S:
            raise KafkaUnreachable(f"{self._span} cannot be read", why=why, hint="see millrace kafka status")
        time.sleep(_RETRY_DELAY_S)
        self._leader = None
        with suppress(KafkaUnreachable):  # retried until FETCH_TIMEOUT_S
            leaders = partition_leaders(self._cluster, [self._span.topic])
            self._leader = leaders.get((self._span.topic, self._span.partition))

    def _waited(self) -> float:
        """Return the seconds since the first failure in a row; this one may be the first."""
        self._failing_since = self._failing_since or time.monotonic()
        return time.monotonic() - self._failing_since


def records_lost(what: str) -> OffsetsGone:
    """Return the error for records that were deleted before they were read."""
    return OffsetsGone(
        what,
        why="Kafka deleted them (retention.ms, retention.bytes), or the topic was deleted and created again",
        hint="to continue with what is left set `on_data_loss: continue` on the source, or choose another --state; "
        "to keep more raise the topic's retention.ms",
    )


def _lost(span: FetchRange, at: int, first: int) -> OffsetsGone:
    if at >= first:
        return records_lost(f"{span}: the query is at offset {at}, after the end of the topic")
    which = f"offset {at} is" if at == first - 1 else f"offsets {at} to {first - 1} are"
    return records_lost(f"{span}: {which} gone, the first that exists is {first}")


def _raise_error(error: int, span: FetchRange) -> None:
    if error == UNKNOWN:
        raise LeaderChanged(f"{span}: the broker does not know it")
    if error in MOVED:
        raise LeaderChanged(f"{span}: the broker does not lead it (error {error})")
    if error in _DENIED:
        raise AccessDenied(f"the cluster refuses us: {span}", hint="the user needs the right to read the topic")
    why = "a compression" if error == UNSUPPORTED_CODEC else "an error"
    raise KafkaFailed(f"{span} cannot be read", why=f"{why} that bulk reading does not know ({error})", hint=_HINT)


def _damaged(span: FetchRange, error: record_batch.DamagedBatch) -> MillraceError:
    return KafkaFailed(f"{span} cannot be read: {error}", hint=_HINT)


def _borrow_connection(cluster: Cluster, address: Address) -> AbstractContextManager[BrokerConnection]:
    return _connections.borrow(
        (cluster.key, address), lambda: _connect(cluster, address), lambda connection: connection.idle
    )


def _connect(cluster: Cluster, address: Address) -> BrokerConnection:
    properties = cluster.config()
    try:
        tls = tls_context(properties)
    except OSError as error:  # also what OpenSSL refuses
        hint = f"check {', '.join(sorted(name for name in properties if name.startswith('ssl.')))}"
        raise AccessDenied(
            "the settings for TLS cannot be used", why=str(error), hint=f"{hint} in the file given by --kafka-config"
        ) from error
    try:
        return BrokerConnection(*address, cluster.timeout, tls, Sasl.of(properties))
    except AuthenticationFailed as error:
        hint = "check user, password, security.protocol and certificates in the file given by --kafka-config"
        raise AccessDenied(f"a broker refuses us: {error}", hint=f"{hint}; {_HINT}") from error
