"""Kafka as a client sees it: clusters and security, topics, consumers and producers, groups, transactions."""
