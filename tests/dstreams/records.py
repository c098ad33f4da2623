"""Records for the streams of the tests."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from millrace.clients.kafka.cluster import Cluster


def pour(cluster: Cluster, topic: str, values: Sequence[str | bytes], partition: int = 0) -> None:
    """Write values to a partition; the key of each is its number."""
    producer = Producer(cluster.config())
    for number, value in enumerate(values):
        producer.produce(topic, value, str(number), partition)
    assert producer.flush(30) == 0
