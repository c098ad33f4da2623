"""Which generation of an output counts, where everybody sees it: a record for each pipeline in a compacted topic.

Kafka has no other names for topics. The alias of `popular` may be `popular.g2`. All
topics of a pipeline change with one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

import orjson

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import committed_records
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.clients.kafka.topics import Topic
from millrace.errors import InvalidTopic

TOPIC = "millrace.generations"


@dataclass(frozen=True)
class GenerationAlias:
    """The current generation of a pipeline's topics."""

    pipeline: str
    generation: int
    at: float
    topics: Mapping[str, str] = field(default_factory=dict)
    """The current topic by the name that the pipeline's file has."""


def publish(cluster: Cluster, alias: GenerationAlias) -> None:
    """Tell everybody; returns when Kafka has it."""
    topics.ensure(cluster, TOPIC, 1, {"cleanup.policy": "compact"})
    (topic,) = topics.describe(cluster, [TOPIC])
    require_fit(topic)
    producer = Producer(cluster, TOPIC)
    producer.send([Record(orjson.dumps(asdict(alias)), alias.pipeline.encode())])
    producer.close()
    if producer.failed:
        raise producer.failure()


def require_fit(topic: Topic) -> None:
    """Raise when a topic would lose aliases, or tell them in another order than they were given in."""
    policy = topic.configs.get("cleanup.policy", "delete")
    if len(topic.partitions) != 1 or policy != "compact":
        raise InvalidTopic(
            f"topic {topic.name!r} cannot keep which generation counts",
            why=f"it has {len(topic.partitions)} partitions and cleanup.policy={policy}; it needs 1 and compact",
            hint=f"delete it, and it is made as it must be; or make it: millrace kafka topics create {topic.name} "
            "--partitions 1 --config cleanup.policy=compact",
        )


def aliases(cluster: Cluster) -> dict[str, GenerationAlias]:
    """What is current of each pipeline."""
    if TOPIC not in cluster.connect().topics:
        return {}
    current: dict[str, GenerationAlias] = {}
    for batch in committed_records(cluster, [TOPIC]):
        for message in batch:
            alias = read_alias(message.value())
            if alias is not None:
                current[alias.pipeline] = alias
            elif message.value() is None:  # a tombstone that compaction has not removed yet
                current.pop(_text(message.key()), None)
    return current


def _text(key: str | bytes | None) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else key or ""


def read_alias(content: bytes | None) -> GenerationAlias | None:
    """Return the alias in a record; None if it has none."""
    try:
        alias = orjson.loads(content or b"")
        led = {str(name): str(topic) for name, topic in alias["topics"].items()}
        return GenerationAlias(str(alias["pipeline"]), int(alias["generation"]), float(alias["at"]), led)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def leading(known: Iterable[GenerationAlias]) -> dict[str, str]:
    """The topic that counts by its name in a pipeline's file; of two pipelines with the same one, the later word."""
    return {name: topic for alias in sorted(known, key=lambda one: one.at) for name, topic in alias.topics.items()}


def current_topic(cluster: Cluster, name: str) -> str:
    """The topic that counts for a name that a pipeline's file has; the name itself where nobody says otherwise."""
    return leading(aliases(cluster).values()).get(name, name)
