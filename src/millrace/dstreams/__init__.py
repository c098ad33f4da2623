"""The RDD-era API on today's Spark: streams from outside into DStreams."""

from millrace.dstreams.kafka import KafkaUtils
from millrace.dstreams.kafka_types import Broker, KafkaMessageAndMetadata, OffsetRange, TopicAndPartition, utf8_decoder
from millrace.dstreams.kinesis import InitialPositionInStream, KinesisUtils, MetricsLevel

__all__ = [
    "Broker",
    "InitialPositionInStream",
    "KafkaMessageAndMetadata",
    "KafkaUtils",
    "KinesisUtils",
    "MetricsLevel",
    "OffsetRange",
    "TopicAndPartition",
    "utf8_decoder",
]
