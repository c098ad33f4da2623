"""The two kinds of answers: a count for each key, of which the last word holds; and records that must be there once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import orjson

from peers.contract import Answer

Entry = tuple[Hashable, int]


class Counts(Answer):
    """Counts by key. A program may write a key's count as often as it likes; its last word must be right."""

    def __init__(
        self,
        first: Mapping[Hashable, int],
        second: Mapping[Hashable, int],
        read: Callable[[dict[str, object]], Entry | None],
        records: tuple[int, int],
    ) -> None:
        self._expected, self._next = dict(first), dict(second)
        self._read = read
        self._records = records
        self._seen: dict[Hashable, int] = {}
        self._open = len(self._expected)
        self._floor = False

    def take(self, value: bytes) -> None:
        """A count; null is a tombstone, diff -1 a value that is taken back, seen what a program only counted."""
        if not value:
            return
        said = orjson.loads(value)
        if "seen" in said:
            self._floor = said["seen"] == self._records[0]
            return
        if said.get("diff") == -1:
            return
        entry = self._read(said)
        if entry is None:
            return
        key, count = entry
        wanted = self._expected.get(key)
        self._open += (self._seen.get(key) == wanted) - (count == wanted)
        self._seen[key] = count

    def right(self) -> bool:
        """Every key has its count and there is none too many."""
        return self._floor or (not self._open and len(self._seen) == len(self._expected))

    def ask(self) -> None:
        """Count on: the expectation is that of both halves."""
        self._expected = self._next
        self._records = (sum(self._records), 0)
        self._open = sum(self._seen.get(key) != count for key, count in self._expected.items())
        self._floor = False

    def problem(self) -> str:
        """A key that is wrong."""
        wrong = [key for key, count in self._expected.items() if self._seen.get(key) != count]
        other = [key for key in self._seen if key not in self._expected]
        if not wrong and not other:
            return "none"
        key = (wrong or other)[0]
        how_many = f"{len(wrong):,} of {len(self._expected):,} keys wrong, {len(other):,} unknown"
        return f"{how_many}: {key} is {self._seen.get(key)}, not {self._expected.get(key)}"


class Once(Answer):
    """Numbers at the start of records, each of which must be there exactly once."""

    def __init__(self, first: int, second: int) -> None:
        self._expected, self._next = first, first + second
        self._seen = bytearray(self._next)
        self._found = 0
        self._twice = 0

    def take(self, value: bytes) -> None:
        """A record; its number ends at the first blank."""
        number = int(value[: value.index(b" ")])
        self._twice += self._seen[number]
        self._found += not self._seen[number]
        self._seen[number] = 1

    def right(self) -> bool:
        """All there, none twice."""
        return self._found == self._expected and not self._twice

    def ask(self) -> None:
        """Both halves."""
        self._expected = self._next

    def problem(self) -> str:
        """How many are missing and how many too many."""
        return f"{self._expected - self._found:,} of {self._expected:,} missing, {self._twice:,} twice"
