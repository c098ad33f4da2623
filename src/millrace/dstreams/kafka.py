"""KafkaUtils as PySpark had it until 2.4: direct streams, receiver-style streams and RDDs of ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.core.rdd import RDD
from pyspark.storagelevel import StorageLevel
from pyspark.streaming.dstream import DStream, TransformedDStream

from millrace.clients.kafka import consumer_groups, offsets
from millrace.clients.kafka import topics as kafka_topics
from millrace.clients.kafka.cluster import Cluster
from millrace.dstreams import context_tracker
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_rdd import Handler, RddDecoder, read_ranges
from millrace.dstreams.kafka_source import KafkaStreamSource, Sharing, ranges_of
from millrace.dstreams.kafka_types import Broker, Decoder, OffsetRange, Place, TopicAndPartition, utf8_decoder
from millrace.dstreams.source import DStreamBatch, stream_of
from millrace.errors import GroupInUse, InvalidOption, OffsetsGone, RunError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.streaming import StreamingContext

_SHARED = "_millrace_groups"


class KafkaUtils:
    """Streams and RDDs of Kafka's topics."""

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
        """A stream whose batches read ranges of offsets straight from the brokers; each batch knows its ranges.

        A batch that comes again is the same. State is exact across restarts from a checkpoint; outputs of the batches
        that were under way are repeated.
        """
        _require(topics, list, "topics")
        _require(kafkaParams, dict, "kafkaParams")
        parameters = Parameters.of(kafkaParams)
        cluster = parameters.cluster()
        there = _partitions(cluster, topics)
        wanted = {(one.topic, one.partition): int(at) for one, at in (fromOffsets or {}).items()}
        if wanted:
            _require_offsets(cluster, topics, wanted)
        start = wanted or _starts(cluster, there, parameters)
        decoding = RddDecoder(keyDecoder, valueDecoder, messageHandler)
        inflow = KafkaStreamSource(parameters, topics, start, decoding, without=set(there) - set(start))
        return KafkaDStream(stream_of(ssc, inflow), inflow)

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
        """A stream that goes on where its consumer group is, and commits there what is done: at least once.

        ZooKeeper is no more: `zkQuorum` names the brokers. Streams of one group have the partitions between them. How
        many threads a topic gets, and the storage level, have no effect: the executors read the brokers directly.
        """
        del storageLevel
        _require(topics, dict, "topics")
        parameters = Parameters.of(kafkaParams or {}, zkQuorum)
        cluster = parameters.cluster()
        there = _partitions(cluster, list(topics))
        consumer_groups.check_name(groupId)
        if consumer_groups.members(cluster, groupId):
            hint = "stop the others, or choose another group: a group is read by one program"
            raise GroupInUse(f"the group {groupId!r} has members", hint=hint)
        start = _starts(cluster, there, parameters) | _committed(cluster, groupId, there)
        inflow = KafkaStreamSource(parameters, list(topics), start, RddDecoder(keyDecoder, valueDecoder), group=groupId)
        _share(ssc, inflow)
        return stream_of(ssc, inflow)

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
        """The records of ranges of offsets. The leaders are found anyway: who is named there has no effect."""
        del leaders
        _require(kafkaParams, dict, "kafkaParams")
        _require(offsetRanges, list, "offsetRanges")
        parameters = Parameters.of(kafkaParams)
        _require_ranges(parameters.cluster(), offsetRanges)
        session = DStreamBatch(0, 0.0, sc).session()
        made = read_ranges(session, parameters, offsetRanges, RddDecoder(keyDecoder, valueDecoder, messageHandler))
        return KafkaRDD(made, list(offsetRanges))


class KafkaRDD(RDD[Any]):  # type: ignore[misc]
    """An RDD that knows which offsets it was read from."""

    def __init__(self, records: RDD[Any], ranges: list[OffsetRange] | None) -> None:
        super().__init__(records._jrdd, records.ctx, records._jrdd_deserializer)
        self._ranges = ranges

    def offsetRanges(self) -> list[OffsetRange]:  # noqa: N802
        """The ranges, in the order in which they were given; those of a stream by topic and partition."""
        if self._ranges is None:  # none at all would pass for a batch that read nothing
            hint = "ask inside foreachRDD or transform, before the context is stopped"
            raise RunError("it is not known any more which offsets this batch has", hint=hint)
        return list(self._ranges)


class KafkaDStream(DStream[Any]):  # type: ignore[misc]
    """A direct stream: what is called on it first sees RDDs that know their offsets."""

    def __init__(self, records: DStream[Any], inflow: KafkaStreamSource) -> None:
        super().__init__(records._jdstream, records._ssc, records._jrdd_deserializer)
        self._inflow = inflow

    def foreachRDD(self, func: Callable[..., None]) -> None:  # noqa: N802
        """Call a function for each batch, with its RDD or with its time and its RDD."""
        super().foreachRDD(_knowing(func, self._inflow))

    def transform(self, func: Callable[..., RDD[Any]]) -> KafkaTransformedDStream:
        """A stream of what a function makes of each batch's RDD, or of its time and its RDD."""
        return KafkaTransformedDStream(self, _knowing(func, self._inflow))


class KafkaTransformedDStream(TransformedDStream[Any]):  # type: ignore[misc]
    """What `transform` of a direct stream gives."""


def _knowing(func: Callable[..., Any], inflow: KafkaStreamSource) -> Callable[[datetime, RDD[Any]], Any]:
    """The function with a KafkaRDD for its RDD."""
    alone = func.__code__.co_argcount == 1

    def called(time: datetime, records: RDD[Any]) -> Any:
        note = context_tracker.note_of(inflow, time)
        known = KafkaRDD(records, None if note is None else ranges_of(note))
        return func(known) if alone else func(time, known)

    return called


def _require(given: object, kind: type, name: str) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{name} should be {kind.__name__}")


def _partitions(cluster: Cluster, names: Sequence[str]) -> list[Place]:
    metadata = cluster.connect()
    for name in names:
        kafka_topics.require(metadata, name)
    return [(name, partition) for name in names for partition in metadata.topics[name].partitions]


def _starts(cluster: Cluster, there: Sequence[Place], parameters: Parameters) -> dict[Place, int]:
    wanted = [TopicPartition(*place) for place in there]
    spec = OffsetSpec.earliest() if parameters.reset == "earliest" else OffsetSpec.latest()
    return offsets.ask(cluster, wanted, spec, committed=parameters.committed)


def _committed(cluster: Cluster, group: str, there: Sequence[Place]) -> dict[Place, int]:
    if group not in consumer_groups.names(cluster):
        return {}
    return {place: at for place, at in consumer_groups.committed(cluster, group).items() if place in there}


def _share(ssc: StreamingContext, inflow: KafkaStreamSource) -> None:
    """Programs make several streams of one group to read faster, and union them: each has its share."""
    shared: dict[str | None, Sharing] = ssc.__dict__.setdefault(_SHARED, {})
    inflow.sharing = shared.setdefault(inflow.group, {})
    for topic in inflow.topics:
        inflow.sharing.setdefault(topic, []).append(inflow.stream)


def _require_offsets(cluster: Cluster, names: list[str], wanted: Mapping[Place, int]) -> None:
    if {topic for topic, _ in wanted} != set(names):
        raise InvalidOption("fromOffsets has other topics than topics", hint=f"name offsets of {', '.join(names)}")
    for (topic, partition), at in wanted.items():
        if at < 0:
            raise InvalidOption(
                f"fromOffsets: partition {partition} of {topic!r} cannot begin at {at}",
                hint="offsets begin at 0; auto.offset.reset says smallest or largest where none is named",
            )
    ranges = [OffsetRange(*place, at, at) for place, at in wanted.items()]
    _require_ranges(cluster, ranges)


def _require_ranges(cluster: Cluster, ranges: Sequence[OffsetRange]) -> None:
    metadata = cluster.connect()
    for one in ranges:
        kafka_topics.require(metadata, one.topic, one.partition)
        if not 0 <= one.fromOffset <= one.untilOffset:
            raise InvalidOption(f"{one} is no range", hint="fromOffset comes first, and neither is negative")
    wanted = [TopicPartition(*place) for place in {(one.topic, one.partition) for one in ranges}]
    first = offsets.ask(cluster, wanted, OffsetSpec.earliest())
    end = offsets.ask(cluster, wanted, OffsetSpec.latest())
    for one in ranges:
        place = one.topic, one.partition
        if one.fromOffset < first[place] or one.untilOffset > end[place]:
            raise OffsetsGone(
                f"partition {one.partition} of {one.topic!r} has offsets {first[place]} to {end[place]}, "
                f"{one.fromOffset} to {one.untilOffset} are wanted",
                why="Kafka deleted what was before" if one.fromOffset < first[place] else "they are not written yet",
                hint="name offsets that are there",
            )
