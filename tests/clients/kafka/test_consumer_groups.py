"""Consumer groups: who is in them, how far behind, and moving them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.clients.kafka.consumer_groups import ConsumerGroup, OffsetChange
from millrace.clients.kafka.record import Record
from millrace.errors import GroupInUse, InvalidOption, UnknownGroup, UnknownTopic

Put = Callable[..., object]
MOMENT = 1_700_000_000_000


@pytest.fixture
def filled(lane: str, put: Put) -> str:
    """A topic of one partition with five records, a second apart."""
    put(lane, *(Record(b"%d" % number, timestamp=MOMENT + number * 1000) for number in range(5)))
    return lane


@pytest.fixture
def group(cluster: Cluster, filled: str) -> str:
    """A group that has read two of the five."""
    name = f"group-{uuid.uuid4().hex[:12]}"
    for _ in read_records(cluster, ReadRequest(filled, "earliest", group=name, most=2)):
        pass
    return name


@contextmanager
def member(cluster: Cluster, topic: str, group: str) -> Iterator[ConsumerGroup]:
    """The group while somebody reads with it and waits for more."""
    reading = ReadRequest(topic, "earliest", group=group)

    def follow() -> None:
        for _ in read_records(cluster, reading):
            pass

    with ThreadPoolExecutor(1) as pool:
        pool.submit(follow)
        try:
            yield wait_for_member(cluster, group)
        finally:
            reading.stop.set()


def wait_for_member(cluster: Cluster, group: str) -> ConsumerGroup:
    while True:
        for found in consumer_groups.list_groups(cluster):
            if found.name == group and found.state == "stable" and found.members[0].partitions:
                return found


def reset(cluster: Cluster, group: str, topic: str, to: str | int | datetime) -> list[OffsetChange]:
    moves = consumer_groups.plan_reset(cluster, group, topic, to)
    consumer_groups.apply_reset(cluster, group, moves)
    return moves


def test_a_group_is_described_with_its_lag(cluster: Cluster, filled: str, group: str) -> None:
    found = consumer_groups.describe(cluster, group)
    assert (found.name, found.state, found.members, found.topics, found.lag) == (group, "empty", (), (filled,), 3)
    [position] = found.positions
    assert (position.partition, position.offset, position.end, position.lag) == (0, 2, 5, 3)


def test_groups_are_listed_by_name(cluster: Cluster, group: str) -> None:
    names = [one.name for one in consumer_groups.list_groups(cluster)]
    assert group in names
    assert names == sorted(names)


def test_a_listed_group_is_the_described_one(cluster: Cluster, group: str) -> None:
    [listed] = [one for one in consumer_groups.list_groups(cluster) if one.name == group]
    assert listed == consumer_groups.describe(cluster, group)


def test_members_are_told_with_what_they_read(cluster: Cluster, filled: str, group: str) -> None:
    with member(cluster, filled, group) as found:
        [one] = found.members
        assert (one.client, one.host, one.partitions) == ("millrace", "127.0.0.1", ((filled, 0),))
        assert [position.member for position in found.positions] == [one.id]


def test_a_member_that_has_committed_nothing_has_no_lag(cluster: Cluster, topic: str) -> None:
    with member(cluster, topic, f"group-{uuid.uuid4().hex[:12]}") as found:
        assert [(one.offset, one.lag) for one in found.positions] == [(None, None)] * 3
        assert found.lag == 0


def test_positions_in_a_deleted_topic_are_left_out(cluster: Cluster, filled: str, lane: str, group: str) -> None:
    topics.delete(cluster, [filled])
    names = [one.name for one in consumer_groups.list_groups(cluster)]
    assert group not in names or consumer_groups.describe(cluster, group).positions == ()


@pytest.mark.parametrize(
    ("to", "after"),
    [("earliest", 0), ("latest", 5), (4, 4), (datetime.fromtimestamp((MOMENT + 3000) / 1000, UTC), 3)],
)
def test_a_group_is_moved(cluster: Cluster, filled: str, group: str, to: str | int | datetime, after: int) -> None:
    assert reset(cluster, group, filled, to) == [OffsetChange(filled, 0, 2, after)]
    assert consumer_groups.describe(cluster, group).positions[0].offset == after


def test_a_plan_changes_nothing(cluster: Cluster, filled: str, group: str) -> None:
    assert consumer_groups.plan_reset(cluster, group, filled, "earliest") == [OffsetChange(filled, 0, 2, 0)]
    assert consumer_groups.describe(cluster, group).positions[0].offset == 2


def test_only_the_chosen_partition_is_moved(cluster: Cluster, topic: str, put: Put) -> None:
    put(topic, *(Record(b"v", partition=number) for number in range(3)))
    name = f"group-{uuid.uuid4().hex[:12]}"
    reset(cluster, name, topic, "earliest")
    moves = consumer_groups.plan_reset(cluster, name, topic, 1, partition=1)
    assert moves == [OffsetChange(topic, 1, 0, 1)]
    consumer_groups.apply_reset(cluster, name, moves)
    assert [one.offset for one in consumer_groups.describe(cluster, name).positions] == [0, 1, 0]


def test_a_new_group_can_be_given_a_place(cluster: Cluster, filled: str) -> None:
    name = f"group-{uuid.uuid4().hex[:12]}"
    assert reset(cluster, name, filled, 3) == [OffsetChange(filled, 0, None, 3)]
    values = [one.value() for batch in read_records(cluster, ReadRequest(filled, group=name, most=2)) for one in batch]
    assert values == [b"3", b"4"]


def test_a_group_that_is_in_use_is_not_moved(cluster: Cluster, filled: str, group: str) -> None:
    with member(cluster, filled, group):
        moves = consumer_groups.plan_reset(cluster, group, filled, "earliest")
        with pytest.raises(GroupInUse) as raised:
            consumer_groups.apply_reset(cluster, group, moves)
    assert raised.value.condition == "kafka.group-in-use"


def test_a_group_that_is_in_use_is_not_deleted(cluster: Cluster, filled: str, group: str) -> None:
    with member(cluster, filled, group), pytest.raises(GroupInUse):
        consumer_groups.delete(cluster, group)
    assert consumer_groups.describe(cluster, group).positions


def test_a_deleted_group_is_gone(cluster: Cluster, group: str) -> None:
    consumer_groups.delete(cluster, group)
    assert group not in [one.name for one in consumer_groups.list_groups(cluster)]


@pytest.mark.parametrize("act", [consumer_groups.describe, consumer_groups.delete, consumer_groups.require])
def test_unknown_groups(cluster: Cluster, group: str, act: Callable[..., object]) -> None:
    with pytest.raises(UnknownGroup) as raised:
        act(cluster, f"{group}x")
    assert raised.value.condition == "kafka.group-unknown"
    assert group in (raised.value.hint or "")


def test_what_a_group_cannot_be_moved_to(cluster: Cluster, topic: str, filled: str, group: str) -> None:
    with pytest.raises(UnknownTopic):
        consumer_groups.plan_reset(cluster, group, f"{filled}x", "earliest")
    with pytest.raises(UnknownTopic):
        consumer_groups.plan_reset(cluster, group, filled, "earliest", partition=1)
    with pytest.raises(InvalidOption):
        consumer_groups.plan_reset(cluster, group, filled, 6)
    with pytest.raises(InvalidOption):
        consumer_groups.plan_reset(cluster, group, topic, 0)


@pytest.mark.parametrize("name", ["", "\udcff", "a\0b"])
def test_what_cannot_be_the_name_of_a_group(cluster: Cluster, lane: str, name: str) -> None:
    with pytest.raises(InvalidOption):
        consumer_groups.plan_reset(cluster, name, lane, "earliest")
