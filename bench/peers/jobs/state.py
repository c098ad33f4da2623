"""S: a running count by key, with ever more keys: the first half fills the state, the second meets it full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from peers.answers import Counts, Entry
from peers.contract import Job

FILLING = 500_000
"""Records of the first half at least: with few keys they come several times, so that every program is as warm."""
UPDATES = 200_000
"""Records that meet the full state."""
STEP = 2_654_435_761
"""Odd and without a factor in common with the numbers of keys, so that keys come in no order."""


class State(Job):
    """Every key, then as many records for all numbers of keys."""

    name = "state"
    letter = "S"

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.filling = max(keys, FILLING)
        self.about = f"running count, {keys:,} keys"

    def sizes(self) -> tuple[int, int]:
        """The second is the same for every number of keys."""
        return self.filling, UPDATES

    def first(self) -> Iterable[tuple[int, bytes]]:
        """Every key."""
        return self._records(0, self.filling)

    def second(self) -> Iterable[tuple[int, bytes]]:
        """Keys again, spread over all of them."""
        return self._records(self.filling, UPDATES)

    def answer(self) -> Counts:
        """The count of each key."""
        first, second = self._counted
        return Counts(first, second, read, self.sizes())

    @cached_property
    def _counted(self) -> tuple[Counter[int], Counter[int]]:
        first, second = range(self.filling), range(self.filling, self.filling + UPDATES)
        filled = Counter(key_of(number, self.keys) for number in first)
        return filled, filled + Counter(key_of(number, self.keys) for number in second)

    def _records(self, start: int, size: int) -> Iterable[tuple[int, bytes]]:
        for number in range(start, start + size):
            yield number % self.partitions, b'{"key":%d,"at":%d}' % (key_of(number, self.keys), number)


def key_of(number: int, keys: int) -> int:
    """The key of a record."""
    return number * STEP % keys


def read(said: dict[str, object]) -> Entry:
    """A key and its count."""
    return int(str(said["key"])), int(str(said["count"]))
