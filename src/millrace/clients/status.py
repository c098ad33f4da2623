"""A cluster at a glance."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from millrace.clients.cluster import Cluster


@dataclass(frozen=True)
class Broker:
    """A broker, how many partitions it leads and how many replicas it holds."""

    id: int
    address: str
    leads: int
    holds: int


@dataclass(frozen=True)
class Status:
    """Brokers, and whether every replica is in sync."""

    cluster_id: str
    bootstrap: str
    brokers: tuple[Broker, ...]
    topics: int
    partitions: int
    under_replicated: int


def read_status(cluster: Cluster) -> Status:
    """Ask the cluster."""
    metadata = cluster.connect()
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    holds = Counter(replica for one in partitions for replica in one.replicas)
    return Status(
        cluster_id=metadata.cluster_id or "",
        bootstrap=cluster.bootstrap,
        brokers=tuple(
            Broker(broker.id, f"{broker.host}:{broker.port}", leads[broker.id], holds[broker.id])
            for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id)
        ),
        topics=sum(not name.startswith("__") for name in metadata.topics),
        partitions=len(partitions),
        under_replicated=sum(len(one.isrs) < len(one.replicas) for one in partitions),
    )
