"""A stream of Kinesis as Spark's Python Data Source API reads it: shards are partitions, sequence numbers offsets.

Kinesis does not report how far a shard goes, so that the end of a batch is found only by reading. What was read for
that goes to the tasks with their partitions, and is not read twice; only a batch that is repeated is read again, by
the tasks.

- `EarliestRecords` chooses what comes next of the records that are read ahead: by event time over all shards.
- `KinesisStreamReader` decides what a batch reads, and reads it.
- `packed_records`, `unpacked_records` and `row_blocks` have records in Arrow: on their way to a task, and as rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millrace.clients.kinesis.client import Kinesis
from millrace.clients.kinesis.kpl_aggregation import MAGIC, deaggregate
from millrace.clients.kinesis.shard_positions import SequenceRange, ShardReadLimit, records_between
from millrace.clients.kinesis.shard_reader import MAX_RECORDS, Record, ShardReader, arrived, read_again
from millrace.connectors.base.batch_alignment import NO_TIME, EventTime, Times, WaitingPartitions, earliest
from millrace.connectors.base.message_source import data_source
from millrace.errors.transport import errors_in_transport
from millrace.telemetry.progress import alignment_report

ROW_DDL = "value binary, key binary, stream string, shard string, sequence string, timestamp timestamp"
_NAMES = [column.split()[0] for column in ROW_DDL.split(", ")]
_ROWS = 65_536


def packed_records(records: Sequence[Record]) -> bytes:
    """Records as bytes that travel."""
    arrived = [record["ApproximateArrivalTimestamp"] for record in records]
    columns = {
        "value": pa.array([record["Data"] for record in records], pa.binary()),
        # A stream that spreads its records itself may have some without a key.
        "key": pa.array([record.get("PartitionKey") for record in records], pa.string()).cast(pa.binary()),
        "sequence": pa.array([record["SequenceNumber"] for record in records], pa.string()),
        "timestamp": pa.array(arrived, pa.timestamp("us", "UTC")),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpacked_records(packed: bytes) -> pa.Table:
    """The other way."""
    return pa.ipc.open_stream(packed).read_all()


def row_blocks(records: pa.Table, stream: str, shard: str) -> Iterator[pa.RecordBatch]:
    """Rows in the form of the DDL; records that were packed by the Kinesis Producer Library are taken apart."""
    for batch in _deaggregated(records).to_batches(_ROWS):
        value, key, sequence, timestamp = batch.columns
        place = [pa.repeat(pa.scalar(name, pa.string()), batch.num_rows) for name in (stream, shard)]
        yield pa.RecordBatch.from_arrays([value, key, *place, sequence, timestamp], names=_NAMES)


def _deaggregated(records: pa.Table) -> pa.Table:
    packed = pc.starts_with(records.column("value"), pattern=MAGIC)
    if not pc.any(packed).as_py():
        return records
    rows = []
    for row in records.to_pylist():
        inside = deaggregate(row["value"])
        if inside is None:
            rows.append(row)
        else:
            rows += [row | {"key": key.encode(), "value": data} for key, data in inside]
    return pa.Table.from_pylist(rows, records.schema)


_EVENT_TIME = "EventTime"
"""The key of a record's event time, beside those that boto3 gives it."""


class EarliestRecords:
    """The records that come first in event time over all shards."""

    def __init__(self, event_time: EventTime) -> None:
        self.event_time = event_time
        self.reached_us: int | None = None
        """The newest event time of the records that were taken; None without any, and where none are left."""
        self.waiting: list[str] = []
        """The shards that gave nothing to the last batch because others were behind them in time."""
        self._waiting = WaitingPartitions(event_time.idle_after_s)
        self._lock = threading.Lock()

    def note_times(self, records: Sequence[Record]) -> None:
        """Write the event time to each record; of one that packs several the newest of these."""
        parts = [[data for _, data in deaggregate(record["Data"]) or [("", record["Data"])]] for record in records]
        counts = [len(part) for part in parts]
        given = np.repeat(np.array([arrived(record) * 1000 for record in records], np.int64), counts)
        values = pa.array([data for part in parts for data in part], pa.binary())
        with self._lock:
            times = self.event_time.of(values, given)
        ends = np.cumsum(counts, dtype=np.int64).tolist()
        for record, count, end in zip(records, counts, ends, strict=True):
            record[_EVENT_TIME] = int(times[end - count : end].max(initial=NO_TIME))

    def counts(self, held: Mapping[str, Sequence[Record]], going_on: Collection[str], most: int) -> dict[str, int]:
        """Return how many records of each shard come next: none that may be newer than what is not held yet."""
        times = {
            shard: np.array([record[_EVENT_TIME] for record in records], np.int64) for shard, records in held.items()
        }
        if any(not len(times[shard]) for shard in going_on):
            return dict.fromkeys(held, 0)
        counts, reached = earliest(_known(times, going_on), most)
        self.reached_us = self.reached_us if reached is None else reached
        at = {shard: arrived(records[0]) for shard, records in held.items() if records}
        now = int(time.time() * 1000)
        taken = [shard for shard in at if counts[shard]]
        if released := self._waiting.released(at, defaultdict(lambda: now), taken, self.reached_us):
            early = {shard: _arrived_before(until, held[shard]) for shard, until in released.items()}
            share = min(most, sum(early.values()))
            ahead = {shard: times[shard][:count] for shard, count in early.items()}
            unread = {shard for shard in going_on if early.get(shard) == len(held[shard])}
            others = {shard: own for shard, own in times.items() if shard not in ahead}
            counts = earliest(_known(ahead, unread), share)[0]
            counts |= earliest(_known(others, others.keys() & going_on), most - share)[0]
        self.waiting = [shard for shard in at if not counts[shard]]
        if not going_on and all(counts[shard] == len(records) for shard, records in held.items()):
            self.reached_us = None  # nothing is left
            self._waiting.reset()
        return counts


def _known(times: Mapping[str, Times], going_on: Collection[str]) -> dict[str, Times]:
    """Return the event times up to which nothing can be missing: shards that are going on have more than these."""
    newest = {shard: np.maximum.accumulate(own) for shard, own in times.items()}
    known = min((int(newest[shard][-1]) for shard in going_on), default=np.iinfo(np.int64).max)
    return {shard: own[: np.searchsorted(newest[shard], known, "right")] for shard, own in times.items()}


def _arrived_before(until_ms: int, records: Sequence[Record]) -> int:
    """Return how many of the first records arrived before a time."""
    return next((number for number, record in enumerate(records) if arrived(record) >= until_ms), len(records))


_WAIT_S, _FIRST_WAIT_S = 0.2, 5.0
"""Seconds that Spark is kept waiting for a record, before it asks again; and where a query begins, for a first answer.

A query that has begun makes a batch of what it is given then, be it nothing.
"""


@dataclass(frozen=True)
class ShardSourceSpec:
    """All that is to be known to follow a stream."""

    door: Kinesis
    stream: str
    since: int | None = None
    """Where a new query begins, in milliseconds since 1970; None at the oldest record."""
    most: int | None = None
    poll: float = 0.25
    skip_lost: bool = False
    event_time: EventTime | None = None
    """By what batches are cut across shards; None: each gives its share."""


class ShardInputPartition(InputPartition):  # type: ignore[misc]  # pyspark's types are not read
    """A span of one shard, with its records where they are at hand."""

    def __init__(self, span: SequenceRange, records: bytes | None) -> None:
        self.span = span
        self.records = records

    @property
    def task_input(self) -> str:
        """Whether its records are at hand says nothing. The text is on disk, in the digest of a started batch."""
        return f"Span(shard={self.span.shard!r}, first={self.span.first!r}, last={self.span.last!r})"


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Lives in a process beside the driver; only `read` is called in tasks."""

    def __init__(self, following: ShardSourceSpec) -> None:
        self._following = following
        self._tail: ShardReader | None = None
        self._order = EarliestRecords(following.event_time) if following.event_time else None
        self._given: ShardReadLimit | None = None
        """The end of the last batch, or the start; the reader may know more shards by now."""
        self._until: float | None = None
        self._last: int | None = None
        """The same, by the clock of the service and in milliseconds."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins. Shards are looked up later: Spark calls this twice, and needs the same answer."""
        with errors_in_transport():
            stream = self._following.door.stream(self._following.stream)
            return ShardReadLimit(stream.name, stream.created, self._following.since).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._following.most) if self._following.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is left for another time."""
        with errors_in_transport():
            # To the end of a second: the service tells no less of its clock.
            self._last = self._following.door.now(self._following.stream) + 999
        self._until = time.time()
        self.stop()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch: what was read ahead. With nothing there it is the start."""
        with errors_in_transport():
            reader = self._at(ShardReadLimit.of(start))
            while not reader.wait(_WAIT_S):
                if self._until is None or reader.is_caught_up(self._until):
                    return start
            self._given = reader.take(getattr(limit, "max_rows", None))
            return self._given.to_json()

    def _at(self, start: ShardReadLimit) -> ShardReader:
        """Return the reader at a position; open another if Spark does not start at the last end."""
        if self._tail is None or start != self._given:
            self.stop()
            own = self._following
            most = min(own.most or MAX_RECORDS, MAX_RECORDS)
            self._tail = ShardReader(
                own.door, start, poll=own.poll, most=most, skip_lost=own.skip_lost, until=self._last, order=self._order
            )
            self._given = start
            self._tail.wait(_FIRST_WAIT_S, first=True)
        return self._tail

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        spans = records_between(ShardReadLimit.of(start), ShardReadLimit.of(end))
        taken = [self._tail.taken(span) if self._tail else None for span in spans]
        return [
            ShardInputPartition(span, packed_records(records) if records else None)
            for span, records in zip(spans, taken, strict=True)
        ]

    def read(self, partition: ShardInputPartition) -> Iterator[pa.RecordBatch]:
        own, span = self._following, partition.span
        with errors_in_transport():
            packed = partition.records or packed_records(
                read_again(own.door, own.stream, span, skip_lost=own.skip_lost)
            )
            yield from row_blocks(unpacked_records(packed), own.stream, span.shard)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return no ends, as Kinesis does not report them, but which shards wait for others."""
        if self._order is None or self._order.reached_us is None:
            return None
        return alignment_report(self._order.event_time.what, self._order.reached_us, sorted(self._order.waiting))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark's checkpoint is what counts."""

    def stop(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to tasks: no threads and no records."""
        empty = dict.fromkeys(("_tail", "_order", "_given", "_until", "_last"))
        return {"_following": self._following, **empty}


def stream_source(following: ShardSourceSpec) -> type[DataSource]:
    """A data source for one stream."""
    key = repr((following.door.where, following))
    return data_source(f"kinesis_{sha256(key.encode()).hexdigest()[:12]}", ROW_DDL, lambda _: _reader(following))


def _reader(following: ShardSourceSpec) -> KinesisStreamReader:
    logging.getLogger("botocore").setLevel(logging.ERROR)
    return KinesisStreamReader(following)
