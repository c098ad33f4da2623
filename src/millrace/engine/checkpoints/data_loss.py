"""Find records that a query has not read and that Kafka no longer has.

- Recognize topics that were deleted and created again by their ids: the query's offsets mean other records now.
- List the offsets that a query reads next and that retention has deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.atomic_files import write_whole
from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.engine.checkpoints.checkpoint import next_offsets
from millrace.errors import KafkaFailed


class TopicIds:
    """Kafka's ids of the topics that a query reads, stored beside its checkpoint."""

    def __init__(self, state: Path, query: str, cluster: Cluster) -> None:
        self._path = state / "topics" / f"{query}.json"
        self._cluster = cluster

    def recreated(self, names: Iterable[str]) -> list[str]:
        """Return the topics that have another id than the stored one."""
        stored = self._load()
        return [name for name in stored if name in names and self._current(name) not in ("", stored[name])]

    def save(self, names: Iterable[str]) -> None:
        """Store the ids that these topics have now, and no others."""
        ids = {name: self._current(name) for name in sorted(set(names))}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps({name: topic_id for name, topic_id in ids.items() if topic_id}))

    def _load(self) -> dict[str, str]:
        with suppress(OSError, ValueError):  # a state of a version that stored none
            ids: dict[str, str] = json.loads(self._path.read_text("utf-8"))
            return ids
        return {}

    def _current(self, name: str) -> str:
        with suppress(KafkaFailed):  # it does not exist, or the brokers are too old for ids
            return topics.identity(self._cluster, name)
        return ""


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets of one partition that are deleted: from the one that is read next to the earliest that exists."""

    topic: str
    partition: int
    first: int
    earliest: int

    def __str__(self) -> str:
        last = self.earliest - 1
        which = f"offset {last} is" if last == self.first else f"offsets {self.first} to {last} are"
        where = f"topic {self.topic!r}, partition {self.partition}"
        return f"{where}: {which} gone, the first that exists is {self.earliest}"


def lost_offsets(checkpoint: Path, cluster: Cluster) -> list[LostOffsets]:
    """Return the deleted offsets that a query would read next; partitions without an answer are left out."""
    next_read = next_offsets(checkpoint)
    earliest = earliest_offsets(cluster, sorted(next_read)).items()
    return sorted(LostOffsets(*key, next_read[key], first) for key, first in earliest if first > next_read[key])


def earliest_offsets(cluster: Cluster, partitions: Iterable[offsets.PartitionId]) -> dict[offsets.PartitionId, int]:
    """Return the first offsets that exist; partitions without an answer are left out."""
    wanted = [TopicPartition(*partition) for partition in partitions]
    return offsets.list_available_offsets(cluster, wanted, OffsetSpec.earliest())
