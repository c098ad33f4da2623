"""Topics as Spark asks for them, batch by batch: what is in the next one, and what each task reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millrace.clients.kafka import bulk_fetch, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.kafka.bulk_source import BulkSourceSpec, KafkaStreamReader, bulk_data_source
from millrace.errors.transport import TransportedError

ALL = ReadAllAvailable()


def send(cluster: Cluster, topic: str, *counts: int) -> None:
    """So many records for each partition."""
    producer = Producer(cluster, topic)
    producer.send(
        [Record(b"%d" % one, partition=number) for number, count in enumerate(counts) for one in range(count)]
    )
    producer.close()


def values(reader: KafkaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[str, list[bytes]]:
    """What tasks read, by what they say that they read."""
    tasks = pickle.loads(pickle.dumps((reader, reader.partitions(start, end))))  # noqa: S301
    return {
        part.task_input: [value for batch in tasks[0].read(part) for value in batch.column("value").to_pylist()]
        for part in tasks[1]
    }


def test_batches_follow_each_other(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 3, 2, 0)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {topic: {"0": 1}}, (topic,)))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 3, "1": 2, "2": 0}} == reader.reportLatestOffset()
    assert values(reader, start, end) == {f"{topic}/0 1-3": [b"1", b"2"], f"{topic}/1 0-2": [b"0", b"1"]}
    send(cluster, topic, 0, 0, 1)
    after = reader.latestOffset(end, ALL)
    assert values(reader, end, after) == {f"{topic}/2 0-1": [b"0"]}


def test_a_batch_has_no_more_than_it_may(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 60, 30, 1)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), most=45))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(45)
    assert reader.latestOffset({}, limit) == {topic: {"0": 29, "1": 14, "2": 1}}
    assert reader.reportLatestOffset() == {topic: {"0": 60, "1": 30, "2": 1}}


def test_what_comes_later_is_left_where_only_what_is_there_is_wanted(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 1, 1, 1)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,)))
    reader.prepareForTriggerAvailableNow()
    send(cluster, topic, 1, 1, 1)
    assert reader.latestOffset({}, ALL) == {topic: {"0": 1, "1": 1, "2": 1}}


@pytest.mark.long
def test_also_then_a_topic_that_is_shorter_or_gone_is_told(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_fetch, "FETCH_TIMEOUT_S", 0.0)
    for start in ({topic: {"0": 9}}, {topic: {"9": 1}}, {"another": {"0": 1}}):
        reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,)))
        reader.prepareForTriggerAvailableNow()
        with pytest.raises(TransportedError, match="OffsetsGone"):
            reader.latestOffset(start, ALL)
    goes_on = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), skip_lost=True))
    goes_on.prepareForTriggerAvailableNow()
    assert goes_on.latestOffset({topic: {"9": 1}}, ALL)[topic]["9"] == 1


def test_a_batch_of_sparks_own_source_is_read_to_the_end_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int, int]] = []

    def fetch(cluster: Cluster, span: bulk_fetch.FetchRange, **options: bool) -> Iterator[Any]:
        read.append((span.partition, span.start, span.stop))
        return iter(())

    monkeypatch.setattr("millrace.connectors.kafka.bulk_source.fetch_records", fetch)
    until = {"t": {"0": 100, "1": 50}}
    reader = KafkaStreamReader(BulkSourceSpec(Cluster("none:1"), {}, ("t",), until=until))
    start, planned = {"t": dict.fromkeys("012", 50)}, {"t": dict.fromkeys("012", 180)}
    # Its tasks are those of the batch that was begun; only what they read ends earlier.
    assert values(reader, start, planned) == {f"t/{number} 50-180": [] for number in range(3)}
    assert read == [(0, 50, 100), (1, 50, 50), (2, 50, 0)]


def test_a_pattern_without_topics_ends_at_once_where_only_what_is_there_is_wanted(cluster: Cluster, topic: str) -> None:
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, pattern=f"{topic}-no-.*"))
    reader.prepareForTriggerAvailableNow()
    topics.create(cluster, f"{topic}-no-more", 1)
    assert reader.latestOffset({}, ALL) == {}


def test_topics_by_a_pattern_and_partitions_that_are_new(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.connectors.kafka.bulk_source._LOOK_INTERVAL_S", 0.0)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, pattern=f"{topic}.*"))
    assert set(reader.latestOffset({}, ALL)) == {topic}
    topics.create(cluster, f"{topic}-more", 1)
    topics.alter(cluster, topic, partitions=4)
    assert reader.latestOffset({}, ALL) == {topic: dict.fromkeys("0123", 0), f"{topic}-more": {"0": 0}}


def test_only_some_partitions(cluster: Cluster, topic: str) -> None:
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), only={topic: [1]}))
    assert reader.latestOffset({}, ALL) == {topic: {"1": 0}}


def test_a_topic_that_is_shorter_or_gone_is_told(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_fetch, "FETCH_TIMEOUT_S", 0.0)
    start = {topic: {"0": 9}}
    with pytest.raises(TransportedError, match="the query is at offset 9, the topic ends at 0"):
        KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,))).latestOffset(start, ALL)
    goes_on = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), skip_lost=True))
    assert goes_on.latestOffset(start, ALL) == {topic: {"0": 0, "1": 0, "2": 0}}
    with pytest.raises(TransportedError, match=f"are gone: {topic}-9"):
        KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,))).latestOffset({topic: {"9": 1}}, ALL)


def test_records_that_are_gone_are_told_by_the_task(cluster: Cluster, lane: str) -> None:
    send(cluster, lane, 5)
    next(iter(cluster.admin().delete_records([TopicPartition(lane, 0, 2)]).values())).result(30)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (lane,)))
    with pytest.raises(TransportedError, match="offsets 0 to 1 are gone"):
        values(reader, {}, reader.latestOffset({}, ALL))


def test_every_column(cluster: Cluster, lane: str) -> None:
    producer = Producer(cluster, lane)
    producer.send([Record(b"v", b"k", headers=(("h", b"1"),)), Record(None)])
    producer.close()
    names = ("value", "key", "topic", "partition", "offset", "headers")
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (lane,), columns=names))
    part = reader.partitions({}, reader.latestOffset({}, ALL))[0]
    assert [row for batch in reader.read(part) for row in batch.to_pylist()] == [
        dict(zip(names, (b"v", b"k", lane, 0, 0, [{"key": "h", "value": b"1"}]), strict=True)),
        dict(zip(names, (None, None, lane, 0, 1, None), strict=True)),
    ]


def test_the_same_topics_may_be_read_twice_at_once(cluster: Cluster) -> None:
    following = BulkSourceSpec(cluster, {}, ("a",))
    assert bulk_data_source(following).name() != bulk_data_source(following).name()
