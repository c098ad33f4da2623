"""Who reads topics: Spark's own source, or ours in bulk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.kafka.sink import KafkaRecordSink
from millrace.connectors.kafka.source import KafkaSource, in_bulk, left_to_spark


def put(cluster: Cluster, topic: str, count: int) -> None:
    sink = KafkaRecordSink(SinkTarget(topic, cluster=lambda: cluster))
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
        monkeypatch.setattr("millrace.connectors.kafka.source._RECENT_S", 0.0)
    context = RunContext(tmp_path, lambda: cluster, pipeline="p", name="s")
    context = replace(context, next_offsets={(topic, number): read for number in range(3)} if read else {})
    for worth, chosen in ((waits, True), (waits + 1, False)):
        monkeypatch.setattr("millrace.connectors.kafka.source.WORTHWHILE_RECORDS", worth)
        assert in_bulk(KafkaSource(topic=(topic,), start=start, more={}), context) is chosen


@pytest.mark.parametrize(
    "options", [{"min_tasks": 2}, {"config": {"fetch.min.bytes": 1}}, {"start": {"t": {"0": 1}}}], ids=str
)
def test_what_only_sparks_source_can_do_is_left_to_it(options: dict[str, Any]) -> None:
    assert left_to_spark(KafkaSource(topic=("t",), more={}, **options), batches=True, part=False)


def test_clusters_with_tls_or_passwords_are_left_to_spark(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BULK_READER", "on")
    secure = replace(cluster, options={"security.protocol": "SSL"})
    reader = KafkaSource(topic=("t",), more={})
    for one, chosen in ((cluster, True), (secure, False)):
        context = RunContext(tmp_path, lambda own=one: own, pipeline="p", name="s")  # type: ignore[misc]
        assert in_bulk(reader, context) is chosen
    assert left_to_spark(reader, batches=False, part=False)
    assert left_to_spark(reader, batches=True, part=True)
    monkeypatch.setenv("MILLRACE_BULK_READER", "off")
    assert left_to_spark(reader, batches=True, part=False)
