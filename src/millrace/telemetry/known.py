"""Figures of which some are not known: sums and largest ones of those that are."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None when nothing is."""
    known = [one for one in values if one is not None]
    return sum(known) if known else None


def most(values: Iterable[float | None]) -> float | None:
    """The largest of what is known; None when nothing is."""
    return max((one for one in values if one is not None), default=None)
