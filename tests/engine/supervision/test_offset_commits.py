"""How far a query has read, as Kafka's own tools see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

import millrace as mr
from cli.test_kafkas_own_tools import tool
from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.engine.supervision.offset_commits import OffsetCommitter, group_of
from millrace.services.process import free_port
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import RunStatus


def test_kafkas_own_tool_shows_the_lag(cluster: Cluster, topic: str, run_pipeline: Callable[..., RunStatus]) -> None:
    send(cluster, topic, 30)
    pipeline = mr.Pipeline("positions")
    pipeline.source("events", mr.kafka(topic, format="text"))
    pipeline.sink("events", mr.memory())
    run_pipeline(pipeline)
    group = group_of("positions", "events")
    assert consumer_groups.describe(cluster, group).lag == 0
    send(cluster, topic, 12)
    found = described(cluster, group)
    assert {place: offset for place, (offset, _) in found.items()} == {(topic, number): 10 for number in range(3)}
    assert sum(lag for _, lag in found.values()) == consumer_groups.describe(cluster, group).lag == 12


def test_what_kafka_does_not_take_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    wrong = Cluster(f"127.0.0.1:{free_port()}", {"no.such": "1"})
    source = SourceProgress("KafkaV2", 1, end={"numbers": {"0": 5}}, latest={"numbers": {"0": 5}})
    with OffsetCommitter(lambda: wrong, "p", ["q"]) as positions:
        positions.on_batch(BatchProgress("q", "run", 0, datetime.now(UTC), 1, sources=(source,)))
        deadline = time.monotonic() + 20
        while not caplog.messages and time.monotonic() < deadline:
            threading.Event().wait(0.05)
    (said,) = caplog.messages
    assert said.startswith("could not commit the offsets of query 'q': No such configuration property")
    assert "KafkaError" not in said


def send(cluster: Cluster, topic: str, many: int) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, partition=number % 3) for number in range(many)])
    producer.close()


def described(cluster: Cluster, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Offset and lag of each partition, by Kafka's own tool."""
    options = ("--bootstrap-server", cluster.bootstrap, "--describe", "--group", group)
    said = tool("consumer.group.ConsumerGroupCommand", *options)
    lines = [line.split() for line in said.splitlines() if line.startswith(group)]
    return {(line[1], int(line[2])): (int(line[3]), int(line[5])) for line in lines}
