"""KafkaUtils and KinesisUtils of PySpark 2.4 for DStream programs on today's Spark."""

from millrace.dstreams.kafka import KafkaUtils
from millrace.dstreams.kafka_types import Broker, KafkaMessageAndMetadata, OffsetRange, TopicAndPartition, utf8_decoder
from millrace.dstreams.kinesis import InitialPositionInStream, KinesisUtils, MetricsLevel
from millrace.dstreams.pickle_names import register_old_names

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

register_old_names()
