"""Topics that were deleted and made anew while a query was away: the offsets it knows mean other records now.

Records that a query still needs and Kafka does not have any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.atomic_files import write_whole
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.engine.checkpoints.checkpoint import next_offsets
from millrace.errors import KafkaFailed


class TopicIds:
    """Kafka's own ids of the topics that a query reads, kept beside its checkpoint."""

    def __init__(self, state: Path, query: str, cluster: Cluster) -> None:
        self._path = state / "topics" / f"{query}.json"
        self._cluster = cluster

    def others(self, names: Iterable[str]) -> list[str]:
        """Those of some topics that are not the ones that were noted."""
        return [name for name, noted in self._noted().items() if name in names and self._now(name) not in ("", noted)]

    def note(self, names: Iterable[str]) -> None:
        """Keep the ids that these topics have now, and no others."""
        found = {name: self._now(name) for name in sorted(set(names))}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps({name: one for name, one in found.items() if one}))

    def _noted(self) -> dict[str, str]:
        with suppress(OSError, ValueError):  # of a state that was begun before there were any
            noted: dict[str, str] = json.loads(self._path.read_text("utf-8"))
            return noted
        return {}

    def _now(self, name: str) -> str:
        with suppress(KafkaFailed):  # it is not there, or its brokers are too old to tell
            return topics.identity(self._cluster, name)
        return ""


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets of one partition: from the one that is read next to the one before the first that is there."""

    topic: str
    partition: int
    first: int
    held: int

    def __str__(self) -> str:
        last = self.held - 1
        which = f"offset {last} is" if last == self.first else f"offsets {self.first} to {last} are"
        return f"topic {self.topic!r}, partition {self.partition}: {which} gone, the first that exists is {self.held}"


def lost_offsets(checkpoint: Path, cluster: Cluster) -> list[LostOffsets]:
    """What is gone of all that a query would read next; what cannot be asked for is left out."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    from millrace.clients.kafka import offsets

    at = next_offsets(checkpoint)
    held = offsets.list_available_offsets(
        cluster, [TopicPartition(*place) for place in sorted(at)], OffsetSpec.earliest()
    )
    return sorted(LostOffsets(*place, at[place], first) for place, first in held.items() if first > at[place])
