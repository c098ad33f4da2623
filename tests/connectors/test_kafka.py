"""Kafka as a sink for records, and who reads its topics."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from millrace.clients import topics
from millrace.clients.cluster import Cluster
from millrace.clients.records import Record
from millrace.connectors.base import Target
from millrace.connectors.kafka import KafkaReader, KafkaSink, KafkaWriter
from millrace.connectors.stream import Site
from millrace.errors import InvalidOption, MillraceError, RecordRefused


def test_records_arrive_and_are_counted(cluster: Cluster, topic: str) -> None:
    sink = KafkaSink(Target(topic, cluster=lambda: cluster))
    sink.write([Record(b"a"), Record(b"b")])
    tally = sink.close()
    assert (tally.delivered, tally.failed, tally.reason) == (2, 0, None)
    assert topics.describe(cluster, [topic])[0].offsets == 2


def test_done_is_called_without_another_write(cluster: Cluster, topic: str) -> None:
    sink = KafkaSink(Target(topic, cluster=lambda: cluster))
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
    sink = KafkaSink(Target(topic, cluster=lambda: cluster))
    answers: list[MillraceError | None] = []
    sink.write([Record(random.Random(1).randbytes(3_000_000)), Record(b"small")], answers.append)
    tally = sink.close()
    assert (tally.delivered, tally.failed) == (1, 1)
    assert tally.reason is None  # whoever sent it was told
    assert [type(answer) for answer in answers] == [RecordRefused]


def test_a_missing_topic_is_made(cluster: Cluster, topic: str) -> None:
    KafkaSink(Target(f"{topic}-made", cluster=lambda: cluster)).close()
    assert topics.describe(cluster, [f"{topic}-made"])


def test_a_topic_is_needed() -> None:
    with pytest.raises(InvalidOption):
        KafkaSink(Target())


def test_sinks_whose_rows_name_their_topics_are_told_apart() -> None:
    """Of two with one name, the second would find its batch noted by the first, and write nothing."""
    nothing: Any = None
    site = Site(nothing, "p", "t", Path(), lambda: Cluster("127.0.0.1:9"), query="q")
    sinks = [KafkaWriter(topic=topic, topic_column=column) for topic in ("a", "b", "") for column in ("x", "y")]
    assert len({one._outlet(site).name for one in sinks}) == len(sinks)


def put(cluster: Cluster, topic: str, count: int) -> None:
    sink = KafkaSink(Target(topic, cluster=lambda: cluster))
    sink.write([Record(b"x", partition=number % 3) for number in range(count)])
    sink.close()


@pytest.mark.parametrize(
    ("start", "read", "lately", "waits"),
    [
        ("earliest", 0, False, 30),
        ("earliest", 8, False, 6),
        ("latest", 0, False, 0),
        ("latest", 0, True, 30),  # it comes by
    ],
)
def test_topics_are_read_in_bulk_where_enough_waits_or_comes(
    cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
    read: int,
    lately: bool,
    waits: int,
) -> None:
    put(cluster, topic, 30)
    if not lately:
        monkeypatch.setattr("millrace.connectors.kafka._LATELY", 0.0)
    site = Site(cast("Any", None), "p", "s", tmp_path, lambda: cluster)
    site = replace(site, read={(topic, number): read for number in range(3)} if read else {})
    for worth, chosen in ((waits, True), (waits + 1, False)):
        monkeypatch.setattr("millrace.connectors.kafka.WORTH", worth)
        assert KafkaReader(topic=(topic,), start=start, more={}).in_bulk(site) is chosen


@pytest.mark.parametrize(
    "options", [{"min_tasks": 2}, {"config": {"fetch.min.bytes": 1}}, {"start": {"t": {"0": 1}}}], ids=str
)
def test_what_only_sparks_source_can_do_is_left_to_it(options: dict[str, Any]) -> None:
    assert KafkaReader(topic=("t",), more={}, **options).left_to_spark(batches=True, part=False)


def test_clusters_with_tls_or_passwords_are_left_to_spark(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BULK", "on")
    secure = replace(cluster, options={"security.protocol": "SSL"})
    reader = KafkaReader(topic=("t",), more={})
    for one, chosen in ((cluster, True), (secure, False)):
        assert reader.in_bulk(Site(cast("Any", None), "p", "s", tmp_path, lambda own=one: own)) is chosen  # type: ignore[misc]
    assert reader.left_to_spark(batches=False, part=False)
    assert reader.left_to_spark(batches=True, part=True)
    monkeypatch.setenv("MILLRACE_BULK", "off")
    assert reader.left_to_spark(batches=True, part=False)
