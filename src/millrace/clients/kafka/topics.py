"""Topics and brokers of a cluster.

- Topics are listed, described, created, changed and deleted.
- `read_status` has the brokers, and whether every replica is in sync.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millrace.clients.kafka import offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import InvalidTopic, KafkaFailed, MillraceError, UnknownTopic, did_you_mean

_REFUSED = {
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
}


@dataclass(frozen=True)
class Partition:
    """A partition: its replicas and its offsets."""

    id: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int | None
    """The oldest retained offset; None while no leader answers."""
    end: int | None
    """The offset that the next record gets; None while no leader answers."""

    @property
    def offsets(self) -> int:
        """Number of retained offsets. There may be fewer records, after compaction or transactions."""
        return 0 if self.end is None or self.first is None else self.end - self.first


@dataclass(frozen=True)
class Topic:
    """A topic with its partitions and the settings that differ from the broker's defaults."""

    name: str
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str]

    @property
    def replication(self) -> int:
        """Number of replicas of each partition."""
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    @property
    def offsets(self) -> int:
        """Number of retained offsets of all partitions."""
        return sum(partition.offsets for partition in self.partitions)

    @property
    def under_replicated(self) -> int:
        """Number of partitions with a replica that is not in sync."""
        return sum(len(partition.in_sync) < len(partition.replicas) for partition in self.partitions)


def list_topics(cluster: Cluster, *, internal: bool = False) -> list[Topic]:
    """Return every topic without its settings; Kafka's own (`__…`) only with `internal`."""
    metadata = cluster.connect()
    names = sorted(name for name in metadata.topics if internal or not name.startswith("__"))
    return _read(cluster, metadata, names)


def describe(cluster: Cluster, names: Sequence[str]) -> list[Topic]:
    """Return the topics of these names, with their settings."""
    metadata = cluster.connect()
    names = _unique_existing(metadata, names)
    configs = read_configs(cluster, names, own=True)
    return [replace(topic, configs=configs[topic.name]) for topic in _read(cluster, metadata, names)]


def create(
    cluster: Cluster,
    name: str,
    partitions: int | None = None,
    replication: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until each partition has a leader; None leaves a choice to the broker."""
    cluster.connect()
    problem = _create(cluster, name, partitions, replication, configs or {})
    if problem:
        raise _refused(cluster, problem, f"create the topic {name!r}")
    _wait_for_leaders(cluster, name, partitions or 1)


def _create(
    cluster: Cluster, name: str, partitions: int | None, replication: int | None, configs: Mapping[str, str]
) -> KafkaError | None:
    """Request a topic; return the error if it is refused."""
    admin = cluster.admin()
    try:
        wanted = NewTopic(name, partitions or -1, replication or -1, config=dict(configs))
        admin.create_topics([wanted], operation_timeout=cluster.timeout)[name].result()
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        return problem
    except (TypeError, ValueError) as error:
        raise InvalidTopic(f"could not create the topic {name!r}: {error}") from None
    return None


def ensure(
    cluster: Cluster, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
) -> bool:
    """Create a topic unless it exists; return whether it was created."""
    if name in cluster.connect().topics:
        return False
    problem = _create(cluster, name, partitions, None, configs or {})
    exists = problem is not None and problem.code() == KafkaError.TOPIC_ALREADY_EXISTS
    if problem and not exists:
        raise _refused(cluster, problem, f"create the topic {name!r}")
    # Also if another process has created it meanwhile, which may have chosen another number of partitions.
    _wait_for_leaders(cluster, name, 1 if exists else partitions or 1)
    return not exists


def alter(
    cluster: Cluster,
    name: str,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    reset: Sequence[str] = (),
) -> None:
    """Give a topic more partitions, set configs, or put configs back to the broker's default."""
    require(cluster.connect(), name)
    admin = cluster.admin()
    try:
        if partitions:
            admin.create_partitions([NewPartitions(name, partitions)])[name].result()
            _wait_for_leaders(cluster, name, partitions)
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in (configs or {}).items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in reset]
        if entries:
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            admin.incremental_alter_configs([resource])[resource].result()
    except KafkaException as error:
        raise _refused(cluster, error.args[0], f"change the topic {name!r}") from None


def delete(cluster: Cluster, names: Sequence[str]) -> None:
    """Delete topics with all their records, and wait until they no longer exist."""
    metadata = cluster.connect()
    names = _unique_existing(metadata, names)
    admin = cluster.admin()
    results = admin.delete_topics(names, operation_timeout=cluster.timeout)
    for name, result in results.items():
        with cluster.translated_errors(f"delete the topic {name!r}"):
            result.result()
    _wait(cluster, lambda metadata: not metadata.topics.keys() & set(names), f"delete {', '.join(names)}")


def identity(cluster: Cluster, name: str) -> str:
    """Return Kafka's id of a topic, which changes when it is deleted and created again."""
    asked = cluster.admin().describe_topics(TopicCollection([name]), request_timeout=cluster.timeout)
    with cluster.translated_errors(f"describe topic {name!r}"):
        return str(asked[name].result().topic_id)


def require(metadata: ClusterMetadata, name: str, partition: int | None = None) -> None:
    """Raise unless the topic, and the partition if one is named, exists."""
    if name not in metadata.topics:
        existing = [topic for topic in metadata.topics if not topic.startswith("__")]
        near = f"{did_you_mean(name, existing)} or " if existing else ""
        hint = f"{near}create it: millrace kafka topics create {name}"
        raise UnknownTopic(f"there is no topic {name!r}", hint=hint)
    count = len(metadata.topics[name].partitions)
    if partition is not None and not 0 <= partition < count:
        raise UnknownTopic(f"topic {name!r} has no partition {partition}", hint=f"its partitions are 0 to {count - 1}")


def _unique_existing(metadata: ClusterMetadata, names: Sequence[str]) -> list[str]:
    """Return the names, each once; raise UnknownTopic unless all exist."""
    for name in names:
        require(metadata, name)
    return list(dict.fromkeys(names))


def _read(cluster: Cluster, metadata: ClusterMetadata, names: Sequence[str]) -> list[Topic]:
    partitions_with_leader = [
        TopicPartition(name, partition.id)
        for name in names
        for partition in metadata.topics[name].partitions.values()
        if partition.leader >= 0
    ]
    first = offsets.list_available_offsets(cluster, partitions_with_leader, OffsetSpec.earliest())
    end = offsets.list_available_offsets(cluster, partitions_with_leader, OffsetSpec.latest())
    return [
        Topic(
            name,
            tuple(
                Partition(
                    partition.id,
                    partition.leader if partition.leader >= 0 else None,
                    tuple(partition.replicas),
                    tuple(partition.isrs),
                    first.get((name, partition.id)),
                    end.get((name, partition.id)),
                )
                for _, partition in sorted(metadata.topics[name].partitions.items())
            ),
            {},
        )
        for name in names
    ]


def read_configs(cluster: Cluster, names: Sequence[str], *, own: bool = False) -> dict[str, dict[str, str]]:
    """Return the settings of topics, or only those that differ from the broker's defaults (`own`)."""
    names = _unique_existing(cluster.connect(), names)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    asked = cluster.admin().describe_configs(resources) if resources else {}
    with cluster.translated_errors("read the settings of topics"):
        entries = {resource.name: sorted(asked[resource].result().items()) for resource in resources}
    own_source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        name: {key: str(entry.value) for key, entry in entries[name] if not own or entry.source == own_source}
        for name in names
    }


def _refused(cluster: Cluster, problem: KafkaError, doing: str) -> MillraceError:
    if problem.code() not in _REFUSED:
        return cluster.error(problem, doing)
    brokers = len(cluster.connect().brokers)
    hints = {
        KafkaError.INVALID_REPLICATION_FACTOR: f"the cluster has {brokers} broker{'s' * (brokers != 1)}, so "
        f"--replication can be at most {brokers}; more: millrace kafka up --brokers N",
        KafkaError.TOPIC_ALREADY_EXISTS: "choose another name, or change it: millrace kafka topics alter",
        KafkaError.TOPIC_EXCEPTION: "names have letters, digits, '.', '_' and '-', at most 249 of them",
        KafkaError.INVALID_PARTITIONS: "a topic has at least one partition, and the number can only grow",
    }
    return InvalidTopic(f"could not {doing}: {problem.str()}", hint=hints.get(problem.code()))


def _wait_for_leaders(cluster: Cluster, name: str, partitions: int = 1) -> None:
    """Wait until a number of partitions have leaders, and the leaders know it."""

    def led(metadata: ClusterMetadata) -> bool:
        topic = metadata.topics.get(name)
        if topic is None or len(topic.partitions) < partitions:
            return False
        if any(partition.leader < 0 for partition in topic.partitions.values()):
            return False
        wanted = [TopicPartition(name, number) for number in topic.partitions]
        return len(offsets.list_available_offsets(cluster, wanted, OffsetSpec.latest())) == len(wanted)

    _wait(cluster, led, f"see leaders for {name!r}")


def _wait(cluster: Cluster, holds: Callable[[ClusterMetadata], bool], doing: str) -> None:
    deadline = time.monotonic() + cluster.timeout
    while not holds(cluster.connect()):
        if time.monotonic() > deadline:
            raise KafkaFailed(f"could not {doing} within {cluster.timeout:.0f} s", hint="see millrace kafka status")
        time.sleep(0.05)


@dataclass(frozen=True)
class BrokerInfo:
    """A broker, and the number of partitions it leads and of replicas it holds."""

    id: int
    address: str
    leads: int
    holds: int


@dataclass(frozen=True)
class Status:
    """Brokers, and whether every replica is in sync."""

    cluster_id: str
    bootstrap: str
    brokers: tuple[BrokerInfo, ...]
    topics: int
    partitions: int
    under_replicated: int


def read_status(cluster: Cluster) -> Status:
    """Return the state of the brokers and replicas."""
    metadata = cluster.connect()
    partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
    leads = Counter(partition.leader for partition in partitions)
    holds = Counter(replica for partition in partitions for replica in partition.replicas)
    return Status(
        cluster_id=metadata.cluster_id or "",
        bootstrap=cluster.bootstrap,
        brokers=tuple(
            BrokerInfo(broker.id, f"{broker.host}:{broker.port}", leads[broker.id], holds[broker.id])
            for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id)
        ),
        topics=sum(not name.startswith("__") for name in metadata.topics),
        partitions=len(partitions),
        under_replicated=sum(len(partition.isrs) < len(partition.replicas) for partition in partitions),
    )
