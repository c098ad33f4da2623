"""Records that a query still needs and Kafka does not have any more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millrace.clients.cluster import Cluster
from millrace.engine.inhand import position


@dataclass(frozen=True, slots=True, order=True)
class Gone:
    """Offsets of one partition: from the one that is read next to the one before the first that is there."""

    topic: str
    partition: int
    first: int
    held: int

    def __str__(self) -> str:
        last = self.held - 1
        which = f"offset {last} is" if last == self.first else f"offsets {self.first} to {last} are"
        return f"topic {self.topic!r}, partition {self.partition}: {which} gone, the first that is there is {self.held}"


def gone(checkpoint: Path, cluster: Cluster) -> list[Gone]:
    """What is gone of all that a query would read next; what cannot be asked for is left out."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    from millrace.clients import offsets

    at = position(checkpoint)
    held = offsets.known(cluster, [TopicPartition(*place) for place in sorted(at)], OffsetSpec.earliest())
    return sorted(Gone(*place, at[place], first) for place, first in held.items() if first > at[place])
