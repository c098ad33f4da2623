"""Cassandra is killed while rows are written and comes back: every row is there, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import millrace as mr
from faults.going import Going, send
from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.cassandra.sink import Insertion
from millrace.connectors.cassandra.table import TableDesign
from millrace.errors import CassandraUnreachable
from millrace.services.cassandra import CassandraOptions, CassandraService

ROWS, PART = 40_000, 500
SCHEMA = T.StructType([T.StructField("k", T.LongType()), T.StructField("n", T.LongType())])


class Parts:
    """The rows of a batch, part by part; it stops in the middle until it may go on."""

    def __init__(self) -> None:
        self.half_done = threading.Event()
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, ROWS, PART):
            if start == ROWS // 2:
                self.half_done.set()
                assert self.go_on.wait(120)
            numbers = pa.array(range(start, start + PART), pa.int64())
            yield pa.RecordBatch.from_pydict({"k": numbers, "n": numbers})


@pytest.mark.chaos
def test_a_batch_outlives_cassandra(tmp_path: Path) -> None:
    service = CassandraService(tmp_path, CassandraOptions(heap="256m"))
    try:
        door = service.start()
        table = TableDesign("kept.t", ("k",), (), 1).make(door, SCHEMA)
        work, parts = Insertion(door, table, table.columns, 1, in_flight=16), Parts()
        counts: list[int] = []
        writing = threading.Thread(target=lambda: counts.append(work.insert(parts)))
        writing.start()
        assert parts.half_done.wait(60)
        service.kill()
        with pytest.raises(CassandraUnreachable):
            Insertion(replace(door, timeout=3.0), table, table.columns, 1, patience=0.2).insert(
                [pa.RecordBatch.from_pydict({"k": [1], "n": [1]})]
            )
        parts.go_on.set()
        assert service.start().address == door.address
        writing.join(120)
        assert counts == [ROWS]
        assert numbers(door) == set(range(ROWS))
    finally:
        service.stop()


def numbers(door: Cassandra) -> set[int]:
    """What is in the table."""
    rows = door.execute("SELECT k, n FROM kept.t")
    assert all(key == number for key, number in rows)
    assert len(rows) == len({key for key, _ in rows})
    return {key for key, _ in rows}


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_pipeline_outlives_twenty_seconds_without_it(
    tmp_path: Path, cluster: Cluster, topic: str, spark: SparkSession
) -> None:
    service = CassandraService(tmp_path / "cassandra", CassandraOptions(heap="256m"))
    records, pause = 20_000, threading.Event()
    send(cluster, topic, range(records))
    pipeline = mr.Pipeline(f"kept-{topic}")
    pipeline.source("numbers", mr.kafka(topic, format="text", max_per_batch=1000))
    pipeline.sql("rows", "SELECT bigint(value) AS k, bigint(value) AS n FROM numbers")
    pipeline.sink("rows", mr.cassandra("kept.t", create=True, key="k"))
    try:
        door = service.start()
        with Going(pipeline, tmp_path / "state", cluster, spark, cassandra=lambda: door) as going:
            going.wait_until(lambda: going.rows("rows") > records // 4, "some are written")
            service.kill()
            pause.wait(20)
            assert service.start().address == door.address
            going.wait_until(lambda: going.rows("rows") == records, "all are written", 180)
        assert numbers(door) == set(range(records))
    finally:
        service.stop()
