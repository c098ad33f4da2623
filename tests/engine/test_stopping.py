"""How queries are stopped: those that write between two batches, those that only draw at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace.engine.stopping import stop_all

Write = Callable[[DataFrame, int], None]


def begin(spark: SparkSession, checkpoint: Path, write: Write) -> StreamingQuery:
    """A query whose batches follow each other without a pause."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write).start()


def noted(checkpoint: Path, log: str) -> set[str]:
    return {file.name for file in (checkpoint / log).glob("[0-9]*")}


def test_the_batch_in_hand_is_the_last_and_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(5):
        checkpoint = tmp_path / str(number)
        begun: list[int] = []
        wanted = threading.Event()

        def write(rows: DataFrame, batch: int, begun: list[int] = begun, wanted: threading.Event = wanted) -> None:
            begun.append(batch)
            if batch >= 1:
                wanted.set()
            rows.count()

        query = begin(spark, checkpoint, write)
        assert wanted.wait(60)
        assert stop_all([query]) == []
        assert query.exception() is None
        assert noted(checkpoint, "commits") == noted(checkpoint, "offsets") == {str(batch) for batch in begun}


def test_a_batch_that_takes_too_long_is_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        begun.set()
        go.wait(60)

    query = begin(spark, tmp_path, write)
    assert begun.wait(60)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(stop_all, [query], 0.05)
        while query.isActive:
            assert not ending.done(), ending.exception()
        go.set()
        assert ending.result(60) == [query]


def test_only_what_is_kept_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    ready = threading.Barrier(3, timeout=60)
    go = threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        if batch == 0:
            ready.wait()
        go.wait(60)

    writing, drawing = begin(spark, tmp_path / "writing", write), begin(spark, tmp_path / "drawing", write)
    ready.wait()
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(stop_all, [writing], 60.0, at_once=[drawing])
        while drawing.isActive:
            assert not ending.done(), ending.exception()
        assert writing.isActive
        go.set()
        assert ending.result(60) == []
    assert not writing.isActive
    assert noted(tmp_path / "writing", "commits") == noted(tmp_path / "writing", "offsets")
