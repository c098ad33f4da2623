"""How the ends of partitions have grown of late: from that, how old what waits is, and how fast topics grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

Place = tuple[str, int]
"""A topic and a partition."""
KEPT = 900
"""Looks that are remembered: a quarter of an hour, at one a second."""
_OVER = 5.0
"""Seconds over which a rate is measured."""


class Ends:
    """The end offsets of partitions at each look, with the moment of it by the monotonic clock."""

    def __init__(self, kept: int = KEPT) -> None:
        self._looks: deque[tuple[float, Mapping[Place, int]]] = deque(maxlen=kept)

    def add(self, moment: float, ends: Mapping[Place, int]) -> None:
        """One more look."""
        self._looks.append((moment, dict(ends)))

    @property
    def newest(self) -> Mapping[Place, int]:
        """The ends at the last look."""
        return self._looks[-1][1] if self._looks else {}

    def waited(self, place: Place, read: int, now: float) -> float | None:
        """Seconds for which the first unread record has been there; None when it was there before the first look."""
        if self.newest.get(place, 0) <= read:
            return 0.0
        later: tuple[float, int] | None = None
        for moment, ends in reversed(self._looks):
            end = ends.get(place)
            if end is None:
                break
            if end <= read:
                return max(0.0, now - _between((moment, end), later, read)) if later else 0.0
            later = (moment, end)
        return None

    def rates(self) -> dict[str, float]:
        """Records a second that come into each topic."""
        if len(self._looks) < 2:
            return {}
        now, newest = self._looks[-1]
        then, before = next(((at, ends) for at, ends in self._looks if now - at <= _OVER), self._looks[-2])
        if then >= now:
            then, before = self._looks[-2]
        rates: dict[str, float] = {}
        for (topic, number), end in newest.items():
            grown = max(0, end - before.get((topic, number), end))
            rates[topic] = rates.get(topic, 0.0) + grown / max(now - then, 1e-9)
        return rates


def _between(before: tuple[float, int], after: tuple[float, int], read: int) -> float:
    """When the record at an offset came, if records came evenly between two looks."""
    (start, low), (end, high) = before, after
    return start + (end - start) * (read - low) / max(1, high - low)
