"""Which group each letter of a dead topic was counted in, in few bytes: a mark tells later which letters it means."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from millrace.clients.dead import Found
from millrace.clients.marks import Span

_GONE = -1


class Placed:
    """The open letters, by partition in the order in which they lie."""

    def __init__(self) -> None:
        self._groups: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._offsets: dict[tuple[str, int], array[int]] = {}
        self._of: dict[tuple[str, int], array[int]] = {}

    def add(self, one: Found, group: dict[str, Any]) -> None:
        """Remember the group of a letter; one in a file says itself what became of it."""
        if one.partition is None:
            return
        number = self._numbers.setdefault(id(group), len(self._groups))
        if number == len(self._groups):
            self._groups.append(group)
        place = (one.home, one.partition)
        self._offsets.setdefault(place, array("q")).append(one.offset)
        self._of.setdefault(place, array("i")).append(_GONE if one.redriven else number)

    def take(self, topic: str, partition: int, spans: Iterable[Span]) -> Iterator[dict[str, Any]]:
        """The group of each letter that a mark means, each letter once."""
        offsets = self._offsets.get((topic, partition), array("q"))
        of = self._of.get((topic, partition), array("i"))
        for first, end in spans:
            for at in range(bisect_left(offsets, first), bisect_left(offsets, end)):
                if of[at] != _GONE:
                    yield self._groups[of[at]]
                    of[at] = _GONE
