"""Records into the broker of the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record

Put = Callable[..., None]


@pytest.fixture
def put(cluster: Cluster) -> Put:
    """Sends records, and waits until they are there."""

    def put(topic: str, *records: bytes | Record) -> None:
        producer = Producer(cluster, topic, Delivery(idempotence=False))
        producer.send([one if isinstance(one, Record) else Record(one) for one in records])
        producer.close()
        assert not producer.failed, producer.failure()

    return put
