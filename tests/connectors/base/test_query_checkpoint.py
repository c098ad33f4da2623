"""The files of a checkpoint as Spark writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.connectors.base.query_checkpoint import (
    LOG_VERSION,
    LogEntry,
    last_committed_batch,
    last_planned_batch,
    planned_batch,
    query_id,
    read_entry,
    source_starts,
    unfinished_batch,
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_query_that_has_not_started(tmp_path: Path) -> None:
    assert (query_id(tmp_path), planned_batch(tmp_path, 0), list(source_starts(tmp_path))) == ("", b"", [])
    assert (last_planned_batch(tmp_path), last_committed_batch(tmp_path), unfinished_batch(tmp_path)) == (-1, -1, None)


def test_batches(tmp_path: Path) -> None:
    for batch in (9, 10):
        write(tmp_path / "offsets" / str(batch), "v1\n{}\n5")
        write(tmp_path / "offsets" / f".{batch}.crc", "")
    write(tmp_path / "commits" / "9", "v1\n{}")
    assert (last_planned_batch(tmp_path), last_committed_batch(tmp_path), unfinished_batch(tmp_path)) == (10, 9, 10)
    write(tmp_path / "commits" / "10", "v1\n{}")
    assert unfinished_batch(tmp_path) is None


@pytest.mark.parametrize("text", ["", "v1", "v1\nnot JSON"])
def test_an_entry_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    write(tmp_path / "0", text)
    assert read_entry(tmp_path / "0") is None
    assert read_entry(tmp_path / "none") is None


def test_sources_write_json_or_text(tmp_path: Path) -> None:
    write(tmp_path / "0", 'v1\n{"conf":{"a":"b"}}\n{"t":{"0":5}}\n-\nnot JSON')
    assert read_entry(tmp_path / "0") == LogEntry({"conf": {"a": "b"}}, ({"t": {"0": 5}}, "-", "not JSON"))
    write(tmp_path / "sources" / "0" / "0", '\0v1\n{"t":{"0":3}}')
    write(tmp_path / "sources" / "1" / "0", "")
    # The file source keeps its log of files here.
    write(tmp_path / "sources" / "2" / "0", 'v1\n{"path":"a","batchId":0}\n{"path":"b","batchId":0}')
    assert list(source_starts(tmp_path)) == [{"t": {"0": 3}}]


def test_the_checkpoint_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    assert query_id(tmp_path) == query.id
    assert (last_planned_batch(tmp_path), unfinished_batch(tmp_path)) == (0, None)
    assert planned_batch(tmp_path, 0).startswith(LOG_VERSION.encode())
    entry = read_entry(tmp_path / "offsets" / "0")
    assert entry
    assert len(entry.sources) == 1
    assert "spark.sql.shuffle.partitions" in entry.metadata["conf"]
