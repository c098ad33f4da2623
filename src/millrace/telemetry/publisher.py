"""What happened, as lines that people read: queries that start, stop and fail, first dead letters, late rows.

The run_status as channels: `state`, `history:*` and `events`, renewed a few times a second without any call to Spark.

The batches of a query as rows for charts.
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
from millrace.units import so_many

EVENTS_KEPT = 500
EVENT_COLUMNS = ("time", "level", "query", "text")


class EventLog:
    """Writes into the channel `events`; `look` finds by itself what is new on a run status."""

    def __init__(self, channels: Channels) -> None:
        self._ring = channels.ring("events", EVENTS_KEPT, EVENT_COLUMNS)
        self._known: dict[str, QueryStatus] = {}
        self._dead: dict[str, int] = {}
        self._missing: OverdueAnswer | None = None

    def add(self, text: str, level: str = "info", query: str | None = None) -> None:
        """One line."""
        self._ring.append({"time": round(time.time() * 1000), "level": level, "query": query, "text": text})

    def look(self, run_status: RunStatus) -> None:
        """Note what has happened since the last look."""
        for one in run_status.queries():
            for level, text in _news(one, self._known.get(one.query)):
                self.add(text, level, one.query)
            self._known[one.query] = one
        for source, count in run_status.dead().items():
            if count and not self._dead.get(source):
                self.add(f"source {source}: the first dead letters ({count:,})", "warning")
            self._dead[source] = count
        missing = run_status.kafka.missing()
        if line := answer_change(self._missing, missing):
            self.add(line, "warning" if missing else "info")
        self._missing = missing


def _news(one: QueryStatus, before: QueryStatus | None) -> Iterator[tuple[str, str]]:
    anew = before is None or before.since != one.since
    if one.restart and (before is None or before.restarts != one.restarts):
        yield "warning", f"failed: {one.error.message if one.error else one.restart.why}"
        yield "warning", one.restart.sentence(datetime.now(UTC))
    if anew:
        yield "info", "started again" if one.restarts else "started"
    if before and before.restart and not one.restart and not one.phase.ended:
        yield "info", f"works again (restart {before.restart.number} of {before.restart.most})"
    if before is not None and not before.batches and one.batches:
        yield "info", "the first batch is done"
    if one.error and not one.phase.idle and not (before and one.error is before.error):
        yield "error", f"a batch failed, the next ones go on: {one.error.message}"
    if one.late_rows and not (before and before.late_rows):
        yield "warning", f"the first late rows were dropped ({one.late_rows:,})"
    if one.phase.ended and (anew or not (before and before.phase.ended)):
        yield _ending(one)


def _ending(one: QueryStatus) -> tuple[str, str]:
    if one.phase is Phase.STOPPED:
        return "info", f"stopped after {so_many(one.rows, 'row')} in {so_many(one.batches, 'batch')}"
    told = ["failed"] if one.error is None else [f"failed: {one.error.message}", one.error.why or ""]
    return "error", "; ".join(part for part in told if part)


HISTORY_KEPT = 600
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
    told = {
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
    return told | {f"phase:{name}": spent for name, spent in batch.durations.items() if name != _WHOLE}


def newer_progress(history: Iterable[BatchProgress], than: BatchProgress | None) -> list[BatchProgress]:
    """What came after a word of Spark's; all of it when that word is forgotten already."""
    known = list(history)
    for place in range(len(known) - 1, -1, -1):
        if known[place] is than:
            return known[place + 1 :]
    return known


PUBLISH_EVERY = 0.2


class StatusPublisher:
    """Fills channels from a run status; `look` is called by a sampler."""

    def __init__(
        self, run_status: RunStatus, measurements: Measurements, topology: Topology, channels: Channels
    ) -> None:
        self._run_status = run_status
        self._measurements = measurements
        self._topology = topology
        self._channels = channels
        self._last: dict[str, BatchProgress | None] = {}
        self._looking = threading.Lock()
        self.events = EventLog(channels)

    def look(self) -> None:
        """Bring every channel up to date; of two who look at once, one waits, or both would tell the same rows."""
        with self._looking:
            self.events.look(self._run_status)
            for status in self._run_status.queries():
                self._tell_batches(status.query, status.last)
            self._channels.slot("state").set(run_state(self._run_status, self._measurements, self._topology))

    def _tell_batches(self, query: str, last: BatchProgress | None) -> None:
        ring = self._channels.ring(f"history:{query}", HISTORY_KEPT, HISTORY_COLUMNS)
        if last is None or last is self._last.get(query):
            return
        fresh = newer_progress(self._run_status.history(query), self._last.get(query))
        ring.extend(map(history_row, batches_of(fresh)))
        self._last[query] = fresh[-1] if fresh else last
