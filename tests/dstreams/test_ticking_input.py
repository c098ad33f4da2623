"""A stream from a checkpoint goes on ticking, also when the batches of before are let go of."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dstreams.records import pour
from millrace.clients.kafka.cluster import Cluster
from millrace.dstreams import KafkaUtils

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext


def lines(path: Path) -> list[str]:
    """What was written so far."""
    return path.read_text("utf-8").split() if path.exists() else []


def run(ssc: StreamingContext, path: Path, batches: int, records: int) -> None:
    """Start it, and wait until so many more batches have been and all records were read."""
    before = len(lines(path))
    ssc.start()
    deadline = time.monotonic() + 60
    while len(lines(path)) < before + batches or sum(map(int, lines(path))) < records:
        assert time.monotonic() < deadline, lines(path)
        assert not ssc.awaitTerminationOrTimeout(0.1)  # raises what ended it
    ssc.stop(stopSparkContext=False, stopGraceFully=True)


@pytest.mark.long
def test_a_stream_without_state_goes_on_after_its_recovery(
    spark: SparkSession, cluster: Cluster, lane: str, tmp_path: Path
) -> None:
    from pyspark.streaming import StreamingContext

    checkpoint, out = str(tmp_path / "checkpoint"), tmp_path / "counts"

    def make() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 0.5)
        ssc.checkpoint(checkpoint)
        parameters = {"metadata.broker.list": cluster.bootstrap, "auto.offset.reset": "smallest"}
        stream = KafkaUtils.createDirectStream(ssc, [lane], parameters)
        path = str(out)

        def write(rdd):  # type: ignore[no-untyped-def]
            with open(path, "a") as file:  # noqa: PTH123
                file.write(f"{rdd.count()}\n")

        stream.foreachRDD(write)
        return ssc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        pour(cluster, lane, ["a", "b"], 0)
        run(StreamingContext.getOrCreate(checkpoint, make), out, 3, 2)
        pour(cluster, lane, ["c"], 0)
        # A batch is let go of when the next one is done: with three, that has happened.
        run(StreamingContext.getOrCreate(checkpoint, make), out, 4, 3)
    assert sum(map(int, lines(out))) == 3
