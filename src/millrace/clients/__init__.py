"""Kafka as a client sees it, on confluent-kafka: an address, topics, records in and out, groups."""
