"""Kafka as a sink for records."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.clients import topics
from millrace.clients.producer import Producer
from millrace.clients.records import Done, Record
from millrace.connectors.base import Sink, Tally, Target
from millrace.errors import InvalidOption


class KafkaSink(Sink):
    """A topic; it is made if it is not there."""

    guarantee = "in order, once each as long as the process lives (idempotent, acks=all)"

    def __init__(self, target: Target) -> None:
        if not target.topic or not target.cluster:
            raise InvalidOption("Kafka needs a topic", hint="add --topic NAME")
        cluster = target.cluster()
        topics.ensure(cluster, target.topic)
        self.place = f"{target.topic}@{cluster.connect().cluster_id}"
        self._say = target.say
        self._producer = Producer(cluster, target.topic, stop=target.stop)

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Queue records; waits while too many are on their way."""
        self._producer.send(records, done)

    def tally(self) -> Tally:
        """What Kafka has acknowledged and refused so far; a refusal that was told by `done` is no reason to end."""
        producer = self._producer
        return Tally(producer.delivered, producer.failed, producer.failure() if producer.reason else None)

    def close(self) -> Tally:
        """Wait for the acknowledgements that are still due."""
        self._producer.close(self._say)
        return self.tally()
