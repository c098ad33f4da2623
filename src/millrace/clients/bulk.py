"""Partitions of topics in bulk: where they end, and all records of a range, whichever broker leads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from millrace.clients import log
from millrace.clients.cluster import Cluster
from millrace.clients.kept import Kept
from millrace.clients.wire import EARLIEST, LATEST, MOVED, OUT_OF_RANGE, UNKNOWN, Answer, Asked, Broken, Wire
from millrace.errors import AccessDenied, KafkaFailed, KafkaUnreachable, MillraceError, OffsetsGone

Place = tuple[str, int]
"""A topic and a partition."""
Address = tuple[str, int]
"""A host and a port."""

PATIENCE = 60.0
"""Seconds that a broker may be away, or a partition be without a leader."""
_AGAIN = 0.1
_MOST = 4 * 1024 * 1024
"""Bytes of one answer: large enough for pyarrow to be quick, small enough to stay in the processor's cache."""
_DENIED = {29, 30, 31}
_wires: Kept[Wire] = Kept(16)
"""Of this process, by the broker."""


@dataclass(frozen=True)
class Range:
    """Records of a partition from an offset on and before another, and the broker that led it when somebody looked."""

    topic: str
    partition: int
    start: int
    stop: int
    leader: Address | None = None

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


def plain(cluster: Cluster) -> bool:
    """Whether the cluster takes connections without TLS and passwords: others this room does not make."""
    return str(cluster.config().get("security.protocol", "PLAINTEXT")).upper() == "PLAINTEXT"


def leaders(cluster: Cluster, topics: Sequence[str] | None = None) -> dict[Place, Address | None]:
    """Every partition of topics (of all, if none are named), and the broker that leads it; None while nobody does."""
    known = cluster.connect()
    addresses = {number: (str(one.host), one.port) for number, one in known.brokers.items()}
    names = sorted(known.topics) if topics is None else [name for name in topics if name in known.topics]
    return {
        (name, number): addresses.get(about.leader)
        for name in names
        for number, about in sorted(known.topics[name].partitions.items())
    }


def ends(cluster: Cluster, led: Mapping[Place, Address | None], *, committed: bool) -> dict[Place, int]:
    """Where each partition ends; with `committed` before the first transaction that is open.

    Raises `Moved` where somebody who is asked does not lead any more.
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
                _refuse(error, Range(*place, 0, 0, address))
            found[place] = offset
    if len(found) < len(led):
        raise Moved(next(str(Range(*one, 0, 0)) for one in led if one not in found) + ": nobody leads it")
    return found


class Moved(Exception):
    """A partition is led by another broker, or by none at this moment: worth another look."""


def records(cluster: Cluster, span: Range, *, committed: bool = True, go_on: bool = False) -> Iterator[log.Records]:
    """All records of a range, some at a time; raises when they are gone, unless it goes on without them."""
    reading = _Reading(cluster, span, committed=committed, go_on=go_on)
    while not reading.done:
        try:
            yield from reading.some()
        except (Broken, Moved) as trouble:
            reading.look_again(str(trouble))


class _Reading:
    def __init__(self, cluster: Cluster, span: Range, *, committed: bool, go_on: bool) -> None:
        self._cluster = cluster
        self._span = span
        self._committed = committed
        self._go_on = go_on
        self._at = span.start
        self._leader = span.leader
        self._moved_on = time.monotonic()

    @property
    def done(self) -> bool:
        return self._at >= self._span.stop

    def some(self) -> Iterator[log.Records]:
        """Records for as long as the broker gives some; the next are asked for before these are handed on."""
        if self._leader is None:
            raise Moved("nobody leads it")
        with _lent(self._cluster, self._leader) as wire:
            wire.ask_records(self._asked())
            while not self.done:
                since, answer = self._at, wire.records()
                if answer.error == OUT_OF_RANGE:
                    self._pass_over(wire)
                    found = []
                else:
                    found = self._found(answer)
                if not self.done:
                    wire.ask_records(self._asked())
                if any(one.size for one in found):
                    yield log.read(found).between(since, self._span.stop)  # a batch may begin before what was asked for

    def _asked(self) -> Asked:
        return Asked(self._span.topic, self._span.partition, self._at, self._committed, _MOST)

    def _found(self, answer: Answer) -> list[log.Batch]:
        if answer.error:
            _refuse(answer.error, self._span)
        try:
            found = list(log.batches(answer.records, answer.aborted))
        except log.Damaged as error:
            raise _damaged(self._span, error) from error
        if found:
            self._at = max(self._at, found[-1].last + 1)
            self._moved_on = time.monotonic()
        elif time.monotonic() - self._moved_on > PATIENCE:
            raise KafkaUnreachable(
                f"{self._span}: the broker has no record at offset {self._at}",
                why=f"it says that the partition ends at {answer.stable}, and {self._span.stop} was told before",
                hint="a broker may have lost what it had not copied; see its log, and that of the one before it",
            )
        return found

    def _pass_over(self, wire: Wire) -> None:
        """Go on after what is gone, or say that it is."""
        place = {self._span.topic: [self._span.partition]}
        first = wire.offsets(place, EARLIEST, committed=False)[self._span.topic, self._span.partition][1]
        if not self._go_on:
            raise _gone(self._span, self._at, first)
        self._at = first if self._at < first < self._span.stop else self._span.stop

    def look_again(self, why: str) -> None:
        """Find out who leads the partition now; raises when nobody has for long."""
        late = time.monotonic() - self._moved_on > PATIENCE
        if late:
            raise KafkaUnreachable(
                f"{self._span} cannot be read", why=why, hint="look at the brokers: millrace kafka status"
            )
        time.sleep(_AGAIN)
        try:
            self._leader = leaders(self._cluster, [self._span.topic]).get((self._span.topic, self._span.partition))
        except KafkaUnreachable:
            self._leader = None  # the one that has the patience is here


def lost(what: str) -> OffsetsGone:
    """The error for records that are gone before they were read."""
    return OffsetsGone(
        what,
        why="Kafka deleted them (retention.ms, retention.bytes), or the topic was deleted and made anew",
        hint="to go on with what is there set `lost: go_on` on the source, or start anew with another --state; "
        "to keep more raise the topic's retention.ms",
    )


def _gone(span: Range, at: int, first: int) -> OffsetsGone:
    if at >= first:
        return lost(f"{span}: the query is at offset {at}, and the topic ends before")
    which = f"offset {at} is" if at == first - 1 else f"offsets {at} to {first - 1} are"
    return lost(f"{span}: {which} gone, the first that is there is {first}")


def _refuse(error: int, span: Range) -> None:
    if error == UNKNOWN:
        raise Moved(f"{span}: the broker does not know it")
    if error in MOVED:
        raise Moved(f"{span}: the broker does not lead it (error {error})")
    if error in _DENIED:
        raise AccessDenied(f"the cluster refuses us: {span}", hint="ask for the right to read the topic")
    raise KafkaFailed(f"{span} cannot be read", why=f"the broker says error {error}")


def _damaged(span: Range, error: log.Damaged) -> MillraceError:
    return KafkaFailed(
        f"{span} cannot be read: {error}", hint="MILLRACE_BULK=off reads topics by Spark's own source instead"
    )


def _lent(cluster: Cluster, address: Address) -> AbstractContextManager[Wire]:
    return _wires.lent(address, lambda: Wire(*address, cluster.timeout), lambda wire: wire.idle)
