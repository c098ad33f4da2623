"""Records out of a topic: from a place or with a group, until there are enough or none come any more.

The committed records that topics have now: read from the first to the last, or only counted.

A consumer that follows partitions from given offsets, and belongs to no group.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import consumer_groups, offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import InvalidOption, KafkaFailed, KafkaUnreachable, TopicGone

_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_WAIT = 0.2
_LOOK_EVERY = 2.0
"""Seconds of silence after which to look whether the topic is still there: the client does not tell by itself."""


@dataclass(frozen=True)
class ReadRequest:
    """What to read of a topic, and when to stop."""

    topic: str
    start: str | int | datetime = "latest"
    """`earliest`, `latest`, an offset, or a time. With a group: where it begins if it has no offsets yet."""
    partition: int | None = None
    group: str | None = None
    most: int | None = None
    timeout: float | None = None
    """Seconds without a record after which reading ends; None waits for ever."""
    committed: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] = lambda _: None
    """Tells the user one line about what is being waited for."""


def read_records(cluster: Cluster, reading: ReadRequest) -> Iterator[list[Message]]:
    """Records in batches as they come. A group's offsets are committed for batches that were asked past."""
    _check(reading)
    topics.require(cluster.connect(), reading.topic, reading.partition)
    with cluster.speaking("open a consumer"):
        consumer = ConfluentConsumer(_config(cluster, reading))
    try:
        joined = threading.Event()
        if reading.group and reading.partition is None:
            consumer.subscribe([reading.topic], on_assign=lambda *_: joined.set())
        else:
            places = _places(cluster, reading)
            with suppress(KafkaException):  # a client that knows no leaders yet may take a second to find them
                consumer.list_topics(reading.topic, timeout=cluster.timeout)
            consumer.assign(places)
            joined.set()
        yield from _batches(consumer, cluster, reading, joined)
    finally:
        consumer.close()


def _check(reading: ReadRequest) -> None:
    if isinstance(reading.start, int) and reading.partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    if reading.group is None:
        return
    consumer_groups.check_name(reading.group)
    if not isinstance(reading.start, str):
        raise InvalidOption(
            "a group goes on from its own offsets",
            hint="leave --offset and --from-time out, or move the group first: millrace kafka groups reset",
        )


def _config(cluster: Cluster, reading: ReadRequest) -> dict[str, object]:
    tuning = {"topic.metadata.refresh.interval.ms": 5000, "fetch.wait.max.ms": 100}
    return {
        **tuning,
        **cluster.config(),
        "group.id": reading.group or f"millrace-{uuid.uuid4()}",
        "isolation.level": "read_committed" if reading.committed else "read_uncommitted",
        # Without a group every offset is explicit; one that retention has removed must not be jumped over silently.
        "auto.offset.reset": reading.start if reading.group else "error",
        "enable.auto.commit": reading.group is not None,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
    }


def _places(cluster: Cluster, reading: ReadRequest) -> list[TopicPartition]:
    """Where each partition is read from, as offsets: what is asked for is then beyond doubt."""
    if reading.group:
        return [TopicPartition(reading.topic, reading.partition or 0)]
    found = cluster.connect().topics[reading.topic].partitions
    numbers = sorted(found) if reading.partition is None else [reading.partition]
    every = [TopicPartition(reading.topic, number) for number in numbers]
    start = offsets.resolve(cluster, every, reading.start)
    return [TopicPartition(topic, number, start[topic, number]) for topic, number in sorted(start)]


def _batches(
    consumer: ConfluentConsumer, cluster: Cluster, reading: ReadRequest, joined: threading.Event
) -> Iterator[list[Message]]:
    left = reading.most
    silence = _Silence(cluster, reading, joined)
    while (left is None or left > 0) and not reading.stop.is_set():
        got = consumer.consume(min(500, left or 500), _WAIT)
        records = [message for message in got if message.error() is None]
        if records:
            yield records
            if reading.group:
                for message in records:
                    consumer.store_offsets(message)
            left = left if left is None else left - len(records)
        _raise_problems(cluster, reading, got)
        if silence.is_the_end(consumer, heard=bool(records)):
            return


class _Silence:
    """How long nothing has come, and what that means."""

    def __init__(self, cluster: Cluster, reading: ReadRequest, joined: threading.Event) -> None:
        self._cluster = cluster
        self._reading = reading
        self._joined = joined
        self._waiting_to_join = not joined.is_set()
        self._told = False
        self._since = self._looked = time.monotonic()

    def is_the_end(self, consumer: ConfluentConsumer, *, heard: bool) -> bool:
        """Whether it has lasted long enough; raises when somebody is missing who could have broken it."""
        now, joined = time.monotonic(), self._joined.is_set()
        if heard or (joined and self._waiting_to_join):
            self._since = self._looked = now
            self._waiting_to_join, self._told = not joined, False
            return False
        patience = self._patience()
        if patience is not None and now - self._since >= patience:
            self._require_company(consumer, patience)
            return True
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._look(consumer)
        return False

    def _patience(self) -> float | None:
        wanted = self._reading.timeout
        return max(wanted, self._cluster.timeout) if wanted is not None and self._waiting_to_join else wanted

    def _require_company(self, consumer: ConfluentConsumer, patience: float) -> None:
        if self._waiting_to_join:
            raise KafkaFailed(
                f"could not join the group {self._reading.group!r} within {patience:.0f} s",
                hint="a member may hold it up (millrace kafka groups describe), or __consumer_offsets has no leader",
            )
        with self._cluster.speaking(f"read topic {self._reading.topic!r}"):
            consumer.list_topics(self._reading.topic, timeout=self._cluster.timeout)

    def _look(self, consumer: ConfluentConsumer) -> None:
        topic = self._reading.topic
        try:
            problem = consumer.list_topics(topic, timeout=1.0).topics[topic].error
        except KafkaException:
            if not self._told:
                self._told = True
                self._reading.say(f"no broker answers at {self._cluster.bootstrap}; still trying")
            return
        if problem is not None and problem.code() in _GONE:
            raise _gone(topic, problem)


def _raise_problems(cluster: Cluster, reading: ReadRequest, got: list[Message]) -> None:
    for message in got:
        problem = message.error()
        if problem is None:
            continue
        if problem.code() in _GONE:
            raise _gone(reading.topic, problem)
        if problem.code() != KafkaError._PARTITION_EOF:
            raise cluster.error(problem, f"read topic {reading.topic!r}")


def _gone(topic: str, problem: KafkaError) -> TopicGone:
    return TopicGone(
        f"topic {topic!r} disappeared while it was read",
        why=problem.str(),
        hint="somebody deleted it; what had been read until then was printed",
    )


_OWN = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.partition.eof": True,  # the last offsets may be marks of transactions, which never come
    "allow.auto.create.topics": False,
}


def count_committed(
    cluster: Cluster, names: Sequence[str], told: Callable[[int], None] = lambda _: None
) -> Counter[tuple[str, int]]:
    """How many there are in each partition. All of them are read for it: offsets that no record has look like others.

    `told` hears, again and again, how many it are so far.
    """
    found: Counter[tuple[str, int]] = Counter()
    for batch in committed_records(cluster, names):
        found.update((message.topic() or "", message.partition() or 0) for message in batch)
        told(found.total())
    return found


def committed_records(cluster: Cluster, names: Sequence[str]) -> Iterator[list[Message]]:
    """All of them, in batches; those of a partition in order."""
    yield from _read(cluster, *_bounds(cluster, names))


def committed_between(
    cluster: Cluster, name: str, start: str | int | datetime, end: str | int | datetime
) -> Iterator[list[Message]]:
    """Those of a topic from one place (`earliest`, an offset, a time) to another, which is not among them."""
    first, ends = _bounds(cluster, [name])
    places = [TopicPartition(*place) for place in first]
    begin, stop = offsets.resolve(cluster, places, start), offsets.resolve(cluster, places, end)
    left = {place: min(last, stop[place]) for place, last in ends.items()}
    yield from _read(cluster, begin, {place: last for place, last in left.items() if last > begin[place]})


def _read(
    cluster: Cluster, first: dict[tuple[str, int], int], left: dict[tuple[str, int], int]
) -> Iterator[list[Message]]:
    """From where each partition begins to where it ends; `left` loses those that have ended."""
    with cluster.speaking("open a consumer"):
        consumer = Consumer({**cluster.config(), **_OWN, "group.id": f"millrace-{uuid.uuid4()}"})
    heard = time.monotonic()
    try:
        consumer.assign([TopicPartition(*place, first[place]) for place in left])
        while left:
            got = consumer.consume(5000, 0.2)
            heard = time.monotonic() if got else heard
            yield _taken(cluster, got, left)
            if time.monotonic() - heard > cluster.timeout:
                behind = ", ".join(sorted({repr(topic) for topic, _ in left}))
                raise KafkaUnreachable(
                    f"topic {behind} could not be read to the end: nothing came for {cluster.timeout:.0f} s",
                    hint="look at millrace kafka status",
                )
    finally:
        consumer.close()


def _bounds(cluster: Cluster, names: Sequence[str]) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """Where each partition begins, and where those end that have something."""
    metadata = cluster.connect()
    for name in names:
        topics.require(metadata, name)
    places = [TopicPartition(name, number) for name in names for number in metadata.topics[name].partitions]
    first = offsets.ask(cluster, places, OffsetSpec.earliest())
    ends = offsets.ask(cluster, places, OffsetSpec.latest(), committed=True)
    return first, {place: end for place, end in ends.items() if end > first[place]}


def _taken(cluster: Cluster, got: list[Message], left: dict[tuple[str, int], int]) -> list[Message]:
    """The records among what came; partitions whose end is reached are struck off."""
    found = []
    for message in got:
        place, offset, problem = (
            (message.topic() or "", message.partition() or 0),
            message.offset() or 0,
            message.error(),
        )
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
            raise cluster.error(problem, f"read topic {place[0]!r}")
        if place not in left:
            continue
        if problem is None and offset < left[place]:
            found.append(message)
        if offset + (problem is None) >= left[place]:
            del left[place]
    return found


_MOST = 1000
_PASSING = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
"""Not errors of what is read: the client goes on by itself."""

Offsets = Mapping[tuple[str, int], int]


class TopicTail:
    """Reads on for as long as the block lasts; commits nothing."""

    def __init__(self, cluster: Cluster, start: Offsets, *, ahead: int = 16_384) -> None:
        """`ahead`: how many kilobytes the client may fetch before anybody asks."""
        self._cluster = cluster
        own = {
            "group.id": f"millrace-page-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": ahead,
            "fetch.message.max.bytes": min(ahead * 1024, 1024 * 1024),
        }
        with cluster.speaking("open a consumer"):
            self._consumer = Consumer({**cluster.config(), **own})
        with suppress(KafkaException):  # a client that knows no leaders yet may take a second to find them
            self._consumer.list_topics(timeout=cluster.timeout)
        self.assign(start)

    def __enter__(self) -> TopicTail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the consumer."""
        self._consumer.close()

    def assign(self, start: Offsets) -> None:
        """Read these partitions from these offsets, and no others."""
        self._consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in start.items()])

    def add(self, start: Offsets) -> None:
        """Read these partitions too."""
        self._consumer.incremental_assign(
            [TopicPartition(topic, number, offset) for (topic, number), offset in start.items()]
        )

    def take(self, seconds: float, most: int = _MOST) -> list[Message]:
        """What has come within so many seconds."""
        found = []
        for message in self._consumer.consume(most, seconds):
            problem = message.error()
            if problem is None:
                found.append(message)
            elif problem.code() not in _PASSING:
                raise self._cluster.error(problem, "read records")
        return found
