"""Retention has removed what a checkpoint still needs: it is told exactly, and every id is accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import millrace as mr
from conftest import committed
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.engine.checkpoints.checkpoint import next_offsets
from millrace.engine.checkpoints.data_loss import LostOffsets
from millrace.errors import OffsetsGone
from millrace.telemetry.query_status import RunStatus

pytestmark = pytest.mark.usefixtures("either_source")
Run = Callable[..., RunStatus]


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    """Number n goes to partition n % 3."""
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, partition=number % 3) for number in numbers])
    producer.close()


def remove(cluster: Cluster, topic: str, before: dict[int, int]) -> None:
    """What retention does."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for done in cluster.admin().delete_records(places).values():
        done.result()


def copy(topic: str, on_data_loss: str) -> mr.Pipeline:
    pipeline = mr.Pipeline("retained")
    pipeline.source("numbers", mr.kafka(topic, format="text", on_data_loss=on_data_loss))
    pipeline.sink("numbers", mr.kafka(f"{topic}-out", format="text"))
    return pipeline


@pytest.mark.long
def test_all_that_is_gone_is_told_and_the_rest_is_there_once(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path
) -> None:
    send(cluster, topic, range(30))
    run_pipeline(copy(topic, "fail"), tmp_path)
    send(cluster, topic, range(30, 90))
    remove(cluster, topic, {0: 15, 1: 11, 2: 4})  # of partition 2 only what is written already
    with pytest.raises(OffsetsGone) as raised:
        run_pipeline(copy(topic, "fail"), tmp_path)
    told = (str(LostOffsets(topic, 0, 10, 15)), str(LostOffsets(topic, 1, 10, 11)))
    assert raised.value.message.endswith("; ".join(told))
    assert (raised.value.exit_code, "on_data_loss: continue" in str(raised.value.hint)) == (1, True)
    # Partition 2 has lost nothing: its task may have committed before the others failed, and does not write again then.
    assert numbers(cluster, topic) in (Counter(range(30)), Counter([*range(30), *range(32, 90, 3)]))
    said: list[str] = []
    run_pipeline(copy(topic, "continue"), tmp_path, say=said.append)
    assert [line for line in said if "continues without" in line] == [
        f"query 'numbers' continues without what is lost: {one}" for one in told
    ]
    lost = {number for number in range(30, 90) if number // 3 in range(10, 15) and number % 3 == 0} | {31}
    assert numbers(cluster, topic) == Counter({*range(90)} - lost)


def numbers(cluster: Cluster, topic: str) -> Counter[int]:
    return Counter(int(one.value() or b"-1") for one in committed(cluster, f"{topic}-out"))


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path
) -> None:
    send(cluster, topic, range(30))
    run_pipeline(copy(topic, "fail"), tmp_path)
    topics.delete(cluster, [topic])
    topics.create(cluster, topic, 3)
    send(cluster, topic, range(100, 160))  # as long as it was, and longer
    for _ in range(2):  # who is refused is refused again
        with pytest.raises(OffsetsGone, match="created again since query 'numbers' read it"):
            run_pipeline(copy(topic, "fail"), tmp_path)
    assert numbers(cluster, topic) == Counter(range(30))
    said: list[str] = []
    run_pipeline(copy(topic, "continue"), tmp_path, say=said.append)
    assert any("continues at the offsets of its checkpoint" in line for line in said)
    run_pipeline(copy(topic, "fail"), tmp_path)
    assert numbers(cluster, topic) == Counter([*range(30), *range(130, 160)])


def test_where_a_query_reads_next(tmp_path: Path) -> None:
    assert next_offsets(tmp_path) == {}
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('v1\n{"t":{"0":3,"1":0}}')
    assert next_offsets(tmp_path) == {("t", 0): 3, ("t", 1): 0}
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0,"conf":{"a":"1"}}\n{"t":{"0":5,"1":7}}')
    assert next_offsets(tmp_path) == {("t", 0): 3, ("t", 1): 0}, "batch 0 is begun, not done"
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"t":{"0":9,"1":7}}')
    assert next_offsets(tmp_path) == {("t", 0): 5, ("t", 1): 7}


def test_one_offset_and_several() -> None:
    assert str(LostOffsets("t", 1, 10, 11)) == "topic 't', partition 1: offset 10 is gone, the first that exists is 11"
    assert "offsets 10 to 14 are gone" in str(LostOffsets("t", 0, 10, 15))
