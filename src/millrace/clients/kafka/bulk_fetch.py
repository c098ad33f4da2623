"""Partitions of topics in bulk: where they end, and all records of a range, whichever broker leads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from millrace.clients.kafka import record_batch
from millrace.clients.kafka.cluster import Cluster
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

Place = tuple[str, int]
"""A topic and a partition."""
Address = tuple[str, int]
"""A host and a port."""

FETCH_TIMEOUT_S = 60.0
"""Seconds that a broker may be away, or a partition be without a leader."""
_AGAIN = 0.1
_MOST = 4 * 1024 * 1024
"""Bytes of one answer: large enough for pyarrow to be quick, small enough to stay in the processor's cache."""
_LEAST, _RECORD = 64 * 1024, 1024
"""Bytes of an answer for a short range: at least, and for each of its records."""
_WAIT, _LONGEST = 0.5, 30.0
"""Seconds that a broker may wait for a record, and that we wait when it says so."""
_DENIED = {29, 30, 31}
_OTHERWISE = "MILLRACE_BULK_READER=off reads topics by Spark's own source instead"
_wires: Pool[BrokerConnection] = Pool(16)
"""Of this process, by the broker."""


@dataclass(frozen=True)
class FetchRange:
    """Records of a partition from an offset on and before another, and the broker that led it when somebody looked."""

    topic: str
    partition: int
    start: int
    stop: int
    leader: Address | None = None

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


def is_plaintext(cluster: Cluster) -> bool:
    """Whether the cluster takes connections without TLS and passwords: others this room does not make."""
    return str(cluster.config().get("security.protocol", "PLAINTEXT")).upper() == "PLAINTEXT"


def partition_leaders(cluster: Cluster, topics: Sequence[str] | None = None) -> dict[Place, Address | None]:
    """Every partition of topics (of all, if none are named), and the broker that leads it; None while nobody does."""
    known = cluster.connect()
    addresses = {number: (str(one.host), one.port) for number, one in known.brokers.items()}
    names = sorted(known.topics) if topics is None else [name for name in topics if name in known.topics]
    return {
        (name, number): addresses.get(about.leader)
        for name in names
        for number, about in sorted(known.topics[name].partitions.items())
    }


def partition_ends(cluster: Cluster, led: Mapping[Place, Address | None], *, committed: bool) -> dict[Place, int]:
    """Where each partition ends; with `committed` before the first transaction that is open.

    Raises `LeaderChanged` where somebody who is asked does not lead any more.
    """
    found: dict[Place, int] = {}
    for address in {one for one in led.values() if one}:
        places: dict[str, list[int]] = {}
        for (topic, number), leader in led.items():
            if leader == address:
                places.setdefault(topic, []).append(number)
        with _lent(cluster, address) as wire:
            answers = wire.offsets(places, LATEST, committed=committed)
        for place, (error, offset) in answers.items():
            if error:
                _refuse(error, FetchRange(*place, 0, 0, address))
            found[place] = offset
    if len(found) < len(led):
        raise LeaderChanged(next(str(FetchRange(*one, 0, 0)) for one in led if one not in found) + ": nobody leads it")
    return found


class LeaderChanged(Exception):
    """A partition is led by another broker, or by none at this moment: worth another look."""


def fetch_records(
    cluster: Cluster, span: FetchRange, *, committed: bool = True, go_on: bool = False
) -> Iterator[record_batch.RecordColumns]:
    """All records of a range, some at a time; raises when they are gone, unless it goes on without them."""
    reading = _Reading(cluster, span, committed=committed, go_on=go_on)
    while not reading.done:
        try:
            yield from reading.some()
        except (ConnectionLost, LeaderChanged) as trouble:
            reading.look_again(str(trouble))


class _Reading:
    def __init__(self, cluster: Cluster, span: FetchRange, *, committed: bool, go_on: bool) -> None:
        self._cluster = cluster
        self._span = span
        self._committed = committed
        self._go_on = go_on
        self._at = span.start
        self._leader = span.leader
        self._troubled: float | None = None
        """Since when nothing has come."""

    @property
    def done(self) -> bool:
        return self._at >= self._span.stop

    def some(self) -> Iterator[record_batch.RecordColumns]:
        """Records for as long as the broker gives some; the next are asked for before these are handed on."""
        if self._leader is None:
            raise LeaderChanged("nobody leads it")
        with _lent(self._cluster, self._leader) as wire:
            wire.ask_records(self._asked())
            while not self.done:
                since, answer = self._at, wire.records()
                if answer.error == OUT_OF_RANGE:
                    self._pass_over(wire)
                    found = []
                else:
                    found = self._found(answer)
                trouble = None if self.done else self._ask_ahead(wire)
                for records in self._read(found):
                    yield records.between(since, self._span.stop)  # a batch may begin before what was asked for
                if trouble:
                    raise trouble

    def _asked(self) -> FetchRequest:
        most = min(_MOST, max(_LEAST, (self._span.stop - self._at) * _RECORD))
        wait = min(_WAIT, self._cluster.timeout / 2)
        return FetchRequest(self._span.topic, self._span.partition, self._at, self._committed, most, wait)

    def _ask_ahead(self, wire: BrokerConnection) -> ConnectionLost | None:
        """Ask for what comes next. A failure waits until what is here is handed on: nobody asks for that again."""
        try:
            wire.ask_records(self._asked())
        except ConnectionLost as trouble:
            return trouble
        return None

    def _found(self, answer: FetchResponse) -> list[record_batch.RecordBatch]:
        if answer.error:
            _refuse(answer.error, self._span)
        if answer.throttled:
            time.sleep(min(answer.throttled, _LONGEST))
        found = []
        try:
            for batch in record_batch.batches(answer.records, answer.aborted):
                if batch.base >= self._span.stop:
                    self._at = self._span.stop
                    break
                found.append(batch)
                self._at = max(self._at, batch.last + 1)
        except record_batch.DamagedBatch as error:
            raise _damaged(self._span, error) from error
        if found or self.done or answer.throttled:
            self._troubled = None
        elif self._waited() > FETCH_TIMEOUT_S:
            raise KafkaUnreachable(
                f"{self._span}: the broker has no record at offset {self._at}",
                why=f"it says that the partition ends at {answer.stable}, and {self._span.stop} was told before",
                hint="a broker may have lost what it had not copied; see its log, and that of the one before it",
            )
        return found

    def _read(self, found: list[record_batch.RecordBatch]) -> Iterator[record_batch.RecordColumns]:
        try:
            yield from record_batch.read(found)
        except record_batch.DamagedBatch as error:
            raise _damaged(self._span, error) from error

    def _pass_over(self, wire: BrokerConnection) -> None:
        """Go on after what is gone, or say that it is."""
        place = {self._span.topic: [self._span.partition]}
        error, first = wire.offsets(place, EARLIEST, committed=False)[self._span.topic, self._span.partition]
        if error:
            _refuse(error, self._span)
        if not self._go_on:
            raise _gone(self._span, self._at, first)
        self._at = first if self._at < first < self._span.stop else self._span.stop

    def look_again(self, why: str) -> None:
        """Find out who leads the partition now; raises when nobody has for long."""
        if self._waited() > FETCH_TIMEOUT_S:
            raise KafkaUnreachable(
                f"{self._span} cannot be read", why=why, hint="look at the brokers: millrace kafka status"
            )
        time.sleep(_AGAIN)
        try:
            self._leader = partition_leaders(self._cluster, [self._span.topic]).get(
                (self._span.topic, self._span.partition)
            )
        except KafkaUnreachable:
            self._leader = None  # the one that has the patience is here

    def _waited(self) -> float:
        """Seconds since the first trouble; this one, if there was none."""
        self._troubled = self._troubled or time.monotonic()
        return time.monotonic() - self._troubled


def records_lost(what: str) -> OffsetsGone:
    """The error for records that are gone before they were read."""
    return OffsetsGone(
        what,
        why="Kafka deleted them (retention.ms, retention.bytes), or the topic was deleted and made anew",
        hint="to continue with what is left set `on_data_loss: continue` on the source, or choose another --state; "
        "to keep more raise the topic's retention.ms",
    )


def _gone(span: FetchRange, at: int, first: int) -> OffsetsGone:
    if at >= first:
        return records_lost(f"{span}: the query is at offset {at}, and the topic ends before")
    which = f"offset {at} is" if at == first - 1 else f"offsets {at} to {first - 1} are"
    return records_lost(f"{span}: {which} gone, the first that exists is {first}")


def _refuse(error: int, span: FetchRange) -> None:
    if error == UNKNOWN:
        raise LeaderChanged(f"{span}: the broker does not know it")
    if error in MOVED:
        raise LeaderChanged(f"{span}: the broker does not lead it (error {error})")
    if error in _DENIED:
        raise AccessDenied(f"the cluster refuses us: {span}", hint="ask for the right to read the topic")
    why = "it is compressed in a way" if error == UNSUPPORTED_CODEC else "the broker says an error"
    raise KafkaFailed(
        f"{span} cannot be read", why=f"{why} that this way of asking does not know ({error})", hint=_OTHERWISE
    )


def _damaged(span: FetchRange, error: record_batch.DamagedBatch) -> MillraceError:
    return KafkaFailed(f"{span} cannot be read: {error}", hint=_OTHERWISE)


def _lent(cluster: Cluster, address: Address) -> AbstractContextManager[BrokerConnection]:
    return _wires.borrow(address, lambda: BrokerConnection(*address, cluster.timeout), lambda wire: wire.idle)
