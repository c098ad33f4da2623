"""The progress of a replay: records read and left, by the offsets of partitions."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.telemetry.progress import BatchProgress, Place

_RATE_WINDOW_S = 15.0


@dataclass
class PartitionProgress:
    """What a query has to read, and has read."""

    begin: Mapping[Place, int]
    end: Mapping[Place, int]
    read: dict[Place, int] = field(default_factory=dict)
    all_in_kafka: bool = True
    """Whether offsets cover everything it reads; what files hold is known only when they were read."""
    has_closed_windows: bool = False
    """Whether a batch ran after the one that reached the end: it closes the windows of the last watermark."""

    @property
    def total(self) -> int:
        """All records, including the markers of transactions."""
        return sum(self.end[partition] - self.begin[partition] for partition in self.end)

    @property
    def done(self) -> int:
        return sum(max(0, min(self.end[key], self.read.get(key, at)) - at) for key, at in self.begin.items())


@dataclass(frozen=True)
class ReplayStage:
    """The progress of a replay at a point in time."""

    done: int
    total: int
    rows: int
    """Rows that were read since its start, also from files."""
    rate: float | None
    """Records per second in the last seconds."""

    @property
    def seconds_left(self) -> float | None:
        return None if not self.rate else (self.total - self.done) / self.rate


class ReplayProgress:
    """The progress of all queries; updated by the engine, read by the command line and the dashboard."""

    def __init__(self, queries: Mapping[str, PartitionProgress]) -> None:
        self._queries = dict(queries)
        self._rows = 0
        self._lock = threading.Lock()
        self._past: deque[tuple[float, int]] = deque()
        """Times and records read, since the first batch: before it, Spark was starting."""

    def on_batch(self, progress: BatchProgress) -> None:
        with self._lock:
            query = self._queries.get(progress.query)
            if query is None:
                return
            query.has_closed_windows = query.has_closed_windows or (progress.executed and query.done == query.total)
            query.read.update(progress.read)
            self._rows += progress.input_rows
            now = time.monotonic()
            self._past.append((now, self._done()))
            while len(self._past) > 2 and self._past[1][0] < now - _RATE_WINDOW_S:
                self._past.popleft()

    def is_empty(self, name: str) -> bool:
        """Return whether a query has nothing to read."""
        query = self._queries[name]
        return query.all_in_kafka and query.total == 0

    def is_finished(self, name: str) -> bool:
        """Return whether a query has read everything up to the end and written the results, as far as offsets show.

        A query with a watermark that has nothing more to read runs one more batch, without input, and ends.
        """
        with self._lock:
            query = self._queries.get(name)
            return query is not None and query.all_in_kafka and query.has_closed_windows

    def stage(self) -> ReplayStage:
        with self._lock:
            total = sum(query.total for query in self._queries.values())
            return ReplayStage(self._done(), total, self._rows, self._rate() if self._past else None)

    def _rate(self) -> float | None:
        (since, before), (until, after) = self._past[0], self._past[-1]
        return (after - before) / (until - since) if until > since else None

    def _done(self) -> int:
        return sum(query.done for query in self._queries.values())
