"""What a dead topic holds, for one who is about to send letters of it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from millrace.clients import dead
from millrace.clients.cluster import Cluster
from millrace.clients.dead import Found
from millrace.clients.letters import Letter
from millrace.clients.marks import Marks


@dataclass
class Known:
    """What a dead topic holds: marks, and which letters are of the same record.

    A record that several pipelines could not use has a letter of each. It is sent again once, for all of them.
    """

    topic: str
    marks: Marks = field(default_factory=Marks)
    _ours: set[int] = field(default_factory=set)
    """Letters that we have dealt with ourselves."""
    _first: dict[int, int] = field(default_factory=dict)
    _others: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, cluster: Cluster, topic: str, where: dead.Extent) -> Known:
        """Everything up to the end: not one mark may be missed."""
        known = cls(topic)
        for one in dead.within(cluster, where, marked=known.marks.add, whole=True):
            record, place = _record(one.letter), _packed(one.partition or 0, one.offset)
            if known._first.setdefault(record, place) != place:
                known._others.setdefault(record, []).append(place)
        return known

    def is_marked(self, one: Found) -> bool:
        """Whether the letter itself is dealt with."""
        return self._has(one.partition or 0, one.offset)

    def is_sent(self, one: Found) -> bool:
        """Whether its record was sent again, for this letter or for another."""
        return any(self._has(*place) for place in self.places(one))

    def places(self, one: Found) -> tuple[tuple[int, int], ...]:
        """Where every letter of the same record lies."""
        record = _record(one.letter)
        return tuple(map(_unpacked, (self._first[record], *self._others.get(record, ()))))

    def mark(self, places: Iterable[tuple[int, int]]) -> None:
        """Take letters for dealt with."""
        self._ours.update(_packed(*place) for place in places)

    def _has(self, partition: int, offset: int) -> bool:
        return _packed(partition, offset) in self._ours or self.marks.has(self.topic, partition, offset)


def _record(letter: Letter) -> int:
    """A number for the record of a letter; a topic that was made anew has others at the same offsets."""
    place = repr((letter.topic, letter.partition, letter.offset, letter.timestamp, letter.key)).encode()
    return int.from_bytes(blake2b(place + (letter.value or b""), digest_size=16).digest(), "big")


def _packed(partition: int, offset: int) -> int:
    return partition << 64 | offset


def _unpacked(place: int) -> tuple[int, int]:
    return place >> 64, place & ((1 << 64) - 1)
