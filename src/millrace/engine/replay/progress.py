"""How far a replay has come: records done and to do, by the offsets of partitions."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.telemetry.progress import BatchProgress, Place

_WINDOW = 15.0
"""Seconds over which the rate is taken."""


@dataclass
class PartitionProgress:
    """What one query has to read."""

    begin: Mapping[Place, int]
    end: Mapping[Place, int]
    read: dict[Place, int] = field(default_factory=dict)
    certain: bool = True
    """Whether offsets tell all of it; what files hold is known when they were read."""
    settled: bool = False
    """Whether a batch was run after the one that reached the end: it closes the windows of the last watermark."""

    @property
    def total(self) -> int:
        """Records in all; markers of transactions are counted too."""
        return sum(self.end[place] - self.begin[place] for place in self.end)

    @property
    def done(self) -> int:
        """Records that are behind it."""
        return sum(
            max(0, min(self.end[place], self.read.get(place, first)) - first) for place, first in self.begin.items()
        )


@dataclass(frozen=True)
class ReplayStage:
    """A replay at one moment."""

    done: int
    total: int
    rows: int
    """Rows that were read since it was started, files' too."""
    rate: float | None
    """Records a second, lately."""

    @property
    def left(self) -> float | None:
        """Seconds until the end, if it goes on like this."""
        return None if not self.rate else (self.total - self.done) / self.rate


class ReplayProgress:
    """The way of all queries; told by the engine, read by whoever shows it."""

    def __init__(self, ways: Mapping[str, PartitionProgress]) -> None:
        self._ways = dict(ways)
        self._rows = 0
        self._lock = threading.Lock()
        self._past: deque[tuple[float, int]] = deque()
        """When how much was done, from the first batch on: before it, Spark was starting."""

    def take(self, progress: BatchProgress) -> None:
        """A batch is finished."""
        with self._lock:
            way = self._ways.get(progress.query)
            if way is None:
                return
            way.settled = way.settled or (progress.executed and way.done == way.total)
            way.read.update(progress.read)
            self._rows += progress.input_rows
            now = time.monotonic()
            self._past.append((now, self._done()))
            while len(self._past) > 2 and self._past[1][0] < now - _WINDOW:
                self._past.popleft()

    def is_empty(self, query: str) -> bool:
        """Whether there is nothing to read for a query."""
        way = self._ways[query]
        return way.certain and way.total == 0

    def is_over(self, query: str) -> bool:
        """Whether a query has read everything that it shall, as far as offsets tell, and written what came of it.

        Where there is nothing more to read, Spark runs such a batch without input, if there is a watermark, and ends.
        """
        with self._lock:
            way = self._ways.get(query)
            return way is not None and way.certain and way.settled

    def stage(self) -> ReplayStage:
        """How far it is now."""
        with self._lock:
            total = sum(way.total for way in self._ways.values())
            return ReplayStage(self._done(), total, self._rows, self._rate() if self._past else None)

    def _rate(self) -> float | None:
        (since, before), (until, after) = self._past[0], self._past[-1]
        return (after - before) / (until - since) if until > since else None

    def _done(self) -> int:
        return sum(way.done for way in self._ways.values())
