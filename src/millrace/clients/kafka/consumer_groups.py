"""Consumer groups: who is in them, how far behind they are, and moving them to another place."""

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
from millrace.errors import GroupInUse, InvalidOption, UnknownGroup, did_you_mean

_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors of a group's coordinator that pass."""
_SOON = 0.05

Offsets = dict[tuple[str, int], int]
"""An offset for each topic and partition."""


@dataclass(frozen=True)
class GroupOffset:
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
class ConsumerGroup:
    """A group, its members and its positions."""

    name: str
    state: str
    members: tuple[Member, ...]
    positions: tuple[GroupOffset, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in which it has positions."""
        return tuple(sorted({position.topic for position in self.positions}))

    @property
    def lag(self) -> int:
        """Records that wait in all partitions."""
        return sum(position.lag or 0 for position in self.positions)


@dataclass(frozen=True)
class OffsetChange:
    """A change of one committed offset."""

    topic: str
    partition: int
    before: int | None
    after: int


def list_groups(cluster: Cluster) -> list[ConsumerGroup]:
    """Every consumer group."""
    cluster.connect()
    return _described(cluster, sorted(names(cluster)))


def describe(cluster: Cluster, name: str) -> ConsumerGroup:
    """One group with its members and its lag."""
    require(cluster, name)
    found = _described(cluster, [name])
    if not found:
        raise _unknown(name, names(cluster))
    return found[0]


def members(cluster: Cluster, name: str) -> tuple[Member, ...]:
    """Who is in a group; nobody where there is none. Only its coordinator is asked: the other brokers may be away."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        asked = _asked(cluster, [name])[name]
        problem = asked.exception()
        moving = isinstance(problem, KafkaException) and problem.args[0].code() in _MOVING
        if not moving or time.monotonic() > deadline:
            break
        time.sleep(_SOON)
    found = _unless_ended(cluster, name, asked)
    return () if found is None else _members(found)


def plan_reset(
    cluster: Cluster, name: str, topic: str, to: str | int | datetime, partition: int | None = None
) -> list[OffsetChange]:
    """What a reset would change: to `earliest`, `latest`, an offset or a time. A new name is a new group."""
    check_name(name)
    metadata = cluster.connect()
    topics.require(metadata, topic, partition)
    if isinstance(to, int) and partition is None and len(metadata.topics[topic].partitions) > 1:
        raise InvalidOption("an offset needs a partition", hint=f"topic {topic!r} has several: add --partition P")
    numbers = sorted(metadata.topics[topic].partitions) if partition is None else [partition]
    places = [TopicPartition(topic, number) for number in numbers]
    before = committed(cluster, name)
    after = offsets.resolve(cluster, places, to)
    return [OffsetChange(topic, number, before.get((topic, number)), after[topic, number]) for number in numbers]


def apply_reset(cluster: Cluster, name: str, moves: Sequence[OffsetChange]) -> None:
    """Commit the offsets of a plan; refused while the group has members. A coordinator that moves is waited for."""
    deadline = time.monotonic() + cluster.timeout
    while problem := _move(cluster, name, moves):
        if problem.code() not in _MOVING or time.monotonic() > deadline:
            raise _in_use(cluster, problem, name, "move")
        time.sleep(_SOON)


def _move(cluster: Cluster, name: str, moves: Sequence[OffsetChange]) -> KafkaError | None:
    places = [TopicPartition(move.topic, move.partition, move.after) for move in moves]
    wanted = [ConsumerGroupTopicPartitions(name, places)]
    asked = cluster.ask_coordinators(
        f"move the group {name!r}",
        lambda admin, limit: admin.alter_consumer_group_offsets(wanted, request_timeout=limit),
    )
    try:
        moved = asked[name].result().topic_partitions
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        return problem
    return next((place.error for place in moved if place.error), None)


def delete(cluster: Cluster, name: str) -> None:
    """Forget a group and its offsets; refused while it has members."""
    require(cluster, name)
    asked = cluster.ask_coordinators(
        f"delete the group {name!r}", lambda admin, limit: admin.delete_consumer_groups([name], request_timeout=limit)
    )
    try:
        asked[name].result()
    except KafkaException as error:
        raise _in_use(cluster, error.args[0], name, "delete") from None


def check_name(name: str) -> None:
    """Raise unless a group can have this name; the client itself breaks on some that it cannot have."""
    if not name or not name.isprintable():
        raise InvalidOption(f"{name!r} cannot be the name of a group", hint="use letters, digits, '.', '_' and '-'")


def require(cluster: Cluster, name: str) -> None:
    """Raise unless the group exists."""
    cluster.connect()
    known = names(cluster)
    if name not in known:
        raise _unknown(name, known)


def names(cluster: Cluster) -> set[str]:
    """The names of all groups."""
    admin = cluster.admin()
    with cluster.translated_errors("list groups"):
        found = admin.list_consumer_groups(request_timeout=cluster.timeout).result()
    for problem in found.errors:  # a broker that did not answer may have groups that would be missing here
        raise cluster.error(problem.args[0] if isinstance(problem, KafkaException) else problem, "list groups")
    return {group.group_id for group in found.valid}


def _described(cluster: Cluster, names: Sequence[str]) -> list[ConsumerGroup]:
    """The groups of these names, without those that have ended meanwhile."""
    if not names:
        return []
    asked = _asked(cluster, names)
    found = [one for name in names if (one := _unless_ended(cluster, name, asked[name]))]
    members = {one.group_id: _members(one) for one in found}
    offsets_of = {name: committed(cluster, name) for name in members}
    held = {place for every in members.values() for member in every for place in member.partitions}
    ends = _ends(cluster, held.union(*offsets_of.values()))
    return [
        ConsumerGroup(
            one.group_id,
            one.state.name.lower(),
            members[one.group_id],
            _positions(members[one.group_id], offsets_of[one.group_id], ends),
        )
        for one in found
    ]


def _asked(cluster: Cluster, names: Sequence[str]) -> dict[str, Future[ConsumerGroupDescription]]:
    doing = f"describe the group {names[0]!r}" if len(names) == 1 else "describe groups"
    return cluster.ask_coordinators(
        doing, lambda admin, limit: admin.describe_consumer_groups(list(names), request_timeout=limit)
    )


def _unless_ended(
    cluster: Cluster, name: str, asked: Future[ConsumerGroupDescription]
) -> ConsumerGroupDescription | None:
    with cluster.translated_errors(f"describe the group {name!r}"):
        try:
            return asked.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise


def _members(found: ConsumerGroupDescription) -> tuple[Member, ...]:
    return tuple(
        Member(
            member.member_id,
            member.client_id,
            member.host.lstrip("/"),
            tuple(sorted((place.topic, place.partition) for place in member.assignment.topic_partitions)),
        )
        for member in found.members
    )


def committed(cluster: Cluster, name: str) -> Offsets:
    """The offsets that a group has committed; none where there is no such group."""
    doing, wanted = f"read the offsets of the group {name!r}", [ConsumerGroupTopicPartitions(name)]
    asked = cluster.ask_coordinators(
        doing, lambda admin, limit: admin.list_consumer_group_offsets(wanted, request_timeout=limit)
    )
    with cluster.translated_errors(doing):
        found = asked[name].result().topic_partitions
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def _ends(cluster: Cluster, places: set[tuple[str, int]]) -> Offsets:
    """The end of each partition that still exists."""
    existing = cluster.connect().topics
    wanted = [
        TopicPartition(topic, number)
        for topic, number in sorted(places)
        if topic in existing and number in existing[topic].partitions
    ]
    return offsets.list_offsets(cluster, wanted, OffsetSpec.latest())


def _positions(members: Sequence[Member], committed: Offsets, ends: Offsets) -> tuple[GroupOffset, ...]:
    owners = {place: member.id for member in members for place in member.partitions}
    places = sorted(place for place in committed.keys() | owners.keys() if place in ends)
    return tuple(GroupOffset(*place, committed.get(place), ends[place], owners.get(place)) for place in places)


def _unknown(name: str, known: set[str]) -> UnknownGroup:
    return UnknownGroup(f"there is no consumer group {name!r}", hint=did_you_mean(name, known))


def _in_use(cluster: Cluster, problem: KafkaError, name: str, doing: str) -> Exception:
    busy = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS}
    if problem.code() in busy:
        return GroupInUse(
            f"could not {doing} the group {name!r}: it has members",
            hint=f"stop its consumers first (millrace kafka groups describe {name} shows them)",
        )
    return cluster.error(problem, f"{doing} the group {name!r}")
