"""The input of one run: the first half of the records to be read, the second in a transaction that is open."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from millrace.clients.kafka.cluster import Cluster

_PATIENCE = 600.0
_TUNING = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000}


class Gate:
    """Records that readers of committed records see all at once, when it is opened."""

    def __init__(self, cluster: Cluster, topic: str, records: Iterable[tuple[int, bytes]]) -> None:
        timeout = {"transactional.id": f"gate-{topic}", "transaction.timeout.ms": 900_000}
        self._producer = Producer({**cluster.config(), **_TUNING, **timeout})
        self._producer.init_transactions(_PATIENCE)
        self._producer.begin_transaction()
        _send(self._producer, topic, records)

    def open(self) -> None:
        """Commit."""
        self._producer.commit_transaction(_PATIENCE)


def fill(cluster: Cluster, topic: str, records: Iterable[tuple[int, bytes]]) -> None:
    """Records for everybody."""
    _send(Producer({**cluster.config(), **_TUNING}), topic, records)


def _send(producer: Producer, topic: str, records: Iterable[tuple[int, bytes]]) -> None:
    produce, poll = producer.produce, producer.poll
    for number, (partition, value) in enumerate(records):
        while True:
            try:
                produce(topic, value, None, partition)
                break
            except BufferError:
                poll(0.1)
        if not number % 10_000:
            poll(0)
    if producer.flush(_PATIENCE):
        raise RuntimeError(f"topic {topic} did not take its records")
