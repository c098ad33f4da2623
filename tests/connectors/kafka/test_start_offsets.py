"""Where a query's first batch begins, whoever reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.kafka.sink import KafkaRecordSink
from millrace.connectors.kafka.source import KafkaSource
from millrace.connectors.kafka.start_offsets import forget_start, note_start, noted_start, pinned_ends

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster

FIRST = {"posts": {"0": 5}}


def context(folder: Path, cluster: Any = None) -> RunContext:
    checkpoint = folder / "checkpoints" / "q"
    return RunContext(folder, lambda: cluster, pipeline="p", name="s", query="q", checkpoint=checkpoint)


def plan_first_batch(folder: Path) -> None:
    (folder / "checkpoints" / "q" / "offsets").mkdir(parents=True)
    (folder / "checkpoints" / "q" / "offsets" / "0").touch()


def test_a_batch_that_comes_again_begins_where_it_did(tmp_path: Path) -> None:
    own = context(tmp_path)
    assert note_start(own, ["posts"], lambda: FIRST) == FIRST
    assert note_start(own, ["posts"], lambda: {"posts": {"0": 6}}) == {"posts": {"0": 6}}  # there was no batch yet
    plan_first_batch(tmp_path)
    assert note_start(own, ["posts"], lambda: FIRST) == {"posts": {"0": 6}}


def test_what_sparks_source_has_noted_counts(tmp_path: Path) -> None:
    plan_first_batch(tmp_path)
    own = context(tmp_path)
    assert noted_start(own, ["posts"]) is None
    note = tmp_path / "checkpoints" / "q" / "sources" / "0" / "0"
    note.parent.mkdir(parents=True)
    note.write_bytes(b'\0v1\n{"posts":{"0":5}}')
    assert noted_start(own, ["posts"]) == FIRST
    assert noted_start(own, ["others"]) is None


def test_a_note_of_before_is_gone_where_sparks_source_begins(tmp_path: Path) -> None:
    own = context(tmp_path)
    note_start(own, ["posts"], lambda: FIRST)
    forget_start(own)
    plan_first_batch(tmp_path)
    assert noted_start(own, ["posts"]) is None


def test_sparks_source_is_told_of_partitions_that_have_come_since(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    own = context(tmp_path, cluster)
    note_start(own, [topic], lambda: {topic: {"0": 5}})
    plan_first_batch(tmp_path)
    options = KafkaSource(topic=(topic,), more={})._options(own)
    assert options["startingOffsets"] == f'{{"{topic}": {{"0": 5, "1": -2, "2": -2}}}}'


def test_the_end_of_some_partitions(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    sink = KafkaRecordSink(SinkTarget(topic, cluster=lambda: cluster))
    sink.write([Record(b"x", partition=1)])
    sink.close()
    assert pinned_ends(context(tmp_path), cluster, [(topic, 1)]) == {topic: {"1": 1}}
