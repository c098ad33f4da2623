"""Kafka: topics as a source and as a sink on Spark, and as a sink for the records of feeds."""

from millrace.connectors.kafka.sink import KafkaSink, KafkaWriter
from millrace.connectors.kafka.source import KafkaReader

__all__ = ["KafkaReader", "KafkaSink", "KafkaWriter"]
