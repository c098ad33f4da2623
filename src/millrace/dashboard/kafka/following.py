"""A consumer that follows partitions from given offsets, and belongs to no group."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millrace.clients.cluster import Cluster

_MOST = 1000
_PASSING = {KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
"""Not errors of what is read: the client goes on by itself."""

Offsets = Mapping[tuple[str, int], int]


class Following:
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

    def __enter__(self) -> Following:
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
