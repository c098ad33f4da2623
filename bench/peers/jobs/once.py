"""E: a topic is copied to another, each record exactly once."""

from __future__ import annotations

from collections.abc import Iterable

from peers.answers import Once
from peers.contract import Job
from peers.jobs.words import line


class Copied(Job):
    """Lines with a number in front; transactions are read when they are committed."""

    name = "once"
    letter = "E"
    about = "Kafka to Kafka, exactly once"
    outputs = 2

    def __init__(self, records: int) -> None:
        self.records = records

    def sizes(self) -> tuple[int, int]:
        """Halves of one size."""
        return self.records, self.records

    def first(self) -> Iterable[tuple[int, bytes]]:
        """The numbers from 0 on."""
        return self._numbered(0)

    def second(self) -> Iterable[tuple[int, bytes]]:
        """And after them."""
        return self._numbered(self.records)

    def answer(self) -> Once:
        """Every number once."""
        return Once(self.records, self.records)

    def _numbered(self, start: int) -> Iterable[tuple[int, bytes]]:
        for number in range(start, start + self.records):
            yield number % self.partitions, b"%d %s" % (number, line(number))
