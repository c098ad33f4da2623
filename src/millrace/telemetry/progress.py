"""What Spark tells after each batch of a query, as one frozen record.

Rows a second over the last seconds, from the batches of a query.

Spark's own input rate divides by the time since the last trigger. A query that waits for data triggers twice within
milliseconds when some come, so twenty rows a second would be shown as a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

Place = tuple[str, int]
"""A topic and a partition."""
METRICS = "millrace.panels"
"""The name under which Spark tells what panels see: by id the rows, and by `#id` of how many they were chosen."""

WITHIN = "millrace.within."
"""With the name of a source: under what Spark tells how many of its rows lay before the end of a replay."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source in one batch; offsets are as the source tells them (of Kafka: by topic and partition)."""

    description: str
    rows: int
    start: Any = None
    end: Any = None
    latest: Any = None
    lag: int | None = None
    """Records that are in the source and not in this batch or one before; None where the source cannot tell."""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch of one query."""

    query: str
    run: str
    """Spark's id of the run: another one after each start."""
    batch: int
    at: datetime
    """When the batch began."""
    input_rows: int = 0
    input_rate: float = 0.0
    """Rows a second that arrived."""
    rate: float = 0.0
    """Rows a second that were worked on while the batch ran."""
    durations: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Milliseconds of each step, by Spark's names (addBatch, walCommit, …)."""
    milliseconds: int = 0
    """Of the whole batch."""
    watermark: datetime | None = None
    state_rows: int | None = 0
    state_bytes: int | None = 0
    """Both are None where nobody counts them."""
    late_rows: int = 0
    """Rows that came after the watermark and were dropped; Spark counts them after grouping those of one task."""
    sources: tuple[SourceProgress, ...] = ()
    sink: str = ""
    sink_rows: int | None = None
    """None where the sink does not count."""
    waited: int | None = None
    """Milliseconds from when it was due until it began; None where a batch begins when the one before has ended."""

    @property
    def executed(self) -> bool:
        """Whether there was a batch; Spark also tells now and then that there is nothing to do."""
        return self.waited is not None or "addBatch" in self.durations or self.input_rows > 0

    @property
    def delay(self) -> int | None:
        """Milliseconds from when it was due until it was done."""
        return None if self.waited is None else self.waited + self.milliseconds

    @property
    def lag(self) -> int | None:
        """Records behind, over all sources that can tell."""
        told = [source.lag for source in self.sources if source.lag is not None]
        return sum(told) if told else None

    @property
    def read(self) -> dict[Place, int]:
        """How far each partition of Kafka has been read."""
        read: dict[Place, int] = {}
        for source in self.sources:
            for place, offset in offsets_in(source.end):
                read[place] = min(offset, read.get(place, offset))  # a topic may be read twice
        return read

    @classmethod
    def of(cls, given: str | Mapping[str, Any], query: str) -> BatchProgress:
        """Spark's JSON, parsed or not, as a record of ours; `query` is the name to show."""
        told: Mapping[str, Any] = json.loads(given) if isinstance(given, str) else given
        durations = {name: int(spent) for name, spent in (told.get("durationMs") or {}).items()}
        operators = told.get("stateOperators") or []
        sink = told.get("sink") or {}
        metrics = told.get("observedMetrics") or {}
        written = sink.get("numOutputRows", -1)
        written = _observed(metrics) if written < 0 else written
        return cls(
            query=query,
            run=told.get("runId") or "",
            batch=told["batchId"],
            at=datetime.fromisoformat(told["timestamp"]),
            input_rows=_input_rows(told, metrics),
            input_rate=told.get("inputRowsPerSecond") or 0.0,
            rate=told.get("processedRowsPerSecond") or 0.0,
            durations=MappingProxyType(durations),
            milliseconds=durations.get("triggerExecution", told.get("batchDuration") or 0),
            watermark=_watermark(told.get("eventTime") or {}),
            state_rows=sum(one.get("numRowsTotal", 0) for one in operators),
            state_bytes=sum(one.get("memoryUsedBytes", 0) for one in operators),
            late_rows=sum(one.get("numRowsDroppedByWatermark", 0) for one in operators),
            sources=tuple(map(_source, told.get("sources") or [])),
            sink=sink.get("description") or "",
            sink_rows=None if written < 0 else written,
        )


def _input_rows(told: Mapping[str, Any], metrics: Mapping[str, Any]) -> int:
    """Rows that were read; of a replay only those before its end, while Spark counts what it leaves out as well."""
    within = [int(one["rows"] or 0) for name, one in metrics.items() if name.startswith(WITHIN)]
    if not within:
        return told.get("numInputRows") or 0
    others = [one for one in told.get("sources") or [] if not any(offsets_in(one.get("endOffset")))]
    return sum(within) + sum(one.get("numInputRows") or 0 for one in others)


def _source(told: Mapping[str, Any]) -> SourceProgress:
    end, latest = told.get("endOffset"), told.get("latestOffset")
    return SourceProgress(
        description=told.get("description") or "",
        rows=told.get("numInputRows") or 0,
        start=told.get("startOffset"),
        end=end,
        latest=latest,
        lag=_lag(end, latest),
    )


def _lag(end: Any, latest: Any) -> int | None:
    """How far offsets by topic and partition are behind the newest; a partition that is new counts from its start."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    behind = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict):
            return None
        read = end.get(topic) or {}
        behind += sum(max(0, newest - read.get(partition, 0)) for partition, newest in partitions.items())
    return behind


def offsets_in(told: Any) -> Iterator[tuple[Place, int]]:
    """Kafka's offsets as Spark tells them, by topic and partition; other sources tell other things."""
    for topic, partitions in told.items() if isinstance(told, dict) else ():
        for number, offset in partitions.items() if isinstance(partitions, dict) else ():
            if str(number).isdigit() and isinstance(offset, int):
                yield (topic, int(number)), offset


def _observed(metrics: Mapping[str, Any]) -> int:
    """How many rows passed on their way to a sink that does not count, by what we ask Spark to count; -1 if nothing."""
    counted = (metrics.get(METRICS) or {}).items()
    return max((int(value or 0) for name, value in counted if name.startswith("#")), default=-1)


def _watermark(event_time: Mapping[str, str]) -> datetime | None:
    """The watermark; Spark tells the beginning of 1970 before there is one."""
    text = event_time.get("watermark")
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.timestamp() > 0 else None


RATE_WINDOW = 10.0
"""Seconds that are looked back, or more where batches are longer or further apart."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second that came in, and that came out (None where the sink does not count)."""

    read: float
    written: float | None


def rates(batches: Sequence[BatchProgress], now: datetime, every: float | None = None) -> Rates | None:
    """The rates of late; None before the first batch. `every` is the trigger's interval, if it has one."""
    if not batches:
        return None
    window = timedelta(seconds=max(RATE_WINDOW, 2 * batches[-1].milliseconds / 1000, 2 * (every or 0)))
    recent: list[BatchProgress] = []
    begin = None
    for batch in reversed(batches):
        if now - batch_end(batch) > window:
            begin = batch_end(batch)
            break
        recent.append(batch)
    if not recent:
        return Rates(0.0, 0.0)
    if begin is None:
        begin = recent.pop().at if len(recent) == 1 else batch_end(recent.pop())
        recent = recent or [batches[-1]]
    span = max((now - max(begin, now - window)).total_seconds(), 0.001)
    written = [batch.sink_rows for batch in recent if batch.sink_rows is not None]
    counted = sum(written) / span if len(written) == len(recent) else None
    return Rates(sum(batch.input_rows for batch in recent) / span, counted)


def batch_end(batch: BatchProgress) -> datetime:
    """When a batch was done."""
    return batch.at + timedelta(milliseconds=batch.milliseconds)
