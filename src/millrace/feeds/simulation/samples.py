"""What is talked about when: topics that rise and fall over minutes of event time.

Weighted choice at the price of a list lookup: what is likelier stands in the list more often.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from math import cos, exp, tau
from statistics import NormalDist
from typing import NamedTuple, TypeVar

T = TypeVar("T")

SIZE = 1 << 16
"""How long a table is: a draw is 16 bits."""


def draws(rng: random.Random, count: int) -> tuple[int, ...]:
    """Positions in a table, all equally likely; many times faster than as many calls of the generator."""
    return struct.unpack(f"<{count}H", rng.randbytes(2 * count))


def with_draws(times: Sequence[int], rng: random.Random, count: int) -> Iterator[tuple[int, ...]]:
    """Each time with as many draws."""
    return zip(times, *(draws(rng, len(times)) for _ in range(count)), strict=True)


def spread(items: Sequence[T], weights: Sequence[float], size: int = SIZE) -> list[T]:
    """A table of the items, each in as many places as its weight says."""
    table: list[T] = []
    total, so_far = sum(weights), 0.0
    for item, weight in zip(items, weights, strict=True):
        so_far += weight
        table += [item] * (round(so_far / total * size) - len(table))
    return table


def zipf(count: int, exponent: float) -> list[float]:
    """Weights by rank: the first is by far the largest, and there is a long tail."""
    return [rank**-exponent for rank in range(1, count + 1)]


@cache
def bell() -> list[float]:
    """A table of normally distributed numbers (mean 0, deviation 1)."""
    normal = NormalDist()
    return [normal.inv_cdf((index + 0.5) / SIZE) for index in range(SIZE)]


_STEP = 5_000
_SHORTEST, _LONGEST = 180_000.0, 1_200_000.0
_HEAT = 1.5
_SHIFT = 4
_SIZE = SIZE >> _SHIFT


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
        """The table of topics at a moment; `chart_index` says where in it a draw falls."""
        return self._chart(moment // _STEP)

    def _make_chart(self, step: int) -> list[str]:
        now = step * _STEP
        weights = [topic.fame * exp(_HEAT * cos(tau * (now / topic.period + topic.phase))) for topic in self._topics]
        return spread([topic.name for topic in self._topics], weights, _SIZE)


def chart_index(draw: int) -> int:
    """Where a draw falls in a chart, which is shorter than other tables because a new one is made so often."""
    return draw >> _SHIFT
