"""Each broker of three is killed with -9 and comes back while a pipeline writes: leaders and coordinators move."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from faults.going import Going, numbers_in
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

TOPICS = ("numbers", "copied")
STEP = 500


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three nodes, each broker and controller, and topics with a copy on each."""
    service = KafkaCluster(tmp_path / "kafka", KafkaClusterOptions(brokers=3, heap="320m"))
    cluster = service.start()
    for name in TOPICS:
        topics.create(cluster, name, 3, 3)
    yield service
    service.stop()


def leaders(cluster: Cluster) -> set[int]:
    found = cluster.connect().topics
    return {one.leader for name in TOPICS for one in found[name].partitions.values()}


def in_sync(cluster: Cluster) -> bool:
    found = cluster.connect().topics
    return all(len(one.isrs) == 3 for name in TOPICS for one in found[name].partitions.values())


class Sending:
    """Numbers that keep coming until it is left."""

    def __init__(self, cluster: Cluster) -> None:
        self.sent = 0
        self._producer = Producer(cluster, TOPICS[0])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()
        assert (self._producer.delivered, self._producer.failed) == (self.sent, 0)

    def _send(self) -> None:
        while not self._stop.wait(0.1):
            numbers = range(self.sent, self.sent + STEP // 10)
            self._producer.send([Record(b"%d" % one, b"%d" % one) for one in numbers])
            self.sent = numbers.stop


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_each_broker_in_turn(tmp_path: Path, three_brokers: KafkaCluster, spark: SparkSession) -> None:
    cluster = three_brokers.cluster()
    pipeline = mr.Pipeline("moving")
    pipeline.source("numbers", mr.kafka("numbers", format="text", max_per_batch=STEP))
    pipeline.sink("numbers", mr.kafka("copied", format="text"))
    with Going(pipeline, tmp_path / "state", cluster, spark) as going:
        read = partial(going.rows, "numbers")
        with Sending(cluster) as sending:
            going.wait_until(lambda: read() > STEP, "some are read")
            for node in (1, 2, 3):
                three_brokers.kill(node)
                going.wait_until(lambda node=node: not leaders(cluster) & {node, -1}, "others lead")
                before = read()
                going.wait_until(lambda before=before: read() > before + STEP, "it goes on without it", 180)
                three_brokers.restart(node)
                going.wait_until(lambda: in_sync(cluster), "all copies are in sync again", 120)
        going.wait_until(lambda: read() >= sending.sent, "everything is read", 180)
        restarts = going.run_status.query("numbers").restarts
    assert sending.sent > 3 * STEP
    assert numbers_in(cluster, "copied") == Counter(range(sending.sent)), f"after {restarts} restarts"
