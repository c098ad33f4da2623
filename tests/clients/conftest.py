"""Records in and out of the broker, for the tests of the clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Message

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record

Put = Callable[..., Producer]
Drain = Callable[..., list[Message]]
_MARK = "end-of-drain"


@pytest.fixture
def put(cluster: Cluster) -> Put:
    """Sends values or whole records, and waits until they are settled."""

    def put(topic: str, *records: bytes | Record) -> Producer:
        producer = Producer(cluster, topic, Delivery(idempotence=False))  # up half a second earlier
        producer.send([one if isinstance(one, Record) else Record(one) for one in records])
        producer.close()
        assert not producer.failed, producer.failure()
        return producer

    return put


@pytest.fixture
def drain(cluster: Cluster, put: Put) -> Drain:
    """Every record of a topic; a mark at the end of each partition tells when all have come."""

    def drain(topic: str, *, committed: bool = True) -> list[Message]:
        mark = uuid.uuid4().hex.encode()
        left = len(topics.describe(cluster, [topic])[0].partitions)
        put(topic, *(Record(mark, headers=((_MARK, b""),), partition=number) for number in range(left)))
        found: list[Message] = []
        with closing(read_records(cluster, ReadRequest(topic, "earliest", committed=committed))) as batches:
            while left:
                batch = next(batches)
                found += [one for one in batch if (_MARK, b"") not in (one.headers() or [])]
                left -= sum(one.value() == mark for one in batch)
        return found

    return drain
