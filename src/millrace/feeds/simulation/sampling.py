"""What is talked about when: topics that rise and fall over minutes of event time."""

from __future__ import annotations

import random
from functools import lru_cache
from math import cos, exp, tau
from typing import NamedTuple

from millrace.feeds.chance import spread, zipf

_STEP = 5_000
_SHORTEST, _LONGEST = 180_000.0, 1_200_000.0
_HEAT = 1.5
_SHIFT = 4
_SIZE = (1 << 16) >> _SHIFT


class _Topic(NamedTuple):
    name: str
    fame: float
    period: float
    phase: float


class Trends:
    """Which topic a post is about: Zipf's law at any moment, with ranks that change.

    Each topic has its fame and its own period in which it flares up once, so the chart at a moment follows
    from the moment and the seed alone.
    """

    def __init__(self, rng: random.Random, names: tuple[str, ...]) -> None:
        ranked = rng.sample(names, len(names))
        self._topics = [
            _Topic(name, fame, rng.uniform(_SHORTEST, _LONGEST), rng.random())
            for name, fame in zip(ranked, zipf(len(ranked), 0.75), strict=True)
        ]
        self._chart = lru_cache(maxsize=64)(self._make_chart)

    def at(self, moment: int) -> list[str]:
        """The table of topics at a moment; `place` says where in it a draw falls."""
        return self._chart(moment // _STEP)

    def _make_chart(self, step: int) -> list[str]:
        now = step * _STEP
        weights = [topic.fame * exp(_HEAT * cos(tau * (now / topic.period + topic.phase))) for topic in self._topics]
        return spread([topic.name for topic in self._topics], weights, _SIZE)


def place(draw: int) -> int:
    """Where a draw falls in a chart, which is shorter than other tables because a new one is made so often."""
    return draw >> _SHIFT
