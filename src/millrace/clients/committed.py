"""The committed records that topics have now: read from the first to the last, or only counted."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients import offsets, topics
from millrace.clients.cluster import Cluster
from millrace.errors import KafkaUnreachable

_OWN = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.partition.eof": True,  # the last offsets may be marks of transactions, which never come
    "allow.auto.create.topics": False,
}


def count(
    cluster: Cluster, names: Sequence[str], told: Callable[[int], None] = lambda _: None
) -> Counter[tuple[str, int]]:
    """How many there are in each partition. All of them are read for it: offsets that no record has look like others.

    `told` hears, again and again, how many it are so far.
    """
    found: Counter[tuple[str, int]] = Counter()
    for batch in records(cluster, names):
        found.update((message.topic() or "", message.partition() or 0) for message in batch)
        told(found.total())
    return found


def records(cluster: Cluster, names: Sequence[str]) -> Iterator[list[Message]]:
    """All of them, in batches; those of a partition in order."""
    yield from _read(cluster, *_bounds(cluster, names))


def between(
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
