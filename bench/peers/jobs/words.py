"""W: words are counted. Lines of eight words; a running count of each word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from peers.answers import Counts, Entry
from peers.contract import Job


class Words(Job):
    """Eight words out of a thousand in each line."""

    name = "words"
    letter = "W"
    about = "word count, lines of 8 words"

    def __init__(self, records: int) -> None:
        self.records = records

    def sizes(self) -> tuple[int, int]:
        """Halves of one size."""
        return self.records, self.records

    def first(self) -> Iterable[tuple[int, bytes]]:
        """The lines from 0 on."""
        return self._lines(0)

    def second(self) -> Iterable[tuple[int, bytes]]:
        """The lines after them."""
        return self._lines(self.records)

    def answer(self) -> Counts:
        """The count of each word."""
        first, second = self._counted
        return Counts(first, second, read, self.sizes())

    @cached_property
    def _counted(self) -> tuple[Counter[str], Counter[str]]:
        first = counted(range(self.records))
        return first, first + counted(range(self.records, 2 * self.records))

    def _lines(self, start: int) -> Iterable[tuple[int, bytes]]:
        for number in range(start, start + self.records):
            yield number % self.partitions, line(number)


def line(number: int) -> bytes:
    """Eight words."""
    return " ".join(f"word{number * step % 1000}" for step in range(1, 9)).encode()


def counted(numbers: range) -> Counter[str]:
    """How often each word is in the lines of these numbers: they repeat after a thousand."""
    whole, rest = divmod(len(numbers), 1000)
    cycle, left = Counter[str](), Counter[str]()
    for number in range(1000):
        cycle.update(line(number).decode().split())
    for number in numbers[:rest]:
        left.update(line(number).decode().split())
    return Counter({word: count * whole for word, count in cycle.items()}) + left


def read(said: dict[str, object]) -> Entry:
    """A word and its count."""
    return str(said["word"]), int(str(said["count"]))
