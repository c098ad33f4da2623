"""Records out of a topic: from a place or with a group, until there are enough or none come any more."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from millrace.clients import groups, offsets, topics
from millrace.clients.cluster import Cluster
from millrace.errors import InvalidOption, KafkaFailed, TopicGone

_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_WAIT = 0.2
_LOOK_EVERY = 2.0
"""Seconds of silence after which to look whether the topic is still there: the client does not tell by itself."""


@dataclass(frozen=True)
class Reading:
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


def read(cluster: Cluster, reading: Reading) -> Iterator[list[Message]]:
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


def _check(reading: Reading) -> None:
    if isinstance(reading.start, int) and reading.partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    if reading.group is None:
        return
    groups.check_name(reading.group)
    if not isinstance(reading.start, str):
        raise InvalidOption(
            "a group goes on from its own offsets",
            hint="leave --offset and --from-time out, or move the group first: millrace kafka groups reset",
        )


def _config(cluster: Cluster, reading: Reading) -> dict[str, object]:
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


def _places(cluster: Cluster, reading: Reading) -> list[TopicPartition]:
    """Where each partition is read from, as offsets: what is asked for is then beyond doubt."""
    if reading.group:
        return [TopicPartition(reading.topic, reading.partition or 0)]
    found = cluster.connect().topics[reading.topic].partitions
    numbers = sorted(found) if reading.partition is None else [reading.partition]
    every = [TopicPartition(reading.topic, number) for number in numbers]
    start = offsets.resolve(cluster, every, reading.start)
    return [TopicPartition(topic, number, start[topic, number]) for topic, number in sorted(start)]


def _batches(
    consumer: ConfluentConsumer, cluster: Cluster, reading: Reading, joined: threading.Event
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

    def __init__(self, cluster: Cluster, reading: Reading, joined: threading.Event) -> None:
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


def _raise_problems(cluster: Cluster, reading: Reading, got: list[Message]) -> None:
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
