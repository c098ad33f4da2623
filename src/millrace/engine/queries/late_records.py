"""How many records came too late: Spark counts late rows only after a task has grouped its rows.

- `EventTimeCounter` counts the records of a task by event time, where they are decoded.
- `EventTimeCountParam` brings the counts of a batch together on the driver; those of a task that runs again replace
  the first.
- `LateRecords` says, when Spark reports late rows of a batch, how many of its records were older than what the
  batch's watermark lets in, and how old the oldest was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.engine.checkpoints.checkpoint import metadata_number
from millrace.pipeline.analysis.windows import EventTimeWindow, late_before
from millrace.telemetry.progress import BatchProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from millrace.connectors.base.batch_alignment import Times

Span = tuple[int, int]
"""The second at which a span of event time begins, and its seconds."""
Spans = dict[Span, int]
"""How many records are in each span."""
TaskSpans = dict[int, dict[int, tuple[int, Spans]]]
"""The counts by batch and partition, each with the attempt that has counted: the last one counts."""
MARK = "event times "
"""With this begins what a good row carries in the column of dead letters, which are JSON."""
_WIDTHS_S = (1, 10, 60, 3600, 86_400, 8_640_000, 864_000_000)
"""Seconds of a span: windows of whole seconds, minutes, hours and days begin and end where a span does."""
_MIN_SPANS, _ROWS_PER_SPAN = 200, 50
"""How many spans rows that are counted at a time may have: if they are of more seconds, the spans get longer."""
_MAX_BATCHES = 100
"""Batches whose counts are kept, if nobody asks for them."""


def spans_of(times: Times) -> Spans:
    """Return how many event times, in microseconds, are in each span."""
    import numpy as np

    if not len(times):
        return {}
    in_order = np.sort(times)
    most = max(_MIN_SPANS, len(times) // _ROWS_PER_SPAN)
    for width in _WIDTHS_S:
        numbers = in_order // (width * 1_000_000)
        is_first = np.append(True, numbers[1:] != numbers[:-1])
        if np.count_nonzero(is_first) <= most:
            break
    at = np.flatnonzero(is_first)
    spans = ((number * width, width) for number in numbers[at].tolist())
    return dict(zip(spans, np.diff(at, append=len(times)).tolist(), strict=True))


def add_spans(total: Spans, spans: Mapping[Span, int]) -> None:
    """Add counts to others."""
    for span, count in spans.items():
        total[span] = total.get(span, 0) + count


def spans_text(spans: Mapping[Span, int]) -> str:
    """Return counts as text, for `spans_in`."""
    return MARK + json.dumps([[*span, count] for span, count in spans.items()])


def spans_in(text: str) -> Spans:
    """Return the counts of a text."""
    return {(start, width): count for start, width, count in json.loads(text.removeprefix(MARK))}


def count_before(spans: Mapping[Span, int], end_us: int) -> tuple[int, int]:
    """Return the least and the greatest number of records that may be older than a moment."""
    least = sum(count for (start, width), count in spans.items() if (start + width) * 1_000_000 <= end_us)
    most = sum(count for (start, _), count in spans.items() if start * 1_000_000 < end_us)
    return least, most


class EventTimeCountParam:
    """Adds counts in an accumulator of Spark."""

    def zero(self, value: TaskSpans) -> TaskSpans:
        del value
        return {}

    def addInPlace(self, value: TaskSpans, other: TaskSpans) -> TaskSpans:  # noqa: N802 - Spark's
        for batch, tasks in other.items():
            counted = value.setdefault(batch, {})
            for partition, (attempt, spans) in tasks.items():
                known = counted.get(partition)
                if known and known[0] == attempt:  # of another partition of the source, which the task reads too
                    add_spans(known[1], spans)
                else:
                    counted[partition] = attempt, spans
        while len(value) > _MAX_BATCHES:
            value.pop(min(value), None)
        return value


@dataclass(frozen=True)
class EventTimeCounter:
    """Counts the records of a source by event time. Can be pickled."""

    column: str
    accumulator: Any
    """Of `TaskSpans`."""

    def spans(self, rows: pa.RecordBatch) -> Spans:
        """Return the counts of rows."""
        return spans_of(event_times(rows.column(self.column)))

    def report(self, spans: Spans) -> None:
        """Add what a task has counted; called in the task."""
        from pyspark import TaskContext

        task = TaskContext.get()
        batch = task.getLocalProperty("streaming.sql.batchId") if task else None
        if task and batch and spans:
            self.accumulator.add({int(batch): {task.partitionId(): (task.taskAttemptId(), spans)}})


def event_times(column: pa.Array) -> Times:
    """Return the event times that there are, in microseconds."""
    import pyarrow as pa

    known = column.drop_null() if column.null_count else column
    times: Times = known.cast(pa.timestamp("us", known.type.tz)).view(pa.int64()).to_numpy()
    return times


@dataclass
class LateRecords:
    """The late records of one query, on the driver."""

    checkpoint: Path
    windows: tuple[EventTimeWindow, ...] | None
    """None where they are not known."""
    sources: int
    """The streams that the query reads."""
    alignment_off: bool = False
    """Whether an option of one of them says that batches are not cut by event time."""
    accumulators: list[Any] = field(default_factory=list)
    """Of `TaskSpans`: one for each source whose records are counted."""

    def counted(self, progress: BatchProgress) -> BatchProgress:
        """Return the progress of a batch with its late records; the counts up to this batch are given up."""
        if not progress.executed:
            return progress  # of the batch that is about to begin
        progress = replace(progress, alignment_off=self.alignment_off)
        tasks: list[Spans] = []
        for accumulator in self.accumulators:
            tasks += [spans for _, spans in accumulator.value.get(progress.batch, {}).values()]
            for batch in [batch for batch in list(accumulator.value) if batch <= progress.batch]:
                accumulator.value.pop(batch, None)
        if not tasks or not progress.late_rows:
            return progress
        spans: Spans = {}
        for task in tasks:
            add_spans(spans, task)
        # Rows are late by the watermark of the batch before; that of a batch ends state only.
        watermark_ms = metadata_number(self.checkpoint / "offsets" / str(progress.batch - 1), "batchWatermarkMs")
        all_counted = len(self.accumulators) == self.sources
        return with_late_records(progress, spans, self.windows, watermark_ms, all_counted=all_counted)


def with_late_records(
    progress: BatchProgress,
    spans: Mapping[Span, int],
    windows: Iterable[EventTimeWindow] | None,
    watermark_ms: int,
    *,
    all_counted: bool,
) -> BatchProgress:
    """Return the progress with the number of late records if that is known, else with the share of rows that may be."""
    if watermark_ms <= 0:
        return progress
    if all_counted and not progress.late_by_ms:  # some rows have no event time
        oldest_ms = min(start for start, _ in spans) * 1000
        progress = replace(progress, late_by_ms=max(0, watermark_ms - oldest_ms))
    if progress.late_counted:
        return progress
    least, most = count_before(spans, late_before(tuple(windows or ()), watermark_ms * 1000))
    if all_counted and windows is not None and least == most and least:
        return replace(progress, late_rows=least, late_counted=True)
    rows = max(progress.late_rows, least) if windows is not None else progress.late_rows
    share = min(1.0, most / progress.input_rows) if progress.input_rows else 0.0
    return replace(progress, late_rows=rows, late_share=max(progress.late_share, share))
