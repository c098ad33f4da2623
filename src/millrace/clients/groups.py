"""Consumer groups: who is in them, how far behind they are, and moving them to another place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients import topics
from millrace.clients.cluster import Cluster
from millrace.errors import GroupInUse, InvalidOption, UnknownGroup, did_you_mean


@dataclass(frozen=True)
class Position:
    """Where a group stands in one partition."""

    topic: str
    partition: int
    offset: int | None
    end: int
    member: str | None = None

    @property
    def lag(self) -> int | None:
        """Records that wait to be read; None when the group has no offset there."""
        return None if self.offset is None else max(0, self.end - self.offset)


@dataclass(frozen=True)
class Member:
    """A consumer in a group."""

    id: str
    client: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Group:
    """A group, its members and its positions."""

    name: str
    state: str
    members: tuple[Member, ...]
    positions: tuple[Position, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in which it has positions."""
        return tuple(sorted({position.topic for position in self.positions}))

    @property
    def lag(self) -> int:
        """Records that wait in all partitions."""
        return sum(position.lag or 0 for position in self.positions)


@dataclass(frozen=True)
class Move:
    """A change of one committed offset."""

    topic: str
    partition: int
    before: int | None
    after: int


def list_groups(cluster: Cluster) -> list[Group]:
    """Every consumer group."""
    cluster.connect()
    admin = cluster.admin()
    with cluster.speaking("list groups"):
        found = admin.list_consumer_groups(request_timeout=cluster.timeout).result()
    return [describe(cluster, name) for name in sorted(group.group_id for group in found.valid)]


def describe(cluster: Cluster, name: str) -> Group:
    """One group with its members and its lag."""
    require(cluster, name)
    admin = cluster.admin()
    with cluster.speaking(f"describe the group {name!r}"):
        found = admin.describe_consumer_groups([name])[name].result()
    members = tuple(
        Member(
            member.member_id,
            member.client_id,
            member.host.lstrip("/"),
            tuple(sorted((place.topic, place.partition) for place in member.assignment.topic_partitions)),
        )
        for member in found.members
    )
    return Group(name, found.state.name.lower(), members, _positions(cluster, name, members))


def plan_reset(
    cluster: Cluster, name: str, topic: str, to: str | int | datetime, partition: int | None = None
) -> list[Move]:
    """What a reset would change: to `earliest`, `latest`, an offset or a time. A new name is a new group."""
    metadata = cluster.connect()
    topics.require(metadata, topic, partition)
    if isinstance(to, int) and partition is None and len(metadata.topics[topic].partitions) > 1:
        raise InvalidOption("an offset needs a partition", hint=f"topic {topic!r} has several: add --partition P")
    numbers = sorted(metadata.topics[topic].partitions) if partition is None else [partition]
    places = [TopicPartition(topic, number) for number in numbers]
    before = _committed(cluster, name)
    after = topics.resolve(cluster, places, to)
    return [Move(topic, number, before.get((topic, number)), after[topic, number]) for number in numbers]


def apply_reset(cluster: Cluster, name: str, moves: Sequence[Move]) -> None:
    """Commit the offsets of a plan; refused while the group has members."""
    admin = cluster.admin()
    places = [TopicPartition(move.topic, move.partition, move.after) for move in moves]
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, places)])
    try:
        result = asked[name].result()
    except KafkaException as error:
        raise _in_use(cluster, error.args[0], name, "move") from None
    for place in result.topic_partitions:
        if place.error:
            raise _in_use(cluster, place.error, name, "move")


def delete(cluster: Cluster, name: str) -> None:
    """Forget a group and its offsets; refused while it has members."""
    require(cluster, name)
    admin = cluster.admin()
    try:
        admin.delete_consumer_groups([name])[name].result()
    except KafkaException as error:
        raise _in_use(cluster, error.args[0], name, "delete") from None


def require(cluster: Cluster, name: str) -> None:
    """Raise unless the group exists."""
    cluster.connect()
    admin = cluster.admin()
    with cluster.speaking("list groups"):
        known = {group.group_id for group in admin.list_consumer_groups().result().valid}
    if name not in known:
        raise UnknownGroup(f"there is no consumer group {name!r}", hint=did_you_mean(name, known))


def _committed(cluster: Cluster, name: str) -> dict[tuple[str, int], int]:
    admin = cluster.admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    with cluster.speaking(f"read the offsets of the group {name!r}"):
        found = asked[name].result().topic_partitions
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def _positions(cluster: Cluster, name: str, members: Sequence[Member]) -> tuple[Position, ...]:
    committed = _committed(cluster, name)
    owners = {place: member.id for member in members for place in member.partitions}
    existing = cluster.connect().topics
    places = sorted(
        place
        for place in committed.keys() | owners.keys()
        if place[0] in existing and place[1] in existing[place[0]].partitions
    )
    end = topics.offsets(cluster, [TopicPartition(*place) for place in places], OffsetSpec.latest())
    return tuple(Position(*place, committed.get(place), end[place], owners.get(place)) for place in places)


def _in_use(cluster: Cluster, problem: KafkaError, name: str, doing: str) -> Exception:
    busy = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS}
    if problem.code() in busy:
        return GroupInUse(
            f"could not {doing} the group {name!r}: it has members",
            hint=f"stop its consumers first (millrace kafka groups describe {name} shows them)",
        )
    return cluster.error(problem, f"{doing} the group {name!r}")
