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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millrace.clients.kafka import bulk_fetch
from millrace.clients.kafka.bulk_fetch import (
    FETCH_TIMEOUT_S,
    Address,
    FetchRange,
    fetch_records,
    partition_ends,
    partition_leaders,
    records_lost,
)
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.clients.kafka.protocol import ConnectionLost
from millrace.clients.kafka.record_batch import RecordColumns
from millrace.connectors.kafka.start_offsets import Offsets, by_topic
from millrace.errors import KafkaUnreachable
from millrace.errors.transport import to_transport

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def row_blocks(found: Iterator[RecordColumns], span: FetchRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows, in blocks as large as the answers of the broker."""
    for records in found:
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
_LOOK = 1.0
"""Seconds after which topics and partitions that have come are looked for."""


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
    """Only these partitions."""
    most: int | None = None
    """Records of a batch; None leaves it to their pace."""
    interval: float = 0.0
    """Seconds from one batch to the next, where the trigger says so."""
    committed: bool = True
    go_on: bool = False
    columns: tuple[str, ...] = ("value",)
    ddl: str = "value binary"
    """The columns that come out."""
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
        self._led: dict[PartitionId, Address | None] = {}
        self._looked = float("-inf")
        self._latest: dict[PartitionId, int] = {}
        self._until: dict[PartitionId, int] | None = None
        self._pace = AdaptiveBatchSize(following.interval)

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query begins: looked up before it was started."""
        return {topic: dict(numbers) for topic, numbers in self._following.begin.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._following.most) if self._following.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is left for another time."""
        try:
            self._until = self._ends({})
        except Exception as error:
            raise to_transport(error) from None

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        try:
            self._pace.begins(start, time.monotonic())
            begun = _by_place(start)
            self._latest = ends = self._until_then(begun) if self._until is not None else self._ends(begun)
            most = getattr(limit, "max_rows", None)
            end_offsets = by_topic(_capped(begun, ends, most or self._pace.most))
            if end_offsets != by_topic(ends):
                self._pace.cut(end_offsets, time.monotonic())
            return end_offsets
        except Exception as error:
            raise to_transport(error) from None

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return by_topic(self._latest) if self._latest else None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        begun = _by_place(start)
        spans = [
            FetchRange(*place, begun.get(place, 0), stop, self._led.get(place))
            for place, stop in sorted(_by_place(end).items())
        ]
        return [KafkaInputPartition(span) for span in spans if span.stop > span.start]

    def read(self, partition: KafkaInputPartition) -> Iterator[pa.RecordBatch]:
        own = self._following
        try:
            found = fetch_records(own.cluster, partition.span, committed=own.committed, go_on=own.go_on)
            rows = row_blocks(found, partition.span, own.columns)
            yield from own.step(rows) if own.step else rows
        except Exception as error:
            raise to_transport(error) from None

    def commit(self, end: Offsets) -> None:
        """Nothing: Spark's checkpoint is what counts."""

    def stop(self) -> None:
        """Nothing is open but connections, which go with the process."""

    def _until_then(self, begun: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """The ends that were noted; where one is before what is read, or away, the topics are looked at once more."""
        noted = self._until or {}
        if any(offset > noted.get(place, -1) for place, offset in begun.items()):
            self._until = noted = self._ends(begun)
        return noted

    def _ends(self, begun: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """Where partitions end, none of them before where it was read to; asked again where a broker has gone."""
        deadline = time.monotonic() + FETCH_TIMEOUT_S
        while True:
            try:
                self._look()
                ends = partition_ends(self._following.cluster, self._led, committed=self._following.committed)
                back = [place for place, offset in ends.items() if offset < begun.get(place, 0)]
                away = [place for place in begun if place not in ends]
                if not back and not away:
                    return ends
                if self._following.go_on:
                    return ends | {place: begun[place] for place in away}
                problem: Exception = self._rewound(back, away, begun, ends)
            except (ConnectionLost, bulk_fetch.LeaderChanged) as trouble:
                problem = KafkaUnreachable(
                    f"no broker answers at {self._following.cluster.bootstrap}: could not ask where topics end",
                    why=str(trouble),
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

    def _rewound(
        self,
        back: Sequence[PartitionId],
        away: Sequence[PartitionId],
        begun: Mapping[PartitionId, int],
        ends: Mapping[PartitionId, int],
    ) -> Exception:
        if away:
            named = ", ".join(f"{topic}-{number}" for topic, number in sorted(away))
            return records_lost(f"partitions that the query has read from are gone: {named}")
        place = back[0]
        return records_lost(
            f"topic {place[0]!r}, partition {place[1]}: the query is at offset {begun[place]}, "
            f"the topic ends at {ends[place]}"
        )

    def _look(self) -> None:
        """See which partitions there are, and who leads them."""
        if time.monotonic() - self._looked < _LOOK:
            return
        own = self._following
        found = partition_leaders(own.cluster, None if own.pattern else own.topics)
        if own.pattern:
            wanted = re.compile(own.pattern).fullmatch
            found = {place: led for place, led in found.items() if not place[0].startswith("__") and wanted(place[0])}
        if own.only:
            found = {place: led for place, led in found.items() if place[1] in own.only[place[0]]}
        self._led, self._looked = found, time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return {"_following": self._following}


def bulk_data_source(following: BulkSourceSpec) -> type[DataSource]:
    """A data source for what is followed; a class of its own, as Spark's plans would show its options."""
    own = f"kafka_{uuid4().hex[:12]}"

    class KafkaTopics(DataSource):  # type: ignore[misc]
        """Topics of Kafka."""

        @classmethod
        def name(cls) -> str:
            """A name that only this one has: the same topics may be read twice at once."""
            return own

        def schema(self) -> str:
            return following.ddl

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            del schema
            return KafkaStreamReader(following)

    return KafkaTopics


def _by_place(offsets: Mapping[str, Mapping[str, int]]) -> dict[PartitionId, int]:
    return {(topic, int(number)): offset for topic, numbers in offsets.items() for number, offset in numbers.items()}


def _capped(begun: Mapping[PartitionId, int], ends: Mapping[PartitionId, int], most: int) -> dict[PartitionId, int]:
    """Return end offsets that leave at most `most` records, each partition its share."""
    sizes = {place: max(0, end - begun.get(place, 0)) for place, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    return {
        place: begun.get(place, 0) + min(size, max(1, most * size // total)) if size else ends[place]
        for place, size in sizes.items()
    }
