"""Shards that are read ahead and taken in the order of event time, also where a backlog holds splits and merges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from millrace.clients.kinesis.client import Kinesis, Shard, Stream
from millrace.clients.kinesis.shard_positions import ShardReadLimit
from millrace.clients.kinesis.shard_reader import ShardReader
from millrace.connectors.base.batch_alignment import EventTime
from millrace.connectors.kinesis.source import EarliestRecords
from millrace.formats.json import Json
from millrace.pipeline.schema import parse_schema

DELAY_S = 4
AT = EventTime("at", DELAY_S * 1_000_000, 60.0, Json(), parse_schema("at timestamp_ntz"), "at")
BEGIN = datetime(2026, 1, 1)


class ServiceOf:
    """A service with one stream: the seconds of the records of each shard, and its parents; those are closed.

    The children of a shard are not listed the first time.
    """

    patience = 5.0

    def __init__(self, shards: Mapping[str, tuple[range, tuple[str, ...]]]) -> None:
        self._shards = shards
        self._closed = {parent for _, parents in shards.values() for parent in parents}
        self._listings = 0

    def stream(self, name: str) -> Stream:
        return Stream(name, 0, 86_400_000)

    def shards(self, _: str) -> list[Shard]:
        self._listings += 1
        return [
            Shard(name, parents) for name, (_, parents) in self._shards.items() if not parents or self._listings > 1
        ]

    def client(self) -> ServiceOf:
        return self

    def get_shard_iterator(self, ShardId: str, **_: str) -> dict[str, str]:  # noqa: N803 - as boto3 has it
        return {"ShardIterator": f"{ShardId}:0"}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:  # noqa: N803
        shard, first = ShardIterator.split(":")
        seconds = self._shards[shard][0]
        numbers = range(len(seconds))[int(first) : int(first) + Limit]
        is_end = numbers.stop == len(seconds)
        return {
            "Records": [self._record(shard, number, seconds[number]) for number in numbers],
            "MillisBehindLatest": 0 if is_end else 1000,
            "NextShardIterator": None if is_end and shard in self._closed else f"{shard}:{numbers.stop}",
        }

    def _record(self, shard: str, number: int, second: int) -> dict[str, Any]:
        data = json.dumps({"at": (BEGIN + timedelta(seconds=second)).isoformat(), "second": second})
        return {
            "Data": data.encode(),
            "PartitionKey": shard,
            "SequenceNumber": str(number + 1),
            "ApproximateArrivalTimestamp": datetime.now(UTC),
        }


def batches(service: ServiceOf, most: int | None, count: int) -> list[list[int]]:
    """The seconds of the records of each batch, until there were this many."""
    taken: list[list[int]] = []
    order = EarliestRecords(AT)
    start = ShardReadLimit("x", 0)
    with closing(ShardReader(cast("Kinesis", service), start, poll=0.01, order=order)) as reader:
        while sum(map(len, taken)) < count:
            assert reader.wait(30)
            reader.take(most)
            taken.append([json.loads(record["Data"])["second"] for own in reader._taken.values() for record in own])
    return taken


@pytest.mark.parametrize("most", [40, 250, None])
def test_no_record_is_late_where_a_backlog_holds_a_split_and_a_merge(most: int | None) -> None:
    shards: dict[str, tuple[range, tuple[str, ...]]] = {
        "other": (range(600), ()),
        "empty": (range(0), ()),
        "parent": (range(200), ()),
        "left": (range(200, 400), ("parent",)),
        "right": (range(200, 300), ("parent", "empty")),
        "merged": (range(400, 600), ("left", "right")),
    }
    newest = 0
    taken = batches(ServiceOf(shards), most, 1300)
    for batch in taken:
        assert most is None or len(batch) <= most
        assert all(second >= newest - DELAY_S for second in batch)
        newest = max([newest, *batch])
    assert sum(map(len, taken)) == 1300
