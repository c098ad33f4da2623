"""The run status as channels of the dashboard, renewed a few times a second without any call to Spark.

- `EventLog`: lines about queries that start, stop and fail, first dead letters, late rows (channel `events`).
- `history_row`: a batch as a row for charts (channels `history:QUERY`).
- `StatusPublisher`: fills these channels and `state`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from millrace.telemetry.channels import Channels, milliseconds
from millrace.telemetry.measurements import Measurements, OverdueAnswer, answer_change
from millrace.telemetry.metrics import batches_of, run_state
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.telemetry.topology import Topology
from millrace.units import format_count

MAX_EVENTS = 500
EVENT_COLUMNS = ("time", "level", "query", "text")


class EventLog:
    """Writes into the channel `events`; `look` finds what is new in a run status."""

    def __init__(self, channels: Channels) -> None:
        self._ring = channels.row_buffer("events", MAX_EVENTS, EVENT_COLUMNS)
        self._known: dict[str, QueryStatus] = {}
        self._dead: dict[str, int] = {}
        self._missing: OverdueAnswer | None = None

    def add(self, text: str, level: str = "info", query: str | None = None) -> None:
        """Add one line."""
        self._ring.append({"time": round(time.time() * 1000), "level": level, "query": query, "text": text})

    def look(self, run_status: RunStatus) -> None:
        """Add what has happened since the last call."""
        for query in run_status.queries():
            for level, text in _news(query, self._known.get(query.query)):
                self.add(text, level, query.query)
            self._known[query.query] = query
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
    texts = ["failed"] if query.error is None else [f"failed: {query.error.message}", query.error.why or ""]
    return "error", "; ".join(part for part in texts if part)


MAX_HISTORY_ROWS = 600
HISTORY_COLUMNS = (
    "time",
    "batch",
    "input_rows",
    "input_rate",
    "rate",
    "ms",
    "waited_ms",
    "delay_ms",
    "watermark_gap_ms",
    "state_rows",
    "state_bytes",
    "late",
    "lag",
    "sink_rows",
)
_WHOLE = "triggerExecution"


def history_row(batch: BatchProgress) -> dict[str, Any]:
    """One batch; `time` is its end, and each of Spark's steps has a column `phase:NAME` of milliseconds."""
    ended = milliseconds(batch.at) + batch.milliseconds
    row = {
        "time": ended,
        "batch": batch.batch,
        "input_rows": batch.input_rows,
        "input_rate": batch.input_rate,
        "rate": batch.rate,
        "ms": batch.milliseconds,
        "waited_ms": batch.waited,
        "delay_ms": batch.delay,
        "watermark_gap_ms": ended - milliseconds(batch.watermark) if batch.watermark else None,
        "state_rows": batch.state_rows,
        "state_bytes": batch.state_bytes,
        "late": batch.late_rows,
        "lag": batch.lag,
        "sink_rows": batch.sink_rows,
    }
    return row | {f"phase:{name}": spent for name, spent in batch.durations.items() if name != _WHOLE}


def newer_progress(history: Iterable[BatchProgress], than: BatchProgress | None) -> list[BatchProgress]:
    """Return the progress after `than`; all of it when `than` is no longer kept."""
    known = list(history)
    for place in range(len(known) - 1, -1, -1):
        if known[place] is than:
            return known[place + 1 :]
    return known


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
        ring = self._channels.row_buffer(f"history:{query}", MAX_HISTORY_ROWS, HISTORY_COLUMNS)
        if last is None or last is self._last.get(query):
            return
        fresh = newer_progress(self._run_status.history(query), self._last.get(query))
        ring.extend(map(history_row, batches_of(fresh)))
        self._last[query] = fresh[-1] if fresh else last
