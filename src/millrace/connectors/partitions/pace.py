"""How many records a batch may have, so that one after another takes about as long as a batch should."""

from __future__ import annotations

_FIRST = 1_000_000
"""Records of a batch, before it is known how quick the query is."""
_LEAST = 10_000
_TARGET = 10.0
"""Seconds; a trigger that leaves more time between batches has its own."""
_IN_TIME, _TOO_LONG = 1.1, 1.5
"""Times the target: a batch that ends before the trigger's time seems to take all of it, and a little more."""


class Pace:
    """A cap that follows the batches which it cut: twice as much after a quick one, in proportion after a slow one."""

    def __init__(self, interval: float = 0.0) -> None:
        """`interval` is the time from one batch to the next that the trigger asks for."""
        self._target = max(_TARGET, interval)
        self.most = round(_FIRST * self._target / _TARGET)
        self._cut: tuple[object, float] | None = None

    def cut(self, end: object, now: float) -> None:
        """A batch was cut off here, and begins now."""
        self._cut = (end, now)

    def begins(self, start: object, now: float) -> None:
        """The next batch begins: the one before is done, if it ended here."""
        if self._cut is None:
            return
        end, began = self._cut
        self._cut = None
        took = now - began
        if start != end:  # another run of the query
            return
        if took <= self._target * _IN_TIME:
            self.most *= 2
        elif took > self._target * _TOO_LONG:
            self.most = max(_LEAST, round(self.most * self._target / took))
