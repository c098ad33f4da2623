"""Topics: made, listed, described, changed, deleted, and the offsets in them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition

from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption, InvalidTopic, UnknownTopic

MOMENT = 1_700_000_000_000


@pytest.fixture
def name() -> str:
    """A name that no topic has."""
    return f"new-{uuid.uuid4().hex[:12]}"


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def wait_for_configs(cluster: Cluster, topic: str, expected: dict[str, str]) -> None:
    """A broker hears of them shortly after the controller has agreed to them."""
    while topics.describe(cluster, [topic])[0].configs != expected:
        pass


def test_a_topic_is_made_as_asked(cluster: Cluster, name: str) -> None:
    topics.create(cluster, name, 2, 1, {"retention.ms": "60000", "cleanup.policy": "compact"})
    [found] = topics.describe(cluster, [name])
    assert (found.name, len(found.partitions), found.replication) == (name, 2, 1)
    assert found.configs == {"cleanup.policy": "compact", "retention.ms": "60000"}
    assert (found.offsets, found.under_replicated) == (0, 0)


def test_what_is_not_said_is_left_to_the_broker(cluster: Cluster, name: str) -> None:
    topics.create(cluster, name)
    [found] = topics.describe(cluster, [name])
    assert found.partitions
    assert found.replication == 1
    assert found.configs == {}


def test_partitions_tell_who_holds_them(cluster: Cluster, topic: str) -> None:
    [broker] = cluster.connect().brokers
    [found] = topics.describe(cluster, [topic])
    assert [one.id for one in found.partitions] == [0, 1, 2]
    assert {(one.leader, one.replicas, one.in_sync) for one in found.partitions} == {(broker, (broker,), (broker,))}


def test_offsets_are_counted(cluster: Cluster, topic: str, put: Callable[..., object]) -> None:
    put(topic, *(Record(b"v", partition=number) for number in (0, 2, 2)))
    [found] = topics.describe(cluster, [topic])
    assert [(one.first, one.end, one.offsets) for one in found.partitions] == [(0, 1, 1), (0, 0, 0), (0, 2, 2)]
    assert found.offsets == 3


def test_topics_are_listed_by_name_without_kafkas_own(cluster: Cluster, topic: str, lane: str) -> None:
    names = [one.name for one in topics.list_topics(cluster)]
    assert {topic, lane} <= set(names)
    assert names == sorted(names)
    assert not any(one.startswith("__") for one in names)


def test_a_topic_that_is_named_twice_is_described_once(cluster: Cluster, topic: str, lane: str) -> None:
    assert [one.name for one in topics.describe(cluster, [topic, lane, topic])] == [topic, lane]


def test_more_replicas_than_brokers_is_told_with_the_number_of_brokers(cluster: Cluster, name: str) -> None:
    with pytest.raises(InvalidTopic) as raised:
        topics.create(cluster, name, 1, 2)
    assert raised.value.condition == "kafka.topic-invalid"
    assert "at most 1" in (raised.value.hint or "")
    assert name not in cluster.connect().topics


def test_a_topic_that_exists_is_not_made_again(cluster: Cluster, topic: str) -> None:
    with pytest.raises(InvalidTopic) as raised:
        topics.create(cluster, topic, 5)
    assert "alter" in (raised.value.hint or "")
    assert len(topics.describe(cluster, [topic])[0].partitions) == 3


@pytest.mark.parametrize("illegal", ["", ".", "..", "a b", "a/b", "zoë", "x" * 250, "\udcff", "a\0b"])
def test_illegal_names(cluster: Cluster, illegal: str) -> None:
    with pytest.raises(InvalidTopic):
        topics.create(cluster, illegal, 1)


@pytest.mark.parametrize("configs", [{"no.such.config": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}])
def test_illegal_configs(cluster: Cluster, name: str, topic: str, configs: dict[str, str]) -> None:
    with pytest.raises(InvalidTopic):
        topics.create(cluster, name, 1, None, configs)
    with pytest.raises(InvalidTopic):
        topics.alter(cluster, topic, configs=configs)


def test_partitions_are_added(cluster: Cluster, topic: str) -> None:
    topics.alter(cluster, topic, partitions=5)
    assert len(topics.describe(cluster, [topic])[0].partitions) == 5


@pytest.mark.parametrize("count", [2, 3])
def test_partitions_are_not_taken_away(cluster: Cluster, topic: str, count: int) -> None:
    with pytest.raises(InvalidTopic):
        topics.alter(cluster, topic, partitions=count)
    assert len(topics.describe(cluster, [topic])[0].partitions) == 3


def test_configs_are_set_and_put_back(cluster: Cluster, topic: str) -> None:
    topics.alter(cluster, topic, configs={"retention.ms": "1000", "segment.ms": "2000"})
    wait_for_configs(cluster, topic, {"retention.ms": "1000", "segment.ms": "2000"})
    topics.alter(cluster, topic, reset=["retention.ms"])
    wait_for_configs(cluster, topic, {"segment.ms": "2000"})


def test_deleted_topics_are_gone(cluster: Cluster, topic: str, lane: str) -> None:
    topics.delete(cluster, [topic, lane, topic])
    assert not {topic, lane} & cluster.connect().topics.keys()


@pytest.mark.parametrize("act", [topics.describe, topics.delete])
def test_unknown_topics(cluster: Cluster, topic: str, act: Callable[..., object]) -> None:
    with pytest.raises(UnknownTopic) as raised:
        act(cluster, [topic, f"{topic}x"])
    assert raised.value.condition == "kafka.topic-unknown"
    assert topic in (raised.value.hint or "")
    assert topic in cluster.connect().topics


def test_an_unknown_topic_is_not_changed(cluster: Cluster, name: str) -> None:
    with pytest.raises(UnknownTopic):
        topics.alter(cluster, name, partitions=3)
    assert name not in cluster.connect().topics


@pytest.mark.parametrize("partition", [-1, 3])
def test_unknown_partitions(cluster: Cluster, topic: str, partition: int) -> None:
    with pytest.raises(UnknownTopic):
        topics.require(cluster.connect(), topic, partition)


def test_ensure_makes_a_topic_once(cluster: Cluster, name: str) -> None:
    assert topics.ensure(cluster, name, 2)
    assert not topics.ensure(cluster, name, 7)
    assert len(topics.describe(cluster, [name])[0].partitions) == 2


def test_ensure_by_several_at_once_makes_it_once(cluster: Cluster, name: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: topics.ensure(cluster, name, 2), range(4)))
    assert sorted(made) == [False, False, False, True]


def test_ensure_refuses_an_illegal_name(cluster: Cluster) -> None:
    with pytest.raises(InvalidTopic):
        topics.ensure(cluster, "a b")


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 0),
        ("latest", 3),
        (0, 0),
        (2, 2),
        (3, 3),
        (at(MOMENT), 0),
        (at(MOMENT + 1), 1),
        (at(MOMENT + 2000), 2),
        (at(MOMENT + 2001), 3),
        (datetime(1960, 1, 1, tzinfo=UTC), 0),
        (at(-1), 0),
        (datetime.now(UTC) + timedelta(days=1), 3),
    ],
)
def test_places_become_offsets(
    cluster: Cluster, lane: str, put: Callable[..., object], to: str | int | datetime, offset: int
) -> None:
    put(lane, *(Record(b"v", timestamp=MOMENT + seconds * 1000) for seconds in range(3)))
    assert offsets.resolve(cluster, [TopicPartition(lane, 0)], to) == {(lane, 0): offset}


@pytest.mark.parametrize("offset", [1, 99])
def test_an_offset_that_is_not_there(cluster: Cluster, lane: str, offset: int) -> None:
    with pytest.raises(InvalidOption) as raised:
        offsets.resolve(cluster, [TopicPartition(lane, 0)], offset)
    assert raised.value.hint
