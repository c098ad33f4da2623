"""The run status as channels of the dashboard, renewed a few times a second without any call to Spark.

- `EventLog`: lines about queries that start, stop and fail, first dead letters, late rows (channel `events`).
- `history_row`: a batch as a row for charts (channels `history:QUERY`).
- `StatusPublisher`: fills these channels and `state`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from operator import attrgetter
from typing import Any

from millrace.telemetry.channels import Channels, milliseconds
from millrace.telemetry.measurements import Measurements, OverdueAnswer, answer_change
from millrace.telemetry.metrics import batches_of, run_state, watermark_gap
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.telemetry.topology import Topology
from millrace.units import format_count

MAX_EVENTS = 500
EVENT_COLUMNS = ("time", "level", "query", "text")


class EventLog:
    """Writes into the channel `events`; `look` finds what is new in a run status."""

    def __init__(self, channels: Channels) -> None:
        self._events = channels.row_buffer("events", MAX_EVENTS, EVENT_COLUMNS)
        self._statuses: dict[str, QueryStatus] = {}
        self._dead: dict[str, int] = {}
        self._missing: OverdueAnswer | None = None

    def add(self, text: str, level: str = "info", query: str | None = None) -> None:
        self._events.append({"time": round(time.time() * 1000), "level": level, "query": query, "text": text})

    def look(self, run_status: RunStatus) -> None:
        """Add what has happened since the last call."""
        for query in run_status.queries():
            for level, text in _news(query, self._statuses.get(query.query)):
                self.add(text, level, query.query)
            self._statuses[query.query] = query
        for source, count in run_status.dead().items():
            if count and not self._dead.get(source):
                self.add(f"source {source}: the first dead letters ({count:,})", "warning")
            self._dead[source] = count
        missing = run_status.kafka.missing()
        if line := answer_change(self._missing, missing):
            self.add(line, "warning" if missing else "info")
        self._missing = missing


def _news(query: QueryStatus, before: QueryStatus | None) -> Iterator[tuple[str, str]]:
    started = before is None or before.since != query.since
    if query.restart and (before is None or before.restarts != query.restarts):
        yield "warning", f"failed: {query.error.message if query.error else query.restart.why}"
        yield "warning", query.restart.sentence(datetime.now(UTC))
    if started:
        yield "info", "started again" if query.restarts else "started"
    if before and before.restart and not query.restart and not query.phase.ended:
        yield "info", f"works again (restart {before.restart.number} of {before.restart.most})"
    if before is not None and not before.batches and query.batches:
        yield "info", "the first batch is done"
    if query.error and not query.phase.idle and not (before and query.error is before.error):
        yield "error", f"a batch failed, the next ones continue: {query.error.message}"
    if query.late_rows and not (before and before.late_rows):
        yield "warning", f"the first late rows were dropped ({query.late_rows:,})"
    if query.phase.ended and (started or not (before and before.phase.ended)):
        yield _ending(query)


def _ending(query: QueryStatus) -> tuple[str, str]:
    if query.phase is Phase.STOPPED:
        return "info", f"stopped after {format_count(query.rows, 'row')} in {format_count(query.batches, 'batch')}"
    if query.error is None:
        return "error", "failed"
    return "error", "; ".join(filter(None, (f"failed: {query.error.message}", query.error.why)))


MAX_HISTORY_ROWS = 600
_WHOLE = "triggerExecution"
_HISTORY: dict[str, Callable[[BatchProgress], Any]] = {
    "time": lambda batch: milliseconds(batch.at) + batch.milliseconds,
    "batch": attrgetter("batch"),
    "input_rows": attrgetter("input_rows"),
    "input_rate": attrgetter("input_rate"),
    "rate": attrgetter("rate"),
    "ms": attrgetter("milliseconds"),
    "waited_ms": attrgetter("waited"),
    "delay_ms": attrgetter("delay"),
    "watermark_gap_ms": lambda batch: watermark_gap(batch, milliseconds(batch.at) + batch.milliseconds),
    "state_rows": attrgetter("state_rows"),
    "state_bytes": attrgetter("state_bytes"),
    "late": attrgetter("late_rows"),
    "lag": attrgetter("lag"),
    "sink_rows": attrgetter("sink_rows"),
}
HISTORY_COLUMNS = tuple(_HISTORY)


def history_row(batch: BatchProgress) -> dict[str, Any]:
    """One batch; `time` is its end, and each of Spark's steps has a column `phase:NAME` of milliseconds."""
    row = {name: read(batch) for name, read in _HISTORY.items()}
    return row | {f"phase:{name}": spent for name, spent in batch.durations.items() if name != _WHOLE}


def newer_progress(history: Sequence[BatchProgress], than: BatchProgress | None) -> list[BatchProgress]:
    """Return the progress after `than`; all of it when `than` is no longer kept."""
    return list(takewhile(lambda batch: batch is not than, reversed(history)))[::-1]


PUBLISH_INTERVAL_S = 0.2


class StatusPublisher:
    """Fills channels from a run status; a sampler calls `look`."""

    def __init__(
        self, run_status: RunStatus, measurements: Measurements, topology: Topology, channels: Channels
    ) -> None:
        self._run_status = run_status
        self._measurements = measurements
        self._topology = topology
        self._channels = channels
        self._last: dict[str, BatchProgress | None] = {}
        self._lock = threading.Lock()
        self.events = EventLog(channels)

    def look(self) -> None:
        """Bring every channel up to date; of two threads one waits, or both would add the same rows."""
        with self._lock:
            self.events.look(self._run_status)
            for status in self._run_status.queries():
                self._publish_batches(status.query, status.last)
            self._channels.slot("state").set(run_state(self._run_status, self._measurements, self._topology))

    def _publish_batches(self, query: str, last: BatchProgress | None) -> None:
        rows = self._channels.row_buffer(f"history:{query}", MAX_HISTORY_ROWS, HISTORY_COLUMNS)
        if last is None or last is self._last.get(query):
            return
        fresh = newer_progress(self._run_status.history(query), self._last.get(query))
        rows.extend(map(history_row, batches_of(fresh)))
        self._last[query] = fresh[-1] if fresh else last
