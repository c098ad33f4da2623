"""Who reads topics: Spark's own source, or ours in bulk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.offset_range import ReplayRange
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.kafka.sink import KafkaRecordSink
from millrace.connectors.kafka.source import KafkaSource, _begin, in_bulk, left_to_spark
from millrace.errors import InvalidDefinition
from millrace.pipeline.analysis.pipeline import SourceWatermark


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


@pytest.mark.parametrize("options", [{"min_tasks": 2}, {"config": {"fetch.min.bytes": 1}}], ids=str)
def test_what_only_sparks_source_can_do_is_left_to_it(options: dict[str, Any]) -> None:
    assert left_to_spark(KafkaSource(topic=("t",), more={}, **options), batches=True)


def context_of(cluster: Cluster, state: Path, **fields: Any) -> RunContext:
    return RunContext(state, lambda: cluster, pipeline="p", name="s", **fields)


@pytest.mark.parametrize(
    ("options", "end", "bulk"),
    [
        ({"max_per_batch": 5}, None, True),  # whatever waits now: more may wait later
        ({}, None, False),  # one batch reads everything
        ({"max_per_batch": 5, "alignment": "off"}, None, False),
        ({"max_per_batch": 30}, 10, False),  # a replay of one batch
        ({"max_per_batch": 5}, 10, True),
        ({"max_per_batch": 5, "start": "latest"}, 10, True),  # it reads from its beginning all the same
        ({"max_per_batch": 5}, 1, False),  # what is behind its end is not read, nor what comes now
    ],
)
def test_batches_that_are_cut_are_read_in_bulk_where_there_is_a_watermark(
    cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    end: int | None,
    bulk: bool,
) -> None:
    put(cluster, topic, 30)
    if options.get("start"):  # what came in the last minute counts beside what is there
        monkeypatch.setattr("millrace.connectors.kafka.source._RECENT_S", 0.0)
    reader = KafkaSource(topic=(topic,), schema="at timestamp", more={}, **options)
    begin = {topic: dict.fromkeys("012", 0)}
    part = None if end is None else ReplayRange(begin, {topic: dict.fromkeys("012", end)})
    context = context_of(cluster, tmp_path, watermark=SourceWatermark(4.0, "at"), offset_range=part)
    assert in_bulk(reader, context) is bulk
    assert not in_bulk(reader, replace(context, watermark=None))


def test_sparks_own_source_has_no_maximum_where_records_would_be_late(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    context = context_of(cluster, tmp_path, watermark=SourceWatermark(4.0, "at"), notify=said.append)
    capped = KafkaSource(topic=(topic,), schema="at timestamp", max_per_batch=5, more={})
    assert "maxOffsetsPerTrigger" not in capped._options(context)
    assert not said  # it was chosen because everything fits in one batch
    monkeypatch.setenv("MILLRACE_BULK_READER", "off")
    assert "maxOffsetsPerTrigger" not in capped._options(context)
    assert "max_per_batch is not used" in said[-1]
    replay = replace(context, offset_range=ReplayRange({topic: {"0": 0}}, {topic: {"0": 9}}, 500_000))
    assert "maxOffsetsPerTrigger" not in replace(capped, max_per_batch=None)._options(replay)
    assert "maximum of 500,000 records" in said[-1]
    assert "MILLRACE_BULK_READER is off" in said[-1]
    assert len(said) == 2
    for other, where in ((replace(capped, alignment="off"), context), (capped, replace(context, watermark=None))):
        assert other._options(where)["maxOffsetsPerTrigger"] == "5"


def test_where_a_start_names_offsets(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    put(cluster, topic, 30)
    context = context_of(cluster, tmp_path)
    reader = KafkaSource(topic=(topic,), start={topic: {0: 7, 1: -1, 2: -2}}, more={})
    assert _begin(reader, context, cluster) == {topic: {"0": 7, "1": 10, "2": 0}}
    with pytest.raises(InvalidDefinition, match=rf"names no offset for {topic}\[1\], {topic}\[2\]"):
        _begin(replace(reader, start={topic: {0: 7}}), context, cluster)
    part = ReplayRange({topic: {"0": 3}})
    assert _begin(reader, replace(context, offset_range=part), cluster) == {topic: {"0": 3, "1": 0, "2": 0}}


def test_clusters_that_want_tokens_are_left_to_spark(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BULK_READER", "on")
    oauth = {f"sasl.oauthbearer.{name}": "x" for name in ("token.endpoint.url", "client.id", "client.secret")}
    tokens = replace(cluster, options={"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **oauth})
    secure = replace(cluster, options={"security.protocol": "SSL"})
    reader = KafkaSource(topic=("t",), more={})
    for one, chosen in ((cluster, True), (secure, True), (tokens, False)):
        context = RunContext(tmp_path, lambda own=one: own, pipeline="p", name="s")  # type: ignore[misc]
        assert in_bulk(reader, context) is chosen
    assert left_to_spark(reader, batches=False)
    monkeypatch.setenv("MILLRACE_BULK_READER", "off")
    assert left_to_spark(reader, batches=True)
