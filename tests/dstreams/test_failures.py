"""Batches that fail: no commit and no checkpoint passes one that is not done, or that could not even be made."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from dstreams.records import pour
from dstreams.stages import Stage
from dstreams.test_limits import Settings
from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.dstreams import KafkaUtils
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_rdd import RddDecoder
from millrace.dstreams.kafka_source import KafkaStreamSource, ranges_of
from millrace.dstreams.kafka_types import utf8_decoder
from millrace.dstreams.source import DStreamBatch
from millrace.errors import FunctionFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext

Running = Callable[[Callable[[], object]], None]


def until(holds: Callable[[], object]) -> None:
    """Wait, without asking the context, which has failed."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_no_commit_passes_a_batch_that_failed(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running
) -> None:
    got: list[str] = []

    def output(rdd: Any) -> None:
        values = rdd.values().collect()
        if "bad" in values:
            raise ValueError("not this one")
        got.extend(values)

    group = f"group-of-{lane}"
    stream = KafkaUtils.createStream(ssc, cluster.bootstrap, group, {lane: 1}, {"auto.offset.reset": "smallest"})
    stream.foreachRDD(output)
    pour(cluster, lane, ["good"])
    running(lambda: consumer_groups.committed(cluster, group) == {(lane, 0): 1})
    pour(cluster, lane, ["bad"])
    with pytest.raises(FunctionFailed, match="output raised") as raised:
        ssc.awaitTermination(60)
    assert str(raised.value.place).startswith(__file__)
    pour(cluster, lane, ["later"])
    until(lambda: "later" in got)
    ssc.stop(stopSparkContext=False)
    assert consumer_groups.committed(cluster, group) == {(lane, 0): 1}


@pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")
def test_a_program_that_began_with_what_comes_and_fails_in_its_first_batch_begins_there_again(
    spark: SparkSession, ssc: StreamingContext, cluster: Cluster, lane: str
) -> None:
    pour(cluster, lane, ["before"])
    given = cluster.bootstrap, f"group-of-{lane}", {lane: 1}, {"auto.offset.reset": "largest"}
    stream = KafkaUtils.createStream(ssc, *given)
    pour(cluster, lane, ["first"])

    def output(rdd: Any) -> None:
        if rdd.count():
            raise ValueError("not today")

    stream.foreachRDD(output)
    ssc.start()
    with pytest.raises(FunctionFailed, match="output raised"):
        ssc.awaitTermination(60)
    ssc.stop(stopSparkContext=False)
    pour(cluster, lane, ["second"])
    again = Stage(spark)
    again.collect(got=KafkaUtils.createStream(again.ssc, *given).map(lambda record: record[1]))
    again.ssc.start()
    try:
        again.until(lambda: len(again.all("got")) >= 2)
    finally:
        again.stop()
    assert again.all("got") == ["first", "second"]


def test_where_a_stream_begins_is_committed_though_kafka_did_not_answer_at_first(
    cluster: Cluster, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pour(cluster, lane, ["before", "first"])
    group = f"group-of-{lane}"
    parameters = Parameters.of({"metadata.broker.list": cluster.bootstrap})
    source = KafkaStreamSource(parameters, [lane], {(lane, 0): 1}, RddDecoder(utf8_decoder, utf8_decoder), group=group)
    client = source.open()
    batch = DStreamBatch(0, 1.0, cast("Any", Settings()))
    with monkeypatch.context() as away:
        away.setattr(client, "snapshot", lambda *_, **__: None)
        note = source.next_input(None, batch, client)
    assert consumer_groups.committed(cluster, group) == {}
    note = source.next_input(note, batch, client)
    assert [(one.fromOffset, one.untilOffset) for one in ranges_of(note)] == [(1, 2)]
    assert consumer_groups.committed(cluster, group) == {(lane, 0): 1}


def test_no_commit_passes_a_batch_of_which_only_the_last_output_was_good(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running, tmp_path: Path
) -> None:
    got: list[str] = []

    def first(rdd: Any) -> None:
        if "bad" in rdd.values().collect():
            raise ValueError("not this one")

    group = f"group-of-{lane}"
    ssc.checkpoint(str(tmp_path))
    stream = KafkaUtils.createStream(ssc, cluster.bootstrap, group, {lane: 1}, {"auto.offset.reset": "smallest"})
    stream.foreachRDD(first)
    stream.foreachRDD(lambda rdd: got.extend(rdd.values().collect()))
    pour(cluster, lane, ["good"])
    running(lambda: consumer_groups.committed(cluster, group) == {(lane, 0): 1})
    pour(cluster, lane, ["bad"])
    with pytest.raises(FunctionFailed, match="first raised"):
        ssc.awaitTermination(60)
    until(lambda: str(ssc._jssc.getState()) == "STOPPED")
    assert "bad" in got  # of the second output, after which Spark takes the batch for done
    ssc.stop(stopSparkContext=False)
    assert consumer_groups.committed(cluster, group) == {(lane, 0): 1}


def test_no_checkpoint_passes_a_batch_that_could_not_be_made(
    ssc: StreamingContext, cluster: Cluster, lane: str, running: Running, tmp_path: Path
) -> None:
    failed: list[float] = []

    def checkpoints() -> list[int]:
        return [int(one.name.split("-")[1].removesuffix(".bk")) for one in tmp_path.glob("checkpoint-*")]

    def made(at: Any, rdd: Any) -> Any:
        if any(one.count() for one in rdd.offsetRanges()):
            failed.append(round(at.timestamp() * 1000))
            raise ValueError("not today")
        return rdd

    ssc.checkpoint(str(tmp_path))
    stream = KafkaUtils.createDirectStream(ssc, [lane], {"bootstrap.servers": cluster.bootstrap})
    stream.transform(made).foreachRDD(lambda rdd: rdd.count())
    running(checkpoints)
    pour(cluster, lane, ["some"])
    with pytest.raises(FunctionFailed, match="made raised"):
        ssc.awaitTermination(60)
    until(lambda: str(ssc._jssc.getState()) == "STOPPED")
    assert len(failed) == 1
    assert max(checkpoints()) < failed[0]
    notes = [int(one.stem) for one in tmp_path.glob("millrace/*/*.json")]
    assert max(notes) == failed[0]  # it is known what it reads when it is made again
