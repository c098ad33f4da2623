"""Kafka as a sink for records."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.kafka.sink import KafkaRecordSink, KafkaSink
from millrace.errors import InvalidOption, MillraceError, RecordRefused


def test_records_arrive_and_are_counted(cluster: Cluster, topic: str) -> None:
    sink = KafkaRecordSink(SinkTarget(topic, cluster=lambda: cluster))
    sink.write([Record(b"a"), Record(b"b")])
    tally = sink.close()
    assert (tally.delivered, tally.failed, tally.reason) == (2, 0, None)
    assert topics.describe(cluster, [topic])[0].offsets == 2


def test_done_is_called_without_another_write(cluster: Cluster, topic: str) -> None:
    sink = KafkaRecordSink(SinkTarget(topic, cluster=lambda: cluster))
    called = threading.Event()
    answers: list[MillraceError | None] = []

    def done(problem: MillraceError | None) -> None:
        answers.append(problem)
        called.set()

    sink.write([Record(b"a"), Record(b"b")], done)
    assert called.wait(30)
    sink.close()
    assert answers == [None]


def test_a_record_that_is_too_large_is_a_failure_with_its_reason(cluster: Cluster, topic: str) -> None:
    sink = KafkaRecordSink(SinkTarget(topic, cluster=lambda: cluster))
    answers: list[MillraceError | None] = []
    sink.write([Record(random.Random(1).randbytes(3_000_000)), Record(b"small")], answers.append)
    tally = sink.close()
    assert (tally.delivered, tally.failed) == (1, 1)
    assert tally.reason is None  # whoever sent it was told
    assert [type(answer) for answer in answers] == [RecordRefused]


def test_a_missing_topic_is_made(cluster: Cluster, topic: str) -> None:
    KafkaRecordSink(SinkTarget(f"{topic}-made", cluster=lambda: cluster)).close()
    assert topics.describe(cluster, [f"{topic}-made"])


def test_a_topic_is_needed() -> None:
    with pytest.raises(InvalidOption):
        KafkaRecordSink(SinkTarget())


def test_sinks_whose_rows_name_their_topics_are_told_apart() -> None:
    """Of two with one name, the second would find its batch noted by the first, and write nothing."""
    context = RunContext(Path(), lambda: Cluster("127.0.0.1:9"), pipeline="p", name="t", query="q")
    sinks = [KafkaSink(topic=topic, topic_column=column) for topic in ("a", "b", "") for column in ("x", "y")]
    assert len({one._commit_ledger(context).name for one in sinks}) == len(sinks)
