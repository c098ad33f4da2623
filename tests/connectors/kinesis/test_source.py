"""Records of Kinesis on their way, and as rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from millrace.clients.kinesis.kpl_aggregation import aggregate
from millrace.connectors.kinesis.source import packed_records, row_blocks, unpacked_records

AT = datetime(2026, 1, 2, tzinfo=UTC)


def record(number: int, data: bytes, **more: str) -> dict[str, Any]:
    return {"Data": data, "SequenceNumber": str(number), "ApproximateArrivalTimestamp": AT, **more}


def test_records_with_a_key_without_one_and_packed_together() -> None:
    given = [
        record(1, b"one", PartitionKey="k"),
        record(2, b"two"),
        record(3, aggregate([("a", b"three"), ("b", b"four")]), PartitionKey="x"),
    ]
    rows = [
        row
        for block in row_blocks(unpacked_records(packed_records(given)), "here", "shard-0")
        for row in block.to_pylist()
    ]
    assert [(row["key"], row["value"], row["sequence"]) for row in rows] == [
        (b"k", b"one", "1"),
        (None, b"two", "2"),
        (b"a", b"three", "3"),
        (b"b", b"four", "3"),
    ]
    assert {(row["stream"], row["shard"], row["timestamp"]) for row in rows} == {("here", "shard-0", AT)}
