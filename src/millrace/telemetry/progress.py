"""The progress that Spark reports after each batch of a query, as one frozen record.

- `BatchProgress.of` parses Spark's JSON.
- `rates` computes rows a second over the last seconds. Spark's own input rate divides by the time since the last
  trigger: a query that waits for data triggers twice within milliseconds when some come, so twenty rows a second would
  be shown as a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from types import MappingProxyType
from typing import Any

END_OF_EVENT_TIME = datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)
"""The watermark of a last batch that closes every window; the latest time that Python and Spark both know."""
Place = tuple[str, int]
"""A topic and a partition."""
METRICS = "millrace.panels"
"""The observation that holds what panels see: by id the rows, and by `#id` the number of rows they were chosen from."""

WITHIN = "millrace.within."
"""With the name of a source: the observation that counts its rows before the end of a replay."""
_ALIGNMENT = "millrace.alignment"
"""Beside the topics of a source's latest offsets: by what its batches are cut, and which partitions wait."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the last batch of a source was cut by event time."""

    by: str
    """What the event time is, in words."""
    reached_ms: int
    """The event time up to which partitions were read."""
    waiting: tuple[str, ...] = ()
    """The partitions that gave nothing, because others were behind them, as `posts[1]`; or shards."""


def alignment_report(by: str, reached_us: int, waiting: Sequence[str]) -> dict[str, Any]:
    """Return what a source adds to its latest offsets, for `SourceProgress.alignment`."""
    return {_ALIGNMENT: {"by": by, "reached_ms": reached_us // 1000, "waiting": list(waiting)}}


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source in one batch; offsets are in the form of the source (Kafka: by topic and partition)."""

    description: str
    rows: int
    start: Any = None
    end: Any = None
    latest: Any = None
    lag: int | None = None
    """Records that are in the source and not in this batch or one before; None where the source does not report it."""
    alignment: Alignment | None = None
    """None where everything that was there is in the batch, or where batches are not cut by event time."""


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
    """Both are None where they are not counted."""
    late_rows: int = 0
    """Records that came after the watermark and were dropped, or what Spark counts of them: see `late_counted`."""
    late_counted: bool = False
    """Whether `late_rows` is a number of records. Spark counts after each task has grouped its rows."""
    late_share: float = 0.0
    """The share of the rows that came after the watermark as far as it is known, where they are not counted."""
    late_by_ms: int = 0
    """By how much the oldest row of the batch was older than the watermark; 0 also where it is not known."""
    alignment_off: bool = False
    """Whether an option of one of its sources says that batches are not cut by event time."""
    sources: tuple[SourceProgress, ...] = ()
    sink: str = ""
    sink_rows: int | None = None
    """None where the sink does not count."""
    waited: int | None = None
    """Milliseconds from when it was due until it began; None where a batch begins when the one before has ended."""

    @property
    def executed(self) -> bool:
        """Return whether there was a batch; Spark also reports now and then that there is nothing to do."""
        return self.waited is not None or "addBatch" in self.durations or self.input_rows > 0

    @property
    def late_estimate(self) -> int:
        """Return how many records were late, about: their number, or the share that is known of the rows."""
        if self.late_counted or not self.late_rows:
            return self.late_rows
        return max(self.late_rows, round(self.late_share * self.input_rows))

    @property
    def delay(self) -> int | None:
        """Return the milliseconds from when the batch was due until it was done."""
        return None if self.waited is None else self.waited + self.milliseconds

    @property
    def lag(self) -> int | None:
        """Return the lag in records over all sources that report it."""
        lags = [source.lag for source in self.sources if source.lag is not None]
        return sum(lags) if lags else None

    @property
    def read(self) -> dict[Place, int]:
        """Return the next offset of each Kafka partition."""
        read: dict[Place, int] = {}
        for source in self.sources:
            for place, offset in offsets_in(source.end).items():
                read[place] = min(offset, read.get(place, offset))  # a topic may be read twice
        return read

    @classmethod
    def of(cls, given: str | Mapping[str, Any], query: str) -> BatchProgress:
        """Return the record for Spark's JSON, parsed or not; `query` is the name to show."""
        progress: Mapping[str, Any] = json.loads(given) if isinstance(given, str) else given
        durations = {name: int(spent) for name, spent in (progress.get("durationMs") or {}).items()}
        operators = progress.get("stateOperators") or []
        sink = progress.get("sink") or {}
        metrics = progress.get("observedMetrics") or {}
        written = sink.get("numOutputRows", -1)
        written = _observed(metrics) if written < 0 else written
        dropping = [operator for operator in operators if operator.get("numRowsDroppedByWatermark")]
        return cls(
            query=query,
            run=progress.get("runId") or "",
            batch=progress["batchId"],
            at=datetime.fromisoformat(progress["timestamp"]),
            input_rows=_input_rows(progress, metrics),
            input_rate=progress.get("inputRowsPerSecond") or 0.0,
            rate=progress.get("processedRowsPerSecond") or 0.0,
            durations=MappingProxyType(durations),
            milliseconds=durations.get("triggerExecution", progress.get("batchDuration") or 0),
            watermark=_watermark(progress.get("eventTime") or {}),
            state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
            state_bytes=sum(operator.get("memoryUsedBytes", 0) for operator in operators),
            late_rows=sum(operator["numRowsDroppedByWatermark"] for operator in dropping),
            late_counted=bool(dropping) and not any(map(_groups_rows, dropping)),
            late_share=_late_share(progress.get("eventTime") or {}) if dropping else 0.0,
            late_by_ms=_late_by_ms(progress.get("eventTime") or {}),
            sources=tuple(map(_source, progress.get("sources") or [])),
            sink=sink.get("description") or "",
            sink_rows=None if written < 0 else written,
        )


def _input_rows(progress: Mapping[str, Any], metrics: Mapping[str, Any]) -> int:
    """Return the rows that were read; of a replay only those before its end, while Spark counts all."""
    within = [int(counts["rows"] or 0) for name, counts in metrics.items() if name.startswith(WITHIN)]
    if not within:
        return progress.get("numInputRows") or 0
    others = [source for source in progress.get("sources") or [] if not offsets_in(source.get("endOffset"))]
    return sum(within) + sum(source.get("numInputRows") or 0 for source in others)


def _source(progress: Mapping[str, Any]) -> SourceProgress:
    end, latest = progress.get("endOffset"), progress.get("latestOffset")
    alignment = None
    if isinstance(latest, dict) and _ALIGNMENT in latest:
        cut = latest[_ALIGNMENT]
        alignment = Alignment(cut["by"], cut["reached_ms"], tuple(cut["waiting"]))
        latest = {topic: offsets for topic, offsets in latest.items() if topic != _ALIGNMENT} or None
    return SourceProgress(
        description=progress.get("description") or "",
        rows=progress.get("numInputRows") or 0,
        start=progress.get("startOffset"),
        end=end,
        latest=latest,
        lag=_lag(end, latest),
        alignment=alignment,
    )


def _lag(end: Any, latest: Any) -> int | None:
    """Return the lag of offsets by topic and partition; a new partition counts from its start."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    behind = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict):
            return None
        read = end.get(topic) or {}
        behind += sum(max(0, newest - read.get(partition, 0)) for partition, newest in partitions.items())
    return behind


def offsets_in(offsets: Any) -> dict[Place, int]:
    """Return Kafka's offsets out of Spark's JSON, by topic and partition; none for other sources."""
    return {
        (topic, int(number)): offset
        for topic, partitions in (offsets.items() if isinstance(offsets, dict) else ())
        for number, offset in (partitions.items() if isinstance(partitions, dict) else ())
        if str(number).isdigit() and isinstance(offset, int)
    }


def _observed(metrics: Mapping[str, Any]) -> int:
    """Return the rows on their way to a sink that does not count them, from our observation; -1 without one."""
    counted = (metrics.get(METRICS) or {}).items()
    return max((int(value or 0) for name, value in counted if name.startswith("#")), default=-1)


def _watermark(event_time: Mapping[str, str]) -> datetime | None:
    """Return the watermark; Spark reports the beginning of 1970 before there is one, and we end with its end."""
    moment = datetime.fromisoformat(text) if (text := event_time.get("watermark")) else None
    return moment if moment and 0 < moment.timestamp() < END_OF_EVENT_TIME.timestamp() else None


def _oldest(event_time: Mapping[str, str]) -> datetime | None:
    """Return the oldest event time; None if it is not known: Spark takes a null for the beginning of 1970."""
    moment = datetime.fromisoformat(text) if (text := event_time.get("min")) else None
    return moment if moment and moment.timestamp() else None


def _late_by_ms(event_time: Mapping[str, str]) -> int:
    watermark, oldest = _watermark(event_time), _oldest(event_time)
    if watermark is None or oldest is None:
        return 0
    return max(0, round((watermark - oldest) / timedelta(milliseconds=1)))


def _late_share(event_time: Mapping[str, str]) -> float:
    """Return the least share of rows that can be older than the watermark, by the mean of their event times."""
    watermark, oldest, mean = _watermark(event_time), _oldest(event_time), event_time.get("avg")
    if watermark is None or oldest is None or mean is None:
        return 0.0
    below, most = watermark - datetime.fromisoformat(mean), watermark - oldest
    return max(0.0, below / most) if most > timedelta(0) else 0.0


def _groups_rows(operator: Mapping[str, Any]) -> bool:
    """Return whether an operator gets rows that each task has grouped: an aggregation; others get them as they are."""
    return "statestoresave" in operator.get("operatorName", "stateStoreSave").lower()


RATE_WINDOW_S = 10.0
"""Seconds that rates look back, or more where batches are longer or further apart."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second that came in, and that came out (None where the sink does not count)."""

    read: float
    written: float | None


def rates(batches: Sequence[BatchProgress], now: datetime, every: float | None = None) -> Rates | None:
    """Return the recent rates; None before the first batch. `every` is the trigger's interval, if it has one."""
    if not batches:
        return None
    window = timedelta(seconds=max(RATE_WINDOW_S, 2 * batches[-1].milliseconds / 1000, 2 * (every or 0)))
    recent = list(takewhile(lambda batch: now - batch_end(batch) <= window, reversed(batches)))
    if not recent:
        return Rates(0.0, 0.0)
    if len(batches) == 1:
        begin = batches[0].at
    elif len(recent) < len(batches):
        begin = batch_end(batches[-len(recent) - 1])
    else:
        begin = batch_end(recent.pop())
    span = max((now - max(begin, now - window)).total_seconds(), 0.001)
    written = [batch.sink_rows for batch in recent if batch.sink_rows is not None]
    counted = sum(written) / span if len(written) == len(recent) else None
    return Rates(sum(batch.input_rows for batch in recent) / span, counted)


def batch_end(batch: BatchProgress) -> datetime:
    """Return when a batch was done."""
    return batch.at + timedelta(milliseconds=batch.milliseconds)
