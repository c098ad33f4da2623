"""`millrace kafka topics` as a user meets it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer as KafkasProducer

from conftest import CommandLine
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.services.kafka import KafkaCluster

Run = Callable[..., Any]


@pytest.fixture
def name() -> str:
    return f"new-{uuid.uuid4().hex[:12]}"


def put(cluster: Cluster, topic: str, *records: Record) -> None:
    producer = Producer(cluster, topic)
    producer.send(records)
    producer.close()
    assert producer.delivered == len(records)


def wait_for_configs(cluster: Cluster, topic: str, expected: dict[str, str]) -> None:
    """A broker hears of them shortly after the controller has agreed to them."""
    while topics.describe(cluster, [topic])[0].configs != expected:
        pass


def test_a_topic_from_its_making_to_its_end(run: Run, cluster: Cluster, name: str) -> None:
    options = ("--partitions", "2", "--replication", "1", "--retention", "1h")
    assert run("kafka", "topics", "create", name, *options).out == ""
    put(cluster, name, Record(b"a", partition=1), Record(b"b", partition=1))
    [found] = json.loads(run("kafka", "topics", "describe", name, "--json").out)
    assert (found["name"], found["replication"], found["offsets"]) == (name, 1, 2)
    assert found["configs"] == {"retention.ms": "3600000"}
    empty, full = found["partitions"]
    assert (empty["id"], empty["first"], empty["end"], empty["offsets"], empty["bytes"]) == (0, 0, 0, 0, 0)
    assert (full["id"], full["first"], full["end"], full["offsets"]) == (1, 0, 2, 2)
    assert full["replicas"] == full["in_sync"] == [full["leader"]]
    assert full["bytes"] > 0
    run("kafka", "topics", "delete", name, "--yes")
    assert "error[kafka.topic-unknown]" in run("kafka", "topics", "describe", name, code=2).err


def test_topics_are_listed(run: Run, cluster: Cluster, topic: str) -> None:
    put(cluster, topic, *[Record(b"v")] * 4)
    [found] = [one for one in json.loads(run("kafka", "topics", "list", "--json").out) if one["name"] == topic]
    assert found == {"name": topic, "partitions": 3, "replication": 1, "offsets": 4, "under_replicated": 0}
    [row] = [line.split() for line in run("kafka", "topics", "list").out.splitlines() if topic in line]
    assert row == [topic, "3", "1", "4", "0"]


def test_marks_of_transactions_and_what_was_aborted_are_no_records(run: Run, cluster: Cluster, topic: str) -> None:
    put(cluster, topic, Record(b"plain", partition=0))
    transact(cluster, topic, 3, commit=True)
    transact(cluster, topic, 2, commit=False)
    [plain] = [one for one in json.loads(run("kafka", "topics", "list", "--json").out) if one["name"] == topic]
    assert (plain["offsets"], "records" in plain) == (1 + 3 + 1 + 2 + 1, False)
    rows = json.loads(run("kafka", "topics", "list", "--count", "--json").out)
    [counted] = [one for one in rows if one["name"] == topic]
    assert (counted["offsets"], counted["records"]) == (8, 4)
    [found] = json.loads(run("kafka", "topics", "describe", topic, "--count", "--json").out)
    assert (found["offsets"], found["records"]) == (8, 4)
    assert [(one["offsets"], one["records"]) for one in found["partitions"]] == [(1, 1), (7, 3), (0, 0)]
    rows = [line.split() for line in run("kafka", "topics", "describe", topic, "--count").out.splitlines()]
    assert [row[4:8] for row in rows if row[:1] == ["1"]] == [["0", "7", "7", "3"]]  # first, end, offsets, records


def transact(cluster: Cluster, topic: str, count: int, *, commit: bool) -> None:
    """So many records in partition 1, and the mark of what became of them."""
    producer = KafkasProducer({**cluster.config(), "transactional.id": f"t-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"v", partition=1)
    producer.flush(30)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)


def test_kafkas_own_topics_are_listed_when_asked_for(run: Run, topic: str) -> None:
    run("kafka", "consume", topic, "--group", f"g-{topic}", "--timeout", "100ms")
    shown = {one["name"] for one in json.loads(run("kafka", "topics", "list", "--json").out)}
    every = {one["name"] for one in json.loads(run("kafka", "topics", "list", "--internal", "--json").out)}
    assert "__consumer_offsets" in every - shown


def test_a_topic_of_our_own_cluster_is_described_for_people(
    offline_run: Run, monkeypatch: pytest.MonkeyPatch, broker: KafkaCluster, cluster: Cluster, topic: str
) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_DATA", str(broker.folder))
    topics.alter(cluster, topic, configs={"segment.ms": "5000"})
    wait_for_configs(cluster, topic, {"segment.ms": "5000"})
    shown = offline_run("kafka", "topics", "describe", topic).out
    assert all(word in shown for word in (topic, "leader", "in sync", "0 B", "segment.ms = 5000"))


@pytest.mark.parametrize(("text", "milliseconds"), [("90s", "90000"), ("forever", "-1")])
def test_retention_is_changed(run: Run, cluster: Cluster, topic: str, text: str, milliseconds: str) -> None:
    run("kafka", "topics", "alter", topic, "--retention", text, "--partitions", "4")
    wait_for_configs(cluster, topic, {"retention.ms": milliseconds})
    assert len(topics.describe(cluster, [topic])[0].partitions) == 4
    run("kafka", "topics", "alter", topic, "--reset", "retention.ms", "--config", "segment.ms=5000")
    wait_for_configs(cluster, topic, {"segment.ms": "5000"})


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (["create", "a b"], "kafka.topic-invalid"),
        (["create", "NEW", "--replication", "2"], "kafka.topic-invalid"),
        (["create", "NEW", "--config", "no.such=1"], "kafka.topic-invalid"),
        (["create", "OLD"], "kafka.topic-invalid"),
        (["alter", "OLD", "--partitions", "2"], "kafka.topic-invalid"),
        (["alter", "NEW", "--partitions", "2"], "kafka.topic-unknown"),
        (["describe", "OLD", "NEW"], "kafka.topic-unknown"),
        (["delete", "OLD", "NEW", "--yes"], "kafka.topic-unknown"),
    ],
)
def test_what_is_wrong_exits_2_and_changes_nothing(
    run: Run, cluster: Cluster, topic: str, name: str, arguments: list[str], condition: str
) -> None:
    said = run("kafka", "topics", *({"OLD": topic, "NEW": name}.get(word, word) for word in arguments), code=2).err
    assert f"error[{condition}]" in said
    assert len(topics.describe(cluster, [topic])[0].partitions) == 3
    assert name not in cluster.connect().topics


def test_nothing_is_deleted_where_nobody_can_be_asked(millrace: CommandLine, cluster: Cluster, topic: str) -> None:
    assert "error[option.invalid]" in millrace("kafka", "topics", "delete", topic, stdin="y\n", code=2).stderr
    assert topic in cluster.connect().topics
