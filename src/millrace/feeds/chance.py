"""Weighted choice at the price of a list lookup: what is likelier stands in the list more often."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")

SIZE = 1 << 16
"""How long a table is: a draw is 16 bits."""


def draws(rng: random.Random, count: int) -> tuple[int, ...]:
    """Positions in a table, all equally likely; many times faster than as many calls of the generator."""
    return struct.unpack(f"<{count}H", rng.randbytes(2 * count))


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
    return [normal.inv_cdf((place + 0.5) / SIZE) for place in range(SIZE)]
