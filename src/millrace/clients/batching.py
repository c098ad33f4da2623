"""Items in batches that are limited in number and in size, for requests and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TypeVar

T = TypeVar("T")


def limited_batches(
    items: Iterable[T], most: int, size_of: Callable[[T], int] = lambda _: 0, most_bytes: float = inf
) -> Iterator[list[T]]:
    """Yield items in order, at most `most` items and `most_bytes` bytes in a batch; a larger item comes alone."""
    batch: list[T] = []
    batch_bytes = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == most or batch_bytes + size > most_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += size
    if batch:
        yield batch
