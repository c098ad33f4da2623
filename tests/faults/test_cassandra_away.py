"""Cassandra is killed while rows are written and comes back: every row is there, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cql.insertion import Insertion
from millrace.connectors.cql.table import Design
from millrace.errors import CassandraUnreachable
from millrace.services.cassandra import Options, Service

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
    service = Service(tmp_path, Options(heap="256m"))
    try:
        door = service.start()
        table = Design("kept.t", ("k",), (), 1).make(door, SCHEMA)
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
