"""A partition's leader is killed with -9 while records are written: every record is there once, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

RECORDS = 200_000
KEYS = 50
BATCH = 1_000


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three nodes, each broker and controller."""
    service = KafkaCluster(tmp_path, KafkaClusterOptions(brokers=3, heap="320m"))
    service.start()
    yield service
    service.stop()


def leader(cluster: Cluster, topic: str) -> int:
    """Who leads the topic's only partition now."""
    return cluster.connect().topics[topic].partitions[0].leader


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition, giving up after two minutes."""
    pause = threading.Event()
    for _ in range(1200):
        if holds():
            return
        pause.wait(0.1)
    raise AssertionError(f"never happened: {what}")


@pytest.mark.long
def test_every_record_is_there_once_and_in_order_per_key(three_brokers: KafkaCluster) -> None:
    cluster = three_brokers.cluster()
    topics.create(cluster, "ledger", partitions=1, replication=3)
    first = leader(cluster, "ledger")
    producer = Producer(cluster, "ledger", Delivery(acks="all", idempotence=True))

    def send(numbers: range) -> None:
        for start in numbers:
            records = [Record(b"%d" % n, b"key-%d" % (n % KEYS)) for n in range(start, start + BATCH)]
            producer.send(records)

    send(range(0, RECORDS // 4, BATCH))
    three_brokers.kill(first)  # records of the last batches are still on their way to it
    send(range(RECORDS // 4, RECORDS // 2, BATCH))
    wait_until(lambda: leader(cluster, "ledger") not in (-1, first), "another broker leads")
    three_brokers.restart(first)
    send(range(RECORDS // 2, RECORDS, BATCH))
    producer.close()
    assert (producer.delivered, producer.failed) == (RECORDS, 0)

    seen: dict[bytes, list[int]] = {}
    for batch in read_records(cluster, ReadRequest("ledger", start="earliest", most=RECORDS, timeout=10)):
        for message in batch:
            seen.setdefault(message.key() or b"", []).append(int(message.value() or b""))
    assert seen == {b"key-%d" % key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)}
    assert topics.describe(cluster, ["ledger"])[0].offsets == RECORDS
    wait_until(
        lambda: len(cluster.connect().topics["ledger"].partitions[0].isrs) == 3,
        "all replicas are in sync again",
    )
