"""Consumer groups: their members, their lag, and changes of their committed offsets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription, OffsetSpec

from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import Offsets, PartitionId
from millrace.errors import GroupInUse, InvalidOption, UnknownGroup, did_you_mean

_COORDINATOR_CHANGE = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors after which the coordinator is asked again."""
_RETRY_DELAY_S = 0.05


@dataclass(frozen=True)
class GroupOffset:
    """The committed offset of a group in one partition, and its lag."""

    topic: str
    partition: int
    offset: int | None
    end: int
    member: str | None = None

    @property
    def lag(self) -> int | None:
        """Number of unread records; None if the group has no offset in the partition."""
        return None if self.offset is None else max(0, self.end - self.offset)


@dataclass(frozen=True)
class Member:
    """A consumer in a group."""

    id: str
    client: str
    host: str
    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True)
class ConsumerGroup:
    """A group, its members and its committed offsets."""

    name: str
    state: str
    members: tuple[Member, ...]
    positions: tuple[GroupOffset, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in which it has offsets."""
        return tuple(sorted({position.topic for position in self.positions}))

    @property
    def lag(self) -> int:
        """Number of unread records in all partitions."""
        return sum(position.lag or 0 for position in self.positions)


@dataclass(frozen=True)
class OffsetChange:
    """A change of one committed offset."""

    topic: str
    partition: int
    before: int | None
    after: int


def list_groups(cluster: Cluster) -> list[ConsumerGroup]:
    """Return every consumer group."""
    cluster.connect()
    return _describe(cluster, sorted(names(cluster)))


def describe(cluster: Cluster, name: str) -> ConsumerGroup:
    """Return a group with its members and its lag."""
    require(cluster, name)
    groups = _describe(cluster, [name])
    if not groups:
        raise _unknown(name, names(cluster))
    return groups[0]


def members(cluster: Cluster, name: str) -> tuple[Member, ...]:
    """Return the members of a group, none if it does not exist. Only its coordinator is asked, no other broker."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        asked = _describe_request(cluster, [name])[name]
        problem = asked.exception()
        moving = isinstance(problem, KafkaException) and problem.args[0].code() in _COORDINATOR_CHANGE
        if not moving or time.monotonic() > deadline:
            break
        time.sleep(_RETRY_DELAY_S)
    description = _description_or_none(cluster, name, asked)
    return () if description is None else _members(description)


def plan_reset(
    cluster: Cluster, name: str, topic: str, to: str | int | datetime, partition: int | None = None
) -> list[OffsetChange]:
    """Return what a reset to `earliest`, `latest`, an offset or a time changes. A new name is a new group."""
    check_name(name)
    metadata = cluster.connect()
    topics.require(metadata, topic, partition)
    if isinstance(to, int) and partition is None and len(metadata.topics[topic].partitions) > 1:
        raise InvalidOption("an offset needs a partition", hint=f"topic {topic!r} has several: add --partition P")
    numbers = sorted(metadata.topics[topic].partitions) if partition is None else [partition]
    partitions = [TopicPartition(topic, number) for number in numbers]
    before = committed(cluster, name)
    after = offsets.resolve(cluster, partitions, to)
    return [OffsetChange(topic, number, before.get((topic, number)), after[topic, number]) for number in numbers]


def apply_reset(cluster: Cluster, name: str, moves: Sequence[OffsetChange]) -> None:
    """Commit the offsets of a plan; raise GroupInUse if the group has members."""
    deadline = time.monotonic() + cluster.timeout
    while problem := _move(cluster, name, moves):
        if problem.code() not in _COORDINATOR_CHANGE or time.monotonic() > deadline:
            raise _in_use(cluster, problem, name, "move")
        time.sleep(_RETRY_DELAY_S)


def _move(cluster: Cluster, name: str, moves: Sequence[OffsetChange]) -> KafkaError | None:
    partitions = [TopicPartition(move.topic, move.partition, move.after) for move in moves]
    wanted = [ConsumerGroupTopicPartitions(name, partitions)]
    asked = cluster.ask_coordinators(
        f"move the group {name!r}",
        lambda admin, limit: admin.alter_consumer_group_offsets(wanted, request_timeout=limit),
    )[name]
    if isinstance(problem := asked.exception(), KafkaException):
        error: KafkaError = problem.args[0]
        return error
    return next((partition.error for partition in asked.result().topic_partitions if partition.error), None)


def delete(cluster: Cluster, name: str) -> None:
    """Delete a group and its offsets; raise GroupInUse if it has members."""
    require(cluster, name)
    asked = cluster.ask_coordinators(
        f"delete the group {name!r}", lambda admin, limit: admin.delete_consumer_groups([name], request_timeout=limit)
    )
    try:
        asked[name].result()
    except KafkaException as error:
        raise _in_use(cluster, error.args[0], name, "delete") from None


def check_name(name: str) -> None:
    """Raise unless a group can have this name; the client crashes on some that are not valid."""
    if not name or not name.isprintable():
        raise InvalidOption(f"{name!r} cannot be the name of a group", hint="use letters, digits, '.', '_' and '-'")


def require(cluster: Cluster, name: str) -> None:
    """Raise unless the group exists."""
    cluster.connect()
    existing = names(cluster)
    if name not in existing:
        raise _unknown(name, existing)


def names(cluster: Cluster) -> set[str]:
    """Return the names of all groups."""
    admin = cluster.admin()
    with cluster.translated_errors("list groups"):
        listing = admin.list_consumer_groups(request_timeout=cluster.timeout).result()
    for problem in listing.errors:  # a broker that did not answer may have groups that would be missing here
        raise cluster.error(problem.args[0] if isinstance(problem, KafkaException) else problem, "list groups")
    return {group.group_id for group in listing.valid}


def _describe(cluster: Cluster, names: Sequence[str]) -> list[ConsumerGroup]:
    """Return the groups of these names, without those that were deleted meanwhile."""
    if not names:
        return []
    asked = _describe_request(cluster, names)
    groups = {name: group for name in names if (group := _description_or_none(cluster, name, asked[name]))}
    members = {name: _members(group) for name, group in groups.items()}
    offsets_of = {name: committed(cluster, name) for name in groups}
    held = {partition for every in members.values() for member in every for partition in member.partitions}
    ends = _ends(cluster, held.union(*offsets_of.values()))
    return [
        ConsumerGroup(name, group.state.name.lower(), members[name], _positions(members[name], offsets_of[name], ends))
        for name, group in groups.items()
    ]


def _describe_request(cluster: Cluster, names: Sequence[str]) -> dict[str, Future[ConsumerGroupDescription]]:
    doing = f"describe the group {names[0]!r}" if len(names) == 1 else "describe groups"
    return cluster.ask_coordinators(
        doing, lambda admin, limit: admin.describe_consumer_groups(list(names), request_timeout=limit)
    )


def _description_or_none(
    cluster: Cluster, name: str, asked: Future[ConsumerGroupDescription]
) -> ConsumerGroupDescription | None:
    with cluster.translated_errors(f"describe the group {name!r}"):
        try:
            return asked.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise


def _members(group: ConsumerGroupDescription) -> tuple[Member, ...]:
    return tuple(
        Member(
            member.member_id,
            member.client_id,
            member.host.lstrip("/"),
            tuple(sorted((partition.topic, partition.partition) for partition in member.assignment.topic_partitions)),
        )
        for member in group.members
    )


def committed(cluster: Cluster, name: str) -> Offsets:
    """Return the offsets that a group has committed; none if the group does not exist."""
    doing, wanted = f"read the offsets of the group {name!r}", [ConsumerGroupTopicPartitions(name)]
    asked = cluster.ask_coordinators(
        doing, lambda admin, limit: admin.list_consumer_group_offsets(wanted, request_timeout=limit)
    )
    with cluster.translated_errors(doing):
        partitions = asked[name].result().topic_partitions
    return {
        (partition.topic, partition.partition): partition.offset for partition in partitions if partition.offset >= 0
    }


def _ends(cluster: Cluster, partitions: set[PartitionId]) -> Offsets:
    """Return the end offset of each partition that still exists."""
    existing = cluster.connect().topics
    wanted = [
        TopicPartition(topic, number)
        for topic, number in sorted(partitions)
        if topic in existing and number in existing[topic].partitions
    ]
    return offsets.list_offsets(cluster, wanted, OffsetSpec.latest())


def _positions(members: Sequence[Member], committed: Offsets, ends: Offsets) -> tuple[GroupOffset, ...]:
    owners = {partition: member.id for member in members for partition in member.partitions}
    return tuple(
        GroupOffset(*partition, committed.get(partition), ends[partition], owners.get(partition))
        for partition in sorted(committed.keys() | owners.keys())
        if partition in ends
    )


def _unknown(name: str, existing: set[str]) -> UnknownGroup:
    return UnknownGroup(f"there is no consumer group {name!r}", hint=did_you_mean(name, existing))


def _in_use(cluster: Cluster, problem: KafkaError, name: str, doing: str) -> Exception:
    busy = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS}
    if problem.code() in busy:
        hint = f"stop its consumers first (millrace kafka groups describe {name} shows them)"
        return GroupInUse(f"could not {doing} the group {name!r}: it has members", hint=hint)
    return cluster.error(problem, f"{doing} the group {name!r}")
