"""Topics of Kafka as Spark's Python Data Source API reads them.

- `KafkaStreamReader` has offsets as Spark's own source has them in a checkpoint, so a query may be read by this one
  today and by Spark's tomorrow. Partitions of topics are Spark's tasks.
- `row_blocks` makes rows of records: the columns that Spark's own Kafka source has, of which a query takes some.
- `AdaptiveBatchSize` is how many records a batch may have, so that it takes about as long as a batch should.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millrace.clients.kafka.bulk_fetch import (
    FETCH_TIMEOUT_S,
    Address,
    FetchRange,
    LeaderChanged,
    fetch_records,
    partition_ends,
    partition_leaders,
    records_lost,
)
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.clients.kafka.protocol import ConnectionLost
from millrace.clients.kafka.record_batch import RecordColumns
from millrace.connectors.base.batch_alignment import EventTime
from millrace.connectors.base.message_source import data_source
from millrace.connectors.kafka.aligned_batches import AlignedBatches
from millrace.connectors.kafka.start_offsets import Offsets, by_topic
from millrace.errors import KafkaUnreachable
from millrace.errors.transport import errors_in_transport
from millrace.telemetry.progress import alignment_report


def row_blocks(blocks: Iterator[RecordColumns], span: FetchRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows, in blocks as large as the answers of the broker."""
    for records in blocks:
        if len(records.offsets):
            arrays = [_COLUMNS[name](records, span) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _keys(records: RecordColumns) -> pa.Array:
    if (records.keys[1] < 0).all():
        return pa.nulls(len(records.offsets), pa.binary())
    return records.bytes_of(records.keys)


def _headers(records: RecordColumns) -> pa.Array:
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    if not records.headers[1].any():
        return pa.nulls(len(records.offsets), kind)
    return pa.array(records.headers_of(), kind)


_COLUMNS: dict[str, Callable[[RecordColumns, FetchRange], pa.Array]] = {
    "value": lambda records, _: records.bytes_of(records.values),
    "key": lambda records, _: _keys(records),
    "topic": lambda records, span: pa.repeat(pa.scalar(span.topic, pa.string()), len(records.offsets)),
    "partition": lambda records, span: pa.repeat(pa.scalar(span.partition, pa.int32()), len(records.offsets)),
    "offset": lambda records, _: pa.array(records.offsets, pa.int64()),
    "timestamp": lambda records, _: pa.array(records.times * np.int64(1000)).view(pa.timestamp("us", "UTC")),
    "headers": lambda records, _: _headers(records),
}
_FIRST = 1_000_000
"""Records of a batch, before it is known how quick the query is."""
_LEAST = 10_000
_TARGET = 10.0
"""Seconds; a trigger that leaves more time between batches has its own."""
_IN_TIME, _TOO_LONG = 1.1, 1.5
"""Times the target: a batch that ends before the trigger's time seems to take all of it, and a little more."""


class AdaptiveBatchSize:
    """A cap that follows the batches which it cut: twice as much after a quick one, in proportion after a slow one."""

    def __init__(self, interval: float = 0.0) -> None:
        """`interval` is the time from one batch to the next that the trigger asks for."""
        self._target = max(_TARGET, interval)
        self.most = round(_FIRST * self._target / _TARGET)
        self._cut: tuple[object, float] | None = None

    def cut(self, end: object, now: float) -> None:
        """A batch was cut off here, and begins now."""
        self._cut = (end, now)

    def begins(self, start: object, now: float) -> None:
        """The next batch begins: the one before is done, if it ended here."""
        if self._cut is None:
            return
        end, began = self._cut
        self._cut = None
        took = now - began
        if start != end:  # another run of the query
            return
        if took <= self._target * _IN_TIME:
            self.most *= 2
        elif took > self._target * _TOO_LONG:
            self.most = max(_LEAST, round(self.most * self._target / took))


Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_LOOK_INTERVAL_S = 1.0
"""How often new topics and partitions are looked for."""
PartitionOffsets = Mapping[PartitionId, int]


@dataclass(frozen=True)
class BulkSourceSpec:
    """All that is to be known to follow topics."""

    cluster: Cluster
    begin: Mapping[str, Mapping[str, int]]
    """Where a new query begins; what is not in it begins at 0."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Topics by a regular expression instead."""
    only: Mapping[str, Sequence[int]] | None = None
    until: Mapping[str, Mapping[str, int]] | None = None
    """Where reading ends, as in a replay; None: never."""
    most: int | None = None
    """Records of a batch; None leaves it to their pace."""
    event_time: EventTime | None = None
    """By what batches are cut across partitions; None: each gives its share."""
    interval: float = 0.0
    """Seconds from one batch to the next, where the trigger says so."""
    committed: bool = True
    skip_lost: bool = False
    columns: tuple[str, ...] = ("value",)
    ddl: str = "value binary"
    step: Step | None = None
    """What is made of the columns that are read, before they come out."""


class KafkaInputPartition(InputPartition):  # type: ignore[misc]  # pyspark's types are not read
    """What one task reads."""

    def __init__(self, span: FetchRange) -> None:
        self.span = span

    @property
    def task_input(self) -> str:
        """As of Spark's own source: a batch that it began may be ended by this one."""
        span = self.span
        return f"{span.topic}/{span.partition} {span.start}-{span.stop}"


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Lives in a process beside the driver; only `read` is called in tasks."""

    def __init__(self, following: BulkSourceSpec) -> None:
        self._following = following
        self._leaders: dict[PartitionId, Address | None] = {}
        self._looked = float("-inf")
        self._latest: dict[PartitionId, int] = {}
        self._until: dict[PartitionId, int] | None = None
        self._pace = AdaptiveBatchSize(following.interval)
        self._aligned = _aligned_batches(following)

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query begins: looked up before it was started."""
        return {topic: dict(numbers) for topic, numbers in self._following.begin.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._following.most) if self._following.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is left for another time."""
        with errors_in_transport():
            self._until = self._ends({})

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        with errors_in_transport():
            self._pace.begins(start, time.monotonic())
            begun = _by_partition(start)
            ends = self._ends(begun) if self._until is None else self._until_then(begun, self._until)
            self._latest = ends = self._bounded(begun, ends)
            end_offsets = by_topic(self._cut(begun, ends, getattr(limit, "max_rows", None)))
            if end_offsets != by_topic(ends):
                self._pace.cut(end_offsets, time.monotonic())
            return end_offsets

    def _cut(self, begun: PartitionOffsets, ends: dict[PartitionId, int], most: int | None) -> PartitionOffsets:
        """Return the end offsets of the next batch."""
        most, strict = most or self._pace.most, most is not None
        if sum(max(0, end - begun.get(partition, 0)) for partition, end in ends.items()) <= most:
            if self._aligned:
                self._aligned.all_read()
            return ends
        if self._aligned and len(ends) > 1:
            return self._aligned.cut(begun, ends, most, self._leaders, strict=strict)
        return _capped(begun, ends, most)

    def _bounded(self, begun: PartitionOffsets, ends: dict[PartitionId, int]) -> dict[PartitionId, int]:
        """Return the ends, none of them behind where reading ends; a partition that came later is not read."""
        until = self._following.until
        if until is None:
            return ends
        bounds = _by_partition(until)
        return {
            partition: max(begun.get(partition, 0), min(end, bounds.get(partition, 0)))
            for partition, end in ends.items()
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the topics for Spark's progress, and which partitions wait for others."""
        if not self._latest:
            return None
        report: dict[str, Any] = by_topic(self._latest)
        if self._aligned and self._aligned.reached_us is not None:
            waiting = [f"{topic}[{number}]" for topic, number in sorted(self._aligned.waiting)]
            report |= alignment_report(self._aligned.event_time.what, self._aligned.reached_us, waiting)
        return report

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        begun = _by_partition(start)
        spans = [
            FetchRange(*partition, begun.get(partition, 0), stop, self._leaders.get(partition))
            for partition, stop in sorted(_by_partition(end).items())
        ]
        return [KafkaInputPartition(span) for span in spans if span.stop > span.start]

    def read(self, partition: KafkaInputPartition) -> Iterator[pa.RecordBatch]:
        own, span = self._following, self._before_end(partition.span)
        with errors_in_transport():
            records = fetch_records(own.cluster, span, committed=own.committed, skip_lost=own.skip_lost)
            rows = row_blocks(records, span, own.columns)
            yield from own.step(rows) if own.step else rows

    def _before_end(self, span: FetchRange) -> FetchRange:
        """Return what is read of a range: Spark's own source plans batches beyond where reading ends, and filters."""
        until = self._following.until
        if until is None:
            return span
        return replace(span, stop=min(span.stop, until.get(span.topic, {}).get(str(span.partition), 0)))

    def commit(self, end: Offsets) -> None:
        """Nothing: Spark's checkpoint is what counts."""

    def stop(self) -> None:
        """Nothing is open but connections, which go with the process."""

    def _until_then(self, begun: PartitionOffsets, noted: dict[PartitionId, int]) -> dict[PartitionId, int]:
        """The ends that were noted; where one is before what is read, or away, the topics are looked at once more."""
        if any(offset > noted.get(partition, -1) for partition, offset in begun.items()):
            self._until = noted = self._ends(begun)
        return noted

    def _ends(self, begun: PartitionOffsets) -> dict[PartitionId, int]:
        """Where partitions end, none of them before where it was read to; asked again where a broker has gone."""
        deadline = time.monotonic() + FETCH_TIMEOUT_S
        while True:
            try:
                self._find_leaders()
                ends = partition_ends(self._following.cluster, self._leaders, committed=self._following.committed)
                back = [partition for partition, offset in ends.items() if offset < begun.get(partition, 0)]
                away = [partition for partition in begun if partition not in ends]
                if not back and not away:
                    return ends
                if self._following.skip_lost:
                    return ends | {partition: begun[partition] for partition in away}
                problem: Exception = _rewound(back, away, begun, ends)
            except (ConnectionLost, LeaderChanged) as error:
                problem = KafkaUnreachable(
                    f"no broker answers at {self._following.cluster.bootstrap}: could not ask where topics end",
                    why=str(error),
                    hint="look at the brokers: millrace kafka status",
                )
            except KafkaUnreachable as error:
                problem = error
            self._looked = float("-inf")
            if time.monotonic() > deadline:
                raise problem
            time.sleep(0.2)
            if not isinstance(problem, KafkaUnreachable):
                deadline = min(deadline, time.monotonic() + self._following.cluster.timeout)

    def _find_leaders(self) -> None:
        """See which partitions there are, and who leads them."""
        if time.monotonic() - self._looked < _LOOK_INTERVAL_S:
            return
        leaders = partition_leaders(
            self._following.cluster, None if self._following.pattern else self._following.topics
        )
        self._leaders = {partition: leader for partition, leader in leaders.items() if self._is_read(*partition)}
        self._looked = time.monotonic()

    def _is_read(self, topic: str, number: int) -> bool:
        pattern, only = self._following.pattern, self._following.only
        if pattern and (topic.startswith("__") or not re.fullmatch(pattern, topic)):
            return False
        return not only or number in only[topic]

    def __getstate__(self) -> dict[str, Any]:
        return {"_following": self._following}


def _rewound(
    back: Sequence[PartitionId], away: Sequence[PartitionId], begun: PartitionOffsets, ends: PartitionOffsets
) -> Exception:
    if away:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(away))
        return records_lost(f"partitions that the query has read from are gone: {names}")
    (topic, number), offset, end = back[0], begun[back[0]], ends[back[0]]
    return records_lost(
        f"topic {topic!r}, partition {number}: the query is at offset {offset}, the topic ends at {end}"
    )


def _aligned_batches(following: BulkSourceSpec) -> AlignedBatches | None:
    if following.event_time is None:
        return None
    return AlignedBatches(
        following.cluster, following.event_time, committed=following.committed, skip_lost=following.skip_lost
    )


def bulk_data_source(following: BulkSourceSpec) -> type[DataSource]:
    """A data source for what is followed, under a name of its own: the same topics may be read twice at once."""
    return data_source(f"kafka_{uuid4().hex[:12]}", following.ddl, lambda _: KafkaStreamReader(following))


def _by_partition(offsets: Mapping[str, Mapping[str, int]]) -> dict[PartitionId, int]:
    return {(topic, int(number)): offset for topic, numbers in offsets.items() for number, offset in numbers.items()}


def _capped(begun: PartitionOffsets, ends: PartitionOffsets, most: int) -> dict[PartitionId, int]:
    """Return end offsets that leave at most `most` records, each partition its share."""
    sizes = {partition: max(0, end - begun.get(partition, 0)) for partition, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    return {
        partition: begun.get(partition, 0) + min(size, max(1, most * size // total)) if size else ends[partition]
        for partition, size in sizes.items()
    }
