"""Marks in dead topics: which letters of a partition have been dealt with, and how they look as records.

A mark lies in the partition of its letters, after them, and is written in the transaction that sends them again. So it
is there exactly if they were sent, it is kept as long as they are, and it goes with the topic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from millrace.clients.records import Record

KEY = b"millrace.redriven"
"""The key of every mark; a letter that happens to have it has the headers of a letter."""

Span = tuple[int, int]
"""From the first offset to the one after the last."""


def to_record(partition: int, offsets: Iterable[int], told: dict[str, Any]) -> Record:
    """The record that marks letters of a partition, with what else is to be said about it."""
    value = orjson.dumps({"letters": list(spans(offsets)), **told})
    return Record(value, KEY, partition=partition)


def from_record(key: bytes | None, value: bytes | None) -> list[Span] | None:
    """The letters that a record marks; None when it is no mark."""
    if key != KEY:
        return None
    try:
        return [(int(first), int(end)) for first, end in orjson.loads(value or b"")["letters"]]
    except (ValueError, TypeError, KeyError):
        return None


def spans(offsets: Iterable[int]) -> Iterator[Span]:
    """Offsets as spans, in order."""
    first = end = None
    for offset in sorted(set(offsets)):
        if first is not None and end is not None and offset != end:
            yield first, end
            first = None
        first, end = offset if first is None else first, offset + 1
    if first is not None and end is not None:
        yield first, end


@dataclass
class Marks:
    """The marked letters of dead topics."""

    _by_place: dict[tuple[str, int], list[Span]] = field(default_factory=dict)
    _tidy: dict[tuple[str, int], list[Span]] = field(default_factory=dict)

    def add(self, topic: str, partition: int, more: Iterable[Span]) -> None:
        """Take in what a mark says."""
        self._by_place.setdefault((topic, partition), []).extend(more)
        self._tidy.pop((topic, partition), None)

    def has(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a letter is marked."""
        place = (topic, partition)
        if place not in self._by_place:
            return False
        if place not in self._tidy:
            self._tidy[place] = _merged(self._by_place[place])
        found = self._tidy[place]
        at = bisect_right(found, offset, key=lambda span: span[0]) - 1
        return at >= 0 and offset < found[at][1]


def _merged(found: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for first, end in sorted(found):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return merged
