"""The only broker goes away while an agent of Flume sends, and comes back: every event is there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from conftest import committed
from faults.going import Going
from flume_agent import flume_agent
from millrace.clients.kafka import topics
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions
from millrace.services.process import free_port

EVENTS = 5_000
AWAY = (5.0, 25.0)
"""Seconds: less than an agent waits for its answer, and more."""

CONFIGURATION = f"""
agent.sources = numbers
agent.channels = memory
agent.sinks = millrace
agent.sources.numbers.type = exec
agent.sources.numbers.shell = /bin/bash -c
agent.sources.numbers.command = for n in $(seq 0 {EVENTS - 1}); do echo $n; sleep 0.01; done
agent.sources.numbers.batchSize = 20
agent.sources.numbers.channels = memory
agent.channels.memory.type = memory
agent.channels.memory.capacity = {2 * EVENTS}
agent.channels.memory.transactionCapacity = 1000
agent.sinks.millrace.type = avro
agent.sinks.millrace.channel = memory
agent.sinks.millrace.hostname = 127.0.0.1
agent.sinks.millrace.port = PORT
"""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker that may be killed."""
    service = KafkaCluster(tmp_path / "kafka", KafkaClusterOptions(heap="320m"))
    topics.create(service.start(), "numbers", 2)
    yield service
    service.stop()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_every_event_is_there(tmp_path: Path, own_broker: KafkaCluster, spark: SparkSession) -> None:
    cluster, port, pause = own_broker.cluster(), free_port(), threading.Event()
    pipeline = mr.Pipeline("steadfast")
    pipeline.source("numbers", mr.flume("numbers", listen=f"127.0.0.1:{port}", format="text"))
    pipeline.sql("kept", "SELECT value FROM numbers")
    pipeline.sink("kept", mr.files(str(tmp_path / "out"), format="text"))
    with (
        Going(pipeline, tmp_path / "state", cluster, spark) as going,
        flume_agent(CONFIGURATION, tmp_path, {"PORT": str(port)}),
    ):
        for part, seconds in enumerate(AWAY):
            going.wait_until(lambda part=part: going.rows("kept") > 500 * (part + 1), "some are read", 120)
            own_broker.kill(1)
            pause.wait(seconds)
            own_broker.restart(1)
        going.wait_until(lambda: len(numbers(tmp_path, spark)) == EVENTS, "every event is in the files", 240)
    sent = Counter(int(one.value() or b"-1") for one in committed(cluster, "numbers"))
    assert sent.keys() == set(range(EVENTS))
    found = Counter(int(row.value) for row in spark.read.text(str(tmp_path / "out")).collect())
    assert found == sent  # from the topic on, exactly once


def numbers(folder: Path, spark: SparkSession) -> set[str]:
    """The numbers that are in the files."""
    if not any((folder / "out").glob("*.txt")):
        return set()
    return {row.value for row in spark.read.text(str(folder / "out")).collect()}
