"""KafkaUtils on a real broker: direct streams, receiver style, RDDs of ranges, with exact results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from dstreams.records import pour
from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.dstreams import KafkaMessageAndMetadata, KafkaUtils, OffsetRange, TopicAndPartition
from millrace.dstreams.kafka import KafkaRDD
from millrace.errors import BadRecord, InvalidOption, OffsetsGone, RunError, SourceLocation, UnknownTopic
from millrace.errors.transport import from_transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext

Running = Callable[[Callable[[], object]], None]


def params(cluster: Cluster, **more: str) -> dict[str, str]:
    """kafkaParams as of old."""
    return {"metadata.broker.list": cluster.bootstrap, "auto.offset.reset": "smallest", **more}


def test_a_direct_stream_reads_everything_once_and_follows_new_partitions(
    ssc: StreamingContext, cluster: Cluster, topic: str, running: Running
) -> None:
    for partition in range(3):
        pour(cluster, topic, [f"{partition}-{number}" for number in range(20)], partition)
    got: list[tuple[str, str]] = []
    ranges: list[list[OffsetRange]] = []
    stream = KafkaUtils.createDirectStream(ssc, [topic], params(cluster))
    stream.foreachRDD(lambda rdd: ranges.append(rdd.offsetRanges()))
    stream.foreachRDD(lambda _, rdd: got.extend(rdd.collect()))
    running(lambda: len(got) >= 60)
    topics.alter(cluster, topic, partitions=4)
    pour(cluster, topic, ["new"], 3)
    running_on = iter(range(600))
    while len(got) < 61 and next(running_on, None) is not None:
        ssc.awaitTerminationOrTimeout(0.1)
    wanted = [(str(number), f"{partition}-{number}") for partition in range(3) for number in range(20)]
    assert sorted(got) == sorted([*wanted, ("0", "new")])
    assert [one.untilOffset for one in ranges[-1]] == [20, 20, 20, 1]
    assert sum(one.count() for batch in ranges for one in batch) == 61


def test_offsets_to_begin_with_a_message_handler_and_ranges_in_transform(
    ssc: StreamingContext, cluster: Cluster, topic: str, running: Running
) -> None:
    for partition in range(2):
        pour(cluster, topic, [f"{partition}-{number}" for number in range(10)], partition)
    seen: list[OffsetRange] = []

    def remember(rdd: Any) -> Any:
        seen.extend(rdd.offsetRanges())
        return rdd

    def handled(one: KafkaMessageAndMetadata) -> tuple[Any, ...]:
        return one.topic, one.partition, one.offset, one.key, one.message

    got: list[tuple[Any, ...]] = []
    start = {TopicAndPartition(topic, 0): 7, TopicAndPartition(topic, 1): 9}
    stream = KafkaUtils.createDirectStream(ssc, [topic], params(cluster), start, messageHandler=handled)
    stream.transform(remember).foreachRDD(lambda rdd: got.extend(rdd.collect()))
    running(lambda: len(got) >= 4)
    wanted = [(topic, 0, number, str(number), f"0-{number}") for number in (7, 8, 9)]
    assert sorted(got) == [*wanted, (topic, 1, 9, "9", "1-9")]
    assert OffsetRange(topic, 0, 7, 10) in seen
    assert OffsetRange(topic, 1, 9, 10) in seen
    assert {one.partition for one in seen} == {0, 1}  # the third was not named


def test_a_rate_limit_holds_in_every_batch(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running
) -> None:
    conf = ssc.sparkContext._conf
    conf.set("spark.streaming.kafka.maxRatePerPartition", "25")
    try:
        pour(cluster, lane, [str(number) for number in range(18)])
        sizes: list[int] = []
        got: list[str] = []
        stream = KafkaUtils.createDirectStream(ssc, [lane], params(cluster))
        stream.foreachRDD(lambda rdd: sizes.append(sum(one.count() for one in rdd.offsetRanges())))
        stream.map(lambda record: record[1]).foreachRDD(lambda rdd: got.extend(rdd.collect()))
        running(lambda: len(got) >= 18)
    finally:
        conf.set("spark.streaming.kafka.maxRatePerPartition", "0")
    assert got == [str(number) for number in range(18)]
    assert [size for size in sizes if size] == [5, 5, 5, 3]


def test_receiver_style_streams_share_a_group_and_commit_what_is_done(
    ssc: StreamingContext, cluster: Cluster, topic: str, running: Running
) -> None:
    for partition in range(3):
        pour(cluster, topic, ["a", "b"], partition)
    got: list[tuple[str, str]] = []
    group = f"group-of-{topic}"
    reset = {"auto.offset.reset": "smallest"}
    streams = [KafkaUtils.createStream(ssc, cluster.bootstrap, group, {topic: 1}, reset) for _ in range(2)]
    ssc.union(*streams).foreachRDD(lambda rdd: got.extend(rdd.collect()))
    running(lambda: len(got) >= 6)
    done = {(topic, partition): 2 for partition in range(3)}
    running_on = iter(range(600))
    while consumer_groups.committed(cluster, group) != done and next(running_on, None) is not None:
        ssc.awaitTerminationOrTimeout(0.1)
    assert sorted(got) == [("0", "a")] * 3 + [("1", "b")] * 3
    assert consumer_groups.committed(cluster, group) == done


def test_a_stream_for_which_no_partition_is_left_does_not_end_the_program(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running
) -> None:
    pour(cluster, lane, ["a", "b"])
    group = f"group-of-{lane}"
    reset = {"auto.offset.reset": "smallest"}
    streams = [KafkaUtils.createStream(ssc, cluster.bootstrap, group, {lane: 1}, reset) for _ in range(2)]
    got: list[tuple[str, str]] = []
    ssc.union(*streams).foreachRDD(lambda rdd: got.extend(rdd.collect()))
    running(lambda: consumer_groups.committed(cluster, group) == {(lane, 0): 2})
    assert sorted(got) == [("0", "a"), ("1", "b")]


def test_ranges_keep_their_order_also_when_a_partition_is_named_twice(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    for partition in range(2):
        pour(cluster, topic, [f"{partition}-{number}" for number in range(10)], partition)
    ranges = [OffsetRange(topic, 0, 4, 6), OffsetRange(topic, 1, 0, 1), OffsetRange(topic, 0, 0, 2)]
    rdd = KafkaUtils.createRDD(spark.sparkContext, params(cluster), ranges)
    assert rdd.offsetRanges() == ranges
    assert rdd.values().collect() == ["0-4", "0-5", "1-0", "0-0", "0-1"]
    with pytest.raises(OffsetsGone):
        KafkaUtils.createRDD(spark.sparkContext, params(cluster), [OffsetRange(topic, 0, 0, 11)])
    with pytest.raises(UnknownTopic):
        KafkaUtils.createRDD(spark.sparkContext, params(cluster), [OffsetRange(topic, 7, 0, 1)])


def test_ranges_that_are_not_known_any_more_do_not_pass_for_none(spark: SparkSession) -> None:
    forgotten = KafkaRDD(spark.sparkContext.parallelize([1]), None)
    with pytest.raises(RunError, match="no longer known"):
        forgotten.offsetRanges()


def test_what_is_wrong_is_said_when_the_stream_is_made(ssc: StreamingContext, cluster: Cluster, lane: str) -> None:
    with pytest.raises(UnknownTopic):
        KafkaUtils.createDirectStream(ssc, [f"{lane}x"], params(cluster))
    with pytest.raises(UnknownTopic):
        KafkaUtils.createStream(ssc, cluster.bootstrap, "group", {f"{lane}x": 1})
    with pytest.raises(OffsetsGone):
        KafkaUtils.createDirectStream(ssc, [lane], params(cluster), {TopicAndPartition(lane, 0): 5})
    with pytest.raises(InvalidOption):
        KafkaUtils.createDirectStream(ssc, [lane], params(cluster, **{"auto.offset.reset": "sometimes"}))
    with pytest.raises(TypeError):
        KafkaUtils.createDirectStream(ssc, lane, params(cluster))  # type: ignore[arg-type]


def test_a_decoder_that_raises_names_the_record(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running
) -> None:
    pour(cluster, lane, ["good", b"\xff", "good"])
    KafkaUtils.createDirectStream(ssc, [lane], params(cluster)).foreachRDD(lambda rdd: rdd.count())
    with pytest.raises(BadRecord, match=f"offset 1 of partition 0 of '{lane}'") as raised:
        running(lambda: False)
    assert "UnicodeDecodeError" in str(raised.value.why)


def test_a_decoder_of_the_program_that_raises_is_shown_with_its_place(
    spark: SparkSession, cluster: Cluster, lane: str
) -> None:
    def decoder(raw: bytes | None) -> int:
        return int(raw or 0)

    pour(cluster, lane, ["1", "two"])
    ranges = [OffsetRange(lane, 0, 0, 2)]
    rdd = KafkaUtils.createRDD(spark.sparkContext, params(cluster), ranges, valueDecoder=decoder)
    with pytest.raises(Exception, match="the value decoder raised for the record at offset 1 of partition 0") as raised:
        rdd.collect()
    error = from_transport(str(raised.value))
    assert error
    assert error.place == SourceLocation(__file__, decoder.__code__.co_firstlineno + 1)


def test_records_that_retention_has_deleted_end_the_program(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running
) -> None:
    from confluent_kafka import TopicPartition

    pour(cluster, lane, [str(number) for number in range(10)])
    KafkaUtils.createDirectStream(ssc, [lane], params(cluster)).foreachRDD(lambda rdd: rdd.count())
    done = cluster.admin().delete_records([TopicPartition(lane, 0, 4)])
    for one in done.values():
        one.result()
    with pytest.raises(OffsetsGone, match="begins at 4, offset 0 is wanted"):
        running(lambda: False)
