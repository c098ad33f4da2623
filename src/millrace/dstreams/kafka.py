"""KafkaUtils of PySpark 2.4 on today's Spark: direct streams, receiver-style streams and RDDs of offset ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.storagelevel import StorageLevel
from pyspark.streaming import StreamingContext
from pyspark.streaming.dstream import DStream, TransformedDStream

from millrace.clients.kafka import consumer_groups, offsets
from millrace.clients.kafka import topics as kafka_topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.dstreams import context_tracker
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_rdd import Handler, RddDecoder, read_ranges
from millrace.dstreams.kafka_source import KafkaStreamSource, Sharing, ranges_of
from millrace.dstreams.kafka_types import Broker, Decoder, OffsetRange, TopicAndPartition, utf8_decoder
from millrace.dstreams.source import DStreamBatch, stream_of
from millrace.errors import GroupInUse, InvalidOption, OffsetsGone, RunError

_GROUPS = "_millrace_groups"


class KafkaUtils:
    """Streams and RDDs of Kafka topics."""

    @staticmethod
    def createDirectStream(  # noqa: N802
        ssc: StreamingContext,
        topics: list[str],
        kafkaParams: Mapping[str, object],  # noqa: N803
        fromOffsets: Mapping[TopicAndPartition, int] | None = None,  # noqa: N803
        keyDecoder: Decoder = utf8_decoder,  # noqa: N803
        valueDecoder: Decoder = utf8_decoder,  # noqa: N803
        messageHandler: Handler | None = None,  # noqa: N803
    ) -> KafkaDStream:
        """Return a stream whose batches read offset ranges straight from the brokers; each batch knows its ranges.

        A repeated batch reads the same records. State is exact across restarts from a checkpoint; outputs of batches
        that were running are repeated.
        """
        _check_type(topics, list, "topics")
        _check_type(kafkaParams, dict, "kafkaParams")
        parameters = Parameters.of(kafkaParams)
        cluster = parameters.cluster()
        partitions = _partitions(cluster, topics)
        wanted = {(key.topic, key.partition): int(offset) for key, offset in (fromOffsets or {}).items()}
        if wanted:
            _check_start_offsets(cluster, topics, wanted)
        start = wanted or _start_offsets(cluster, partitions, parameters)
        decoder = RddDecoder(keyDecoder, valueDecoder, messageHandler)
        source = KafkaStreamSource(parameters, topics, start, decoder, without=set(partitions) - set(start))
        return KafkaDStream(stream_of(ssc, source), source)

    @staticmethod
    def createStream(  # noqa: N802
        ssc: StreamingContext,
        zkQuorum: str,  # noqa: N803
        groupId: str,  # noqa: N803
        topics: Mapping[str, int],
        kafkaParams: Mapping[str, object] | None = None,  # noqa: N803
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,  # noqa: N803
        keyDecoder: Decoder = utf8_decoder,  # noqa: N803
        valueDecoder: Decoder = utf8_decoder,  # noqa: N803
    ) -> DStream[Any]:
        """Return a stream that resumes at its consumer group's offsets and commits completed batches: at least once.

        Kafka has no ZooKeeper any more: `zkQuorum` names the brokers. Streams of one group share the partitions. The
        number of threads of a topic and the storage level have no effect: the executors read the brokers directly.
        """
        del storageLevel
        _check_type(topics, dict, "topics")
        parameters = Parameters.of(kafkaParams or {}, zkQuorum)
        cluster = parameters.cluster()
        partitions = _partitions(cluster, list(topics))
        consumer_groups.check_name(groupId)
        if consumer_groups.members(cluster, groupId):
            hint = "stop the others, or choose another group: a group is read by one program"
            raise GroupInUse(f"the group {groupId!r} has members", hint=hint)
        start = _start_offsets(cluster, partitions, parameters) | _committed_offsets(cluster, groupId, partitions)
        source = KafkaStreamSource(parameters, list(topics), start, RddDecoder(keyDecoder, valueDecoder), group=groupId)
        # The streams of one group divide the partitions: programs union several streams to read faster.
        groups: dict[str | None, Sharing] = ssc.__dict__.setdefault(_GROUPS, {})
        source.sharing = groups.setdefault(groupId, {})
        for topic in topics:
            source.sharing.setdefault(topic, []).append(source.stream)
        return stream_of(ssc, source)

    @staticmethod
    def createRDD(  # noqa: N802
        sc: SparkContext,
        kafkaParams: Mapping[str, object],  # noqa: N803
        offsetRanges: Sequence[OffsetRange],  # noqa: N803
        leaders: Mapping[TopicAndPartition, Broker] | None = None,
        keyDecoder: Decoder = utf8_decoder,  # noqa: N803
        valueDecoder: Decoder = utf8_decoder,  # noqa: N803
        messageHandler: Handler | None = None,  # noqa: N803
    ) -> KafkaRDD:
        """Return the records of offset ranges. `leaders` has no effect: the client finds them."""
        del leaders
        _check_type(kafkaParams, dict, "kafkaParams")
        _check_type(offsetRanges, list, "offsetRanges")
        parameters = Parameters.of(kafkaParams)
        _check_ranges(parameters.cluster(), offsetRanges)
        session = DStreamBatch(0, 0.0, sc).session()
        records = read_ranges(session, parameters, offsetRanges, RddDecoder(keyDecoder, valueDecoder, messageHandler))
        return KafkaRDD(records, list(offsetRanges))


class KafkaRDD(RDD[Any]):  # type: ignore[misc]
    """An RDD that knows which offsets it was read from."""

    def __init__(self, records: RDD[Any], ranges: list[OffsetRange] | None) -> None:
        super().__init__(records._jrdd, records.ctx, records._jrdd_deserializer)
        self._ranges = ranges

    def offsetRanges(self) -> list[OffsetRange]:  # noqa: N802
        """Return the ranges in the order in which they were given; those of a stream by topic and partition."""
        if self._ranges is None:  # an empty list would mean a batch that read nothing
            hint = "call it inside foreachRDD or transform, before the context is stopped"
            raise RunError("the offsets of this batch are no longer known", hint=hint)
        return list(self._ranges)


class KafkaDStream(DStream[Any]):  # type: ignore[misc]
    """A direct stream: the first operation on it gets RDDs that know their offsets."""

    def __init__(self, records: DStream[Any], source: KafkaStreamSource) -> None:
        super().__init__(records._jdstream, records._ssc, records._jrdd_deserializer)
        self._source = source

    def foreachRDD(self, func: Callable[..., None]) -> None:  # noqa: N802
        """Call a function for each batch, with its RDD, or with its time and its RDD."""
        super().foreachRDD(_with_kafka_rdd(func, self._source))

    def transform(self, func: Callable[..., RDD[Any]]) -> KafkaTransformedDStream:
        """Return a stream of what a function returns for each batch's RDD, or for its time and its RDD."""
        return KafkaTransformedDStream(self, _with_kafka_rdd(func, self._source))


class KafkaTransformedDStream(TransformedDStream[Any]):  # type: ignore[misc]
    """The result of `transform` of a direct stream."""


def _with_kafka_rdd(func: Callable[..., Any], source: KafkaStreamSource) -> Callable[[datetime, RDD[Any]], Any]:
    rdd_only = func.__code__.co_argcount == 1

    def called(time: datetime, records: RDD[Any]) -> Any:
        batch_input = context_tracker.batch_input(source, time)
        rdd = KafkaRDD(records, None if batch_input is None else ranges_of(batch_input))
        return func(rdd) if rdd_only else func(time, rdd)

    return called


def _check_type(given: object, kind: type, name: str) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{name} should be {kind.__name__}")


def _partitions(cluster: Cluster, names: Sequence[str]) -> list[PartitionId]:
    metadata = cluster.connect()
    for name in names:
        kafka_topics.require(metadata, name)
    return [(name, partition) for name in names for partition in metadata.topics[name].partitions]


def _start_offsets(cluster: Cluster, partitions: Sequence[PartitionId], parameters: Parameters) -> offsets.Offsets:
    wanted = [TopicPartition(*partition) for partition in partitions]
    spec = OffsetSpec.earliest() if parameters.reset == "earliest" else OffsetSpec.latest()
    return offsets.list_offsets(cluster, wanted, spec, committed=parameters.committed)


def _committed_offsets(cluster: Cluster, group: str, partitions: Sequence[PartitionId]) -> dict[PartitionId, int]:
    committed = consumer_groups.committed(cluster, group) if group in consumer_groups.names(cluster) else {}
    return {partition: offset for partition, offset in committed.items() if partition in partitions}


def _check_start_offsets(cluster: Cluster, names: list[str], wanted: Mapping[PartitionId, int]) -> None:
    if {topic for topic, _ in wanted} != set(names):
        raise InvalidOption("fromOffsets has other topics than topics", hint=f"name offsets of {', '.join(names)}")
    for (topic, partition), offset in wanted.items():
        if offset < 0:
            what = f"fromOffsets: partition {partition} of {topic!r} cannot begin at {offset}"
            hint = "offsets begin at 0; auto.offset.reset says smallest or largest where none is named"
            raise InvalidOption(what, hint=hint)
    _check_ranges(cluster, [OffsetRange(*partition, offset, offset) for partition, offset in wanted.items()])


def _check_ranges(cluster: Cluster, ranges: Sequence[OffsetRange]) -> None:
    metadata = cluster.connect()
    for range_ in ranges:
        kafka_topics.require(metadata, range_.topic, range_.partition)
        if not 0 <= range_.fromOffset <= range_.untilOffset:
            raise InvalidOption(f"{range_} is no range", hint="fromOffset comes first, and neither is negative")
    wanted = [TopicPartition(*partition) for partition in {(range_.topic, range_.partition) for range_ in ranges}]
    first = offsets.list_offsets(cluster, wanted, OffsetSpec.earliest())
    end = offsets.list_offsets(cluster, wanted, OffsetSpec.latest())
    for range_ in ranges:
        partition = range_.topic, range_.partition
        if range_.fromOffset < first[partition] or range_.untilOffset > end[partition]:
            raise OffsetsGone(
                f"partition {range_.partition} of {range_.topic!r} has offsets {first[partition]} to {end[partition]}, "
                f"{range_.fromOffset} to {range_.untilOffset} are wanted",
                why="Kafka deleted the others" if range_.fromOffset < first[partition] else "they are not written yet",
                hint="name offsets that exist",
            )
