"""How fast records may go: a rate, kept exactly over time and smoothly at any moment."""

from __future__ import annotations

import threading
import time

_TICK = 0.02
_CATCH_UP = 2.0


class Clock:
    """Time as a run sees it; a test puts its own in its place."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Let time pass, but not when the run is over."""
        stop.wait(seconds)


class Pace:
    """Says how many records may go and when.

    Slices are a fiftieth of a second long. Each has its place in time, counted from the first, so no error
    adds up. After a stall, of the sink or of the origin, the slices that are due follow each other at twice
    the rate until the stall is made up for.
    """

    def __init__(self, rate: float | None, clock: Clock, stop: threading.Event) -> None:
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._begun: float | None = None
        self._earliest = 0.0
        self._sent = 0

    def slice(self, waiting: int) -> int:
        """How many of the waiting records may go at a time."""
        return waiting if self._rate is None else min(waiting, max(1, round(self._rate * _TICK)))

    def wait(self) -> None:
        """Return when the next records are due, or when the run is over."""
        if self._rate is None:
            return
        now = self._clock.now()
        if self._begun is None:
            self._begun = self._earliest = now
        due = max(self._begun + self._sent / self._rate, self._earliest)
        if due > now:
            self._clock.wait(due - now, self._stop)

    def sent(self, count: int) -> None:
        """Records have gone."""
        if self._rate is not None:
            self._sent += count
            self._earliest = self._clock.now() + count / self._rate / _CATCH_UP
