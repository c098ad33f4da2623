"""Reports what the queries of a Spark session do, by polling Spark.

- The run status gets each query's start, phase, batches and end.
- Panels get the metrics that Spark observed in each batch.
- `on_batch` is called for each batch, for example to commit its offsets.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.engine.failures.explain import explain
from millrace.engine.queries.late_records import LateRecords
from millrace.engine.supervision.stopping import is_interruption
from millrace.telemetry.panel_registry import PanelRegistry
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase, RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_INTERVAL_S = 0.5
_PANEL_POLL_INTERVAL_S = 0.05
"""How often finished batches are looked for where panels wait for them."""
_FIRST_BATCH_POLL_INTERVAL_S = 0.1

_log = logging.getLogger(__name__)


@dataclass
class _TrackedQuery:
    """A query and how much of it was reported."""

    query: StreamingQuery
    name: str
    batch: int = -1
    progress_key: tuple[int, str] | None = None
    end_note: str = ""
    """What its figures leave out, reported at its end."""
    late_records: LateRecords | None = None
    """What counts its late records: that of another start of the query counts other batches."""


class QueryMonitor:
    """A thread that polls the queries of a session, whoever opened it.

    `dead_letter_counts` are the accumulators that count the dead letters of each source, `late_records` count the late
    records of each query. If the queries are `supervised`, the supervisor reports those that fail.
    """

    def __init__(
        self,
        spark: SparkSession,
        run_status: RunStatus,
        *,
        dead_letter_counts: Mapping[str, Any] | None = None,
        late_records: Mapping[str, LateRecords] | None = None,
        panels: PanelRegistry | None = None,
        on_batch: Callable[[BatchProgress], None] = lambda _: None,
        poll_interval_s: float = _POLL_INTERVAL_S,
        supervised: bool = False,
    ) -> None:
        self._spark, self._run_status, self._panels = spark, run_status, panels
        self._on_batch, self._supervised, self._poll_interval_s = on_batch, supervised, poll_interval_s
        self._dead_letter_counts = {} if dead_letter_counts is None else dead_letter_counts
        self._late_records = {} if late_records is None else late_records
        self._tracked: dict[str, _TrackedQuery] = {}
        self._run_ids: set[str] = set()
        """The runs that were ever tracked: Spark lists one for a moment after its end."""
        self._tracking = threading.Lock()
        self._unnamed_queries = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="query-monitor", daemon=True)

    def __enter__(self) -> QueryMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Poll once more, so that nothing is missed, and end."""
        self._stop.set()
        self._thread.join()

    @property
    def has_ended(self) -> bool:
        """Whether the session was stopped, so that there is nothing to poll."""
        return not self._thread.is_alive()

    def track(self, query: StreamingQuery, end_note: str = "") -> None:
        """Report a query even if it ends before the next poll."""
        run_id = str(query.runId)
        with self._tracking:
            if run_id in self._run_ids:  # the thread that polls may have been the first to see it
                if end_note and run_id in self._tracked:
                    self._tracked[run_id].end_note = end_note
                return
            self._run_ids.add(run_id)
            if not query.name:
                self._unnamed_queries += 1
            tracked = _TrackedQuery(query, query.name or f"query {self._unnamed_queries}", end_note=end_note)
            tracked.late_records = self._late_records.get(tracked.name)
            self._run_status.started(tracked.name)
            self._tracked[run_id] = tracked

    def await_batch(self, query: StreamingQuery, timeout_s: float, stop: threading.Event) -> None:
        """Wait until a query has finished its first batch."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and query.isActive and not query._jsq.lastProgress():
            if stop.wait(_FIRST_BATCH_POLL_INTERVAL_S):
                return

    def poll(self) -> None:
        """Report what is new."""
        for query in self._spark.streams.active:
            self.track(query)
        for run_id, tracked in list(self._tracked.items()):
            self._report_progress(tracked)
            status = tracked.query.status
            phase = _phase(status["message"], tracked.batch, active=status["isTriggerActive"])
            self._run_status.update(tracked.name, phase, status["message"])
            if not tracked.query.isActive:
                self._report_progress(tracked)  # the last batch may have ended since
                del self._tracked[run_id]
                self._report_end(tracked)
        for source, count in list(self._dead_letter_counts.items()):
            self._run_status.set_dead_letters(source, int(count.value))
        if self._panels:
            self._panels.look()
        self._run_status.seen()

    def _report_end(self, tracked: _TrackedQuery) -> None:
        failure = tracked.query.exception()
        restarted = any(other.name == tracked.name for other in list(self._tracked.values()))
        if not restarted and (failure is None or not self._supervised):
            error = explain(failure) if failure and not is_interruption(failure) else None
            self._run_status.ended(tracked.name, error, tracked.end_note)

    def _run(self) -> None:
        try:
            last = False
            while not last:
                self._ignoring_unreadable(self._pause)
                last = self._stop.is_set()
                self._ignoring_unreadable(self.poll)
        except Exception as error:
            # Spark was stopped or has died; no query of it runs any more.
            stopped = self._spark.sparkContext._jsc is None
            for tracked in self._tracked.values():
                self._run_status.ended(tracked.name, None if stopped else explain(error), tracked.end_note)

    def _ignoring_unreadable(self, step: Callable[[], None]) -> None:
        """Run a step; a progress that cannot be read is read again at the next poll."""
        try:
            step()
        except (KeyError, TypeError, ValueError):
            _log.debug("a query's progress could not be read", exc_info=True)

    def _pause(self) -> None:
        """Wait until the next poll; where there are panels, look for finished batches meanwhile."""
        deadline = time.monotonic() + self._poll_interval_s
        interval_s = _PANEL_POLL_INTERVAL_S if self._panels else self._poll_interval_s
        while (left_s := deadline - time.monotonic()) > 0 and not self._stop.wait(min(left_s, interval_s)):
            for tracked in list(self._tracked.values()):
                self._report_progress(tracked)

    def _report_progress(self, tracked: _TrackedQuery) -> None:
        # Spark's own object, not PySpark's copy: it may be large with panels, and is read only when it is new.
        spark_query: Any = tracked.query._jsq
        last = spark_query.lastProgress()
        if last is None or _progress_key(last) == tracked.progress_key:
            return
        # The whole history costs a call for each progress, so it is read only when a batch was missed.
        history = [last] if last.batchId() <= tracked.batch + 1 else list(spark_query.recentProgress())
        keys = [_progress_key(progress) for progress in history]
        # By position, not by time: a clock may be set back.
        first_new = keys.index(tracked.progress_key) + 1 if tracked.progress_key in keys else 0
        for progress in history[first_new:]:
            tracked.progress_key = _progress_key(progress)
            self._report_batch(tracked, json.loads(progress.json()))

    def _report_batch(self, tracked: _TrackedQuery, payload: dict[str, Any]) -> None:
        progress = BatchProgress.of(payload, tracked.name)
        if tracked.late_records:
            progress = tracked.late_records.counted(progress)
        is_new = progress.executed and progress.batch > tracked.batch  # Spark repeats a batch while it waits
        tracked.batch = progress.batch if progress.executed else tracked.batch
        self._run_status.batch_done(progress)
        self._on_batch(progress)
        if self._panels and is_new:
            try:
                self._panels.observe(payload.get("observedMetrics") or {})
            except Exception:  # the failure of a panel is none of the query
                _log.warning("the metrics of panels could not be read", exc_info=True)


def _progress_key(progress: Any) -> tuple[int, str]:
    return progress.batchId(), progress.timestamp()


def _phase(message: str, batch: int, *, active: bool) -> Phase:
    if message.startswith("Waiting"):
        return Phase.WAITING
    return Phase.STARTING if batch < 0 and not active else Phase.RUNNING
