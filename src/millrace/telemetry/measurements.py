"""What is measured beside Spark's own words: how far queries are behind, how topics grow, what the process uses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one query is behind what it reads; None where that cannot be known, with the reason."""

    records: int | None = None
    seconds: float | None = None
    partitions: Mapping[str, int | None] | None = None
    """Records by `topic/partition`."""
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process and Spark's JVM use."""

    cpu: float | None = None
    """Cores that are busy for both of them together."""
    memory: int | None = None
    jvm_memory: int | None = None
    threads: int | None = None


class Samples:
    """The newest of each; thread-safe, since each is replaced as a whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lags: dict[str, Lag] = {}
        self._rates: dict[str, float] = {}
        self.usage = Usage()
        self.doing = ""
        """What a run does before it has queries, in words."""
        self.failure: str | None = None
        """Why the run has failed, when it is not a query that did."""
        self.over = False

    def put_lag(self, query: str, lag: Lag) -> None:
        """How far a query is behind now."""
        with self._lock:
            self._lags[query] = lag

    def put_rates(self, rates: Mapping[str, float]) -> None:
        """Records a second that come into each topic now."""
        with self._lock:
            self._rates = dict(rates)

    def lag(self, query: str) -> Lag | None:
        """How far a query is behind, if that was measured."""
        with self._lock:
            return self._lags.get(query)

    def rate(self, topic: str) -> float | None:
        """Records a second that come into a topic, if that was measured."""
        with self._lock:
            return self._rates.get(topic)
