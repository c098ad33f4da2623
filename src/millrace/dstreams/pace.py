"""How many records a second the batches to come may have, learned from those that are done: backpressure."""

from __future__ import annotations

from typing import Any

from millrace.dstreams.attention import Told

_ENABLED = "spark.streaming.backpressure.enabled"
_FIRST = "spark.streaming.backpressure.initialRate"
_PID = "spark.streaming.backpressure.pid."


class Pace:
    """A controller with a proportional, an integral and a derived term, as Spark's own receivers have it."""

    def __init__(self, interval: float, first: float | None, terms: tuple[float, float, float], least: float) -> None:
        self.rate = first
        """Records a second; None until there is something to learn from."""
        self._interval, self._least = interval, least
        self._proportional, self._integral, self._derived = terms
        self._last: tuple[int, float, float] | None = None
        """When the last batch ended, its rate and its error."""

    @classmethod
    def of(cls, conf: Any, interval: float) -> Pace | None:
        """The one that Spark's settings ask for, if they do; `interval` is the batch's, in seconds."""
        if str(conf.get(_ENABLED, "false")).lower() != "true":
            return None

        def number(name: str, otherwise: float) -> float:
            return float(conf.get(_PID + name, str(otherwise)))

        first = conf.get(_FIRST)
        terms = number("proportional", 1.0), number("integral", 0.2), number("derived", 0.0)
        return cls(interval, float(first) if first else None, terms, number("minRate", 100.0))

    def learn(self, told: Told, records: int) -> None:
        """Take a batch into account; one without records or work says nothing."""
        if records <= 0 or told.worked <= 0 or (self._last and told.ended <= self._last[0]):
            return
        reached = records / told.worked
        if self._last is None:
            self._last = (told.ended, reached, 0.0)
            self.rate = min(self.rate, reached) if self.rate else reached
            return
        since, rate, error_before = self._last
        seconds = (told.ended - since) / 1000
        error = rate - reached
        waiting = told.waited * reached / self._interval
        change = (error - error_before) / seconds
        wanted = rate - self._proportional * error - self._integral * waiting - self._derived * change
        self.rate = max(wanted, self._least)
        self._last = (told.ended, self.rate, error)
