"""Which generation of an output counts, where everybody sees it: a record for each pipeline in a compacted topic.

Kafka has no other names for topics. Who wants the current one of `popular` asks here, and is told `popular.g2`. All
topics of a pipeline change with one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients import offsets, topics
from millrace.clients.cluster import Cluster
from millrace.clients.producer import Producer
from millrace.clients.records import Record
from millrace.errors import InvalidTopic, KafkaFailed

TOPIC = "millrace.generations"


@dataclass(frozen=True)
class Alias:
    """The current generation of a pipeline's topics."""

    pipeline: str
    generation: int
    at: float
    topics: Mapping[str, str] = field(default_factory=dict)
    """The current topic by the name that the pipeline's file has."""


def publish(cluster: Cluster, alias: Alias) -> None:
    """Tell everybody; returns when Kafka has it."""
    if TOPIC not in cluster.connect().topics:
        try:
            topics.create(cluster, TOPIC, 1, configs={"cleanup.policy": "compact"})
        except InvalidTopic:
            if TOPIC not in cluster.connect().topics:  # else another was quicker
                raise
    producer = Producer(cluster, TOPIC)
    producer.send([Record(orjson.dumps(asdict(alias)), alias.pipeline.encode())])
    producer.close()
    if producer.failed:
        raise producer.failure()


def aliases(cluster: Cluster) -> dict[str, Alias]:
    """What is current of each pipeline."""
    if TOPIC not in cluster.connect().topics:
        return {}
    place = TopicPartition(TOPIC, 0, 0)
    end = offsets.ask(cluster, [place], OffsetSpec.latest())[TOPIC, 0]
    own = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 100}
    found: dict[str, Alias] = {}
    with cluster.speaking("open a consumer"):
        consumer = Consumer({**cluster.config(), **own, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([place])
        while True:
            message = consumer.poll(cluster.timeout)
            if message is None:
                raise KafkaFailed(f"topic {TOPIC!r} could not be read to its end", hint="look at millrace kafka status")
            problem = message.error()
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                raise cluster.error(problem, f"read topic {TOPIC!r}")
            if problem is None:
                told = Alias(**orjson.loads(message.value() or b"{}"))
                found[told.pipeline] = told
            if problem is not None and (message.offset() or 0) >= end:
                return found
    finally:
        consumer.close()


def current_topic(cluster: Cluster, name: str) -> str:
    """The topic that counts for a name that a pipeline's file has; the name itself where nobody says otherwise."""
    told = [alias.topics[name] for alias in aliases(cluster).values() if name in alias.topics]
    return told[-1] if told else name
