"""Records of Kinesis on their way, and as rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.clients.kinesis.kpl_aggregation import aggregate
from millrace.connectors.base.batch_alignment import NO_TIME, EventTime
from millrace.connectors.kinesis.source import (
    _EVENT_TIME,
    EarliestRecords,
    packed_records,
    row_blocks,
    unpacked_records,
)

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


def held(**shards: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Records that are read ahead, by shard and event time."""
    return {
        shard: [{_EVENT_TIME: time, "ApproximateArrivalTimestamp": AT - timedelta(seconds=1)} for time in times]
        for shard, times in shards.items()
    }


def test_an_event_time_is_reached_only_where_records_are_left() -> None:
    order = EarliestRecords(EventTime("at", 0, 60.0))
    assert order.counts(held(a=[NO_TIME] * 5, b=[9]), (), 3) == {"a": 3, "b": 0}
    assert order.reached_us is None
    assert order.counts(held(a=[1, 2, 3], b=[9]), (), 2) == {"a": 2, "b": 0}
    assert order.reached_us == 2
    assert order.counts(held(a=[3], b=[9]), ("a",), 9) == {"a": 1, "b": 0}
    assert order.reached_us == 3
    assert order.counts(held(a=[4], b=[9]), (), 9) == {"a": 1, "b": 1}
    assert order.reached_us is None


def test_a_shard_that_waits_for_what_arrives_later_and_later_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    order = EarliestRecords(EventTime("at", 0, 60.0))
    now = AT.timestamp()
    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    monkeypatch.setattr("millrace.connectors.base.batch_alignment.time", clock)
    monkeypatch.setattr("millrace.connectors.kinesis.source.time", clock)
    old, later = held(a=[1] * 100, b=[9] * 50, c=[8] * 50), held(b=[9] * 20)["b"]
    assert order.counts(old, (), 30) == {"a": 30, "b": 0, "c": 0}
    now += 61
    assert order.counts(old, (), 30) == {"a": 30, "b": 0, "c": 0}  # what was there is waited for
    now += 1
    for one in (new := held(a=[1] * 100)["a"]) + later:
        one["ApproximateArrivalTimestamp"] = datetime.fromtimestamp(now, UTC)
    held_now = {"a": new, "b": old["b"] + later, "c": old["c"]}
    assert order.counts(held_now, (), 110) == {"a": 10, "b": 50, "c": 50}
    assert order.counts(held_now, (), 60) == {"a": 0, "b": 10, "c": 50}  # these by event time, too
    assert order.waiting == ["a"]
