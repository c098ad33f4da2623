"""Reads a topic and counts its records; when nothing more comes, writes their number."""

import os

from confluent_kafka import Consumer, Producer

address = {"bootstrap.servers": os.environ["BOOTSTRAP"]}
consumer = Consumer({**address, "group.id": "bare", "auto.offset.reset": "earliest", "enable.auto.commit": False})
consumer.subscribe([os.environ["SOURCE"]])
producer = Producer({**address, "linger.ms": 0})
seen = told = 0
while True:
    batch = consumer.consume(10_000, 0.1)
    seen += len(batch)
    if not batch and seen > told:
        producer.produce(os.environ["TARGET"], b'{"seen":%d}' % seen)
        producer.flush()
        told = seen
