"""What every query does now and did recently: the one place that the terminal, the dashboard and Prometheus read."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from millrace.errors import MillraceError
from millrace.telemetry.measurements import OutstandingAnswers
from millrace.telemetry.progress import BatchProgress
from millrace.units import format_count, format_duration

MAX_BATCHES = 600
"""Batches of a query that are kept."""
_MAX_LATE_SHARE = 0.01
"""How many of the rows that a query has read may be late without a warning."""


class Phase(StrEnum):
    """Where a query is between its start and its end."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    RESTARTING = "restarting"
    """It has failed, and will be started again in a moment."""
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self in (Phase.STOPPED, Phase.FAILED)

    @property
    def idle(self) -> bool:
        """Whether nothing is done: it has ended, for ever or for a moment."""
        return self.ended or self is Phase.RESTARTING


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """A query that is started again after a failure; it is over when the query is seen to work."""

    number: int
    """Which one it is since the query last worked."""
    most: int
    due: datetime
    why: str
    """The failure in a few words."""

    def sentence(self, now: datetime) -> str:
        """Return the restart in words."""
        left = math.ceil((self.due - now).total_seconds())
        when = f"restarting in {left} s" if left > 0 else "restarted, no batch done yet"
        return f"{when} ({self.number} of {self.most}): {self.why}"


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A query at one moment."""

    query: str
    phase: Phase
    since: datetime
    """When it was started, last."""
    doing: str = ""
    """Spark's words for what it does; of one that has stopped: what it left undone, or out of its figures."""
    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    late_by_ms: int = 0
    """By how much the oldest of them was older than the watermark, about."""
    late_counted: bool = True
    """Whether all of them are counted as records; of some Spark gives only a count after grouping."""
    late_estimate: int = 0
    """How many records were late, about, where they are not counted."""
    alignment_off: bool = False
    """Whether an option says that batches are not cut by event time."""
    last: BatchProgress | None = None
    """The newest batch that did something, or the newest progress at all."""
    error: MillraceError | None = None
    """Why it has failed; of one that continues: the error of the newest batch that failed."""
    restart: RestartRecord | None = None
    """While it does not work: which restart is due, or has been made."""
    restarts: int = 0
    """All that there were."""

    @property
    def failure(self) -> str:
        """Return the message of its error."""
        return self.error.message if self.error else "the reason is not known"


class RunStatus:
    """Thread-safe: the engine writes, all others read; what is read does not change afterwards."""

    def __init__(self, max_batches: int = MAX_BATCHES) -> None:
        self._max_batches = max_batches
        self._lock = threading.Lock()
        self._queries: dict[str, QueryStatus] = {}
        self._history: dict[str, deque[BatchProgress]] = {}
        self._dead: dict[str, int] = {}
        self.kafka = OutstandingAnswers()
        """Whether Kafka answers, where a meter asks it."""
        self.looked: float | None = None
        """When Spark last answered about its queries, by the monotonic clock."""

    def started(self, query: str) -> None:
        """A query begins, or begins again: its totals stay."""
        with self._lock:
            now = datetime.now(UTC)
            status = self._queries.get(query) or QueryStatus(query, Phase.STARTING, now)
            self._queries[query] = replace(status, phase=Phase.STARTING, since=now, doing="", error=None)
            self._history.setdefault(query, deque(maxlen=self._max_batches))

    def update(self, query: str, phase: Phase, doing: str = "") -> None:
        """What a query does now. Of one that has ended since, or failed, it is old news."""
        with self._lock:
            status = self._queries[query]
            if not status.phase.idle:
                # One that waits has asked its sources, and has no batch left that could fail again.
                restart = None if phase is Phase.WAITING else status.restart
                self._queries[query] = replace(status, phase=phase, doing=doing, restart=restart)

    def batch_done(self, progress: BatchProgress) -> None:
        with self._lock:
            status = self._queries[progress.query]
            works = progress.executed and status.phase is not Phase.RESTARTING
            self._queries[progress.query] = replace(
                status,
                batches=status.batches + progress.executed,
                rows=status.rows + progress.input_rows,
                late_rows=status.late_rows + progress.late_rows,
                late_by_ms=max(status.late_by_ms, progress.late_by_ms if progress.late_rows else 0),
                late_counted=status.late_counted and (progress.late_counted or not progress.late_rows),
                late_estimate=status.late_estimate + progress.late_estimate,
                alignment_off=status.alignment_off or progress.alignment_off,
                last=progress,
                restart=None if works else status.restart,
            )
            self._history[progress.query].append(progress)

    def restarting(self, query: str, error: MillraceError, restart: RestartRecord) -> None:
        """A query has failed and will be started again."""
        with self._lock:
            status = self._queries[query]
            self._queries[query] = replace(
                status, phase=Phase.RESTARTING, doing="", error=error, restart=restart, restarts=status.restarts + 1
            )

    def recovered(self, query: str) -> None:
        """A query that was started again works, as far as can be known."""
        with self._lock:
            self._queries[query] = replace(self._queries[query], restart=None)

    def batch_failed(self, query: str, error: MillraceError) -> None:
        """A batch has failed, and the next ones are run all the same, as DStreams do."""
        with self._lock:
            self._queries[query] = replace(self._queries[query], error=error)

    def ended(self, query: str, error: MillraceError | None = None, left: str = "") -> None:
        """A query has stopped, or failed; `left` says what it left undone, or out of its figures."""
        with self._lock:
            phase = Phase.FAILED if error else Phase.STOPPED
            self._queries[query] = replace(self._queries[query], phase=phase, doing=left, error=error, restart=None)

    def seen(self) -> None:
        """The queries were looked at, and Spark answered."""
        self.looked = time.monotonic()

    def set_dead_letters(self, source: str, total: int) -> None:
        """So many records of a source have become dead letters since the run began."""
        with self._lock:
            self._dead[source] = total

    def queries(self) -> tuple[QueryStatus, ...]:
        """Every query, in the order in which they were started."""
        with self._lock:
            return tuple(self._queries.values())

    def query(self, name: str) -> QueryStatus:
        with self._lock:
            return self._queries[name]

    def history(self, query: str) -> tuple[BatchProgress, ...]:
        """The batches of a query that are remembered, oldest first."""
        with self._lock:
            return tuple(self._history.get(query, ()))

    def dead(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._dead)

    def warnings(self) -> list[str]:
        """What somebody should know at the end of the run who looks at nothing else, in a line each."""
        return [
            f"query {query.query!r}: {_late(query)}{_age(query)}: {_advice(query)}"
            for query in self.queries()
            if query.late_estimate > _MAX_LATE_SHARE * query.rows
        ]

    def summary(self) -> str:
        """The whole run in one line."""
        queries, dead = self.queries(), sum(self.dead().values())
        rows, batches = sum(query.rows for query in queries), sum(query.batches for query in queries)
        totals = [
            f"{format_count(rows, 'row')} in {format_count(batches, 'batch')}",
            _late_total(queries),
            format_count(dead, "dead letter") if dead else "",
        ]
        left = dict.fromkeys(query.doing for query in queries if query.phase is Phase.STOPPED and query.doing)
        return "; ".join([", ".join(filter(None, totals)), *left])


def _late(query: QueryStatus) -> str:
    if query.late_counted:
        return f"{query.late_rows:,} of {query.rows:,} rows came too late"
    return (
        f"about {query.late_estimate:,} of {query.rows:,} rows came after the watermark (Spark counts "
        f"{query.late_rows:,} late ones, after grouping them)"
    )


def _age(query: QueryStatus) -> str:
    older = f", up to {format_duration(query.late_by_ms / 1000)} older than the watermark"
    return older if query.late_by_ms else ""


def _advice(query: QueryStatus) -> str:
    if query.alignment_off:
        return "without alignment: off, or with a longer delay of the watermark, they are kept"
    return "a longer delay of the watermark keeps them"


def _late_total(queries: Iterable[QueryStatus]) -> str:
    late = [query for query in queries if query.late_rows]
    grouped = "" if all(query.late_counted for query in late) else " (grouped)"
    return f"{sum(query.late_rows for query in late):,} late{grouped}" if late else ""
