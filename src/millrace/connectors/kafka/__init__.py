"""Kafka: topics as a source and as a sink on Spark, and as a sink for the records of feeds."""

from millrace.connectors.kafka.sink import KafkaRecordSink, KafkaSink
from millrace.connectors.kafka.source import KafkaSource

__all__ = ["KafkaRecordSink", "KafkaSink", "KafkaSource"]
