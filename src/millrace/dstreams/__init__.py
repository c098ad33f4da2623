"""The RDD-era API on today's Spark: streams from outside into DStreams."""

from millrace.dstreams.kafka import KafkaUtils
from millrace.dstreams.offsets import Broker, KafkaMessageAndMetadata, OffsetRange, TopicAndPartition, utf8_decoder

__all__ = ["Broker", "KafkaMessageAndMetadata", "KafkaUtils", "OffsetRange", "TopicAndPartition", "utf8_decoder"]
