"""L1, L2, M: a thousand records a second, each with a number that says when it was sent; when is its result there?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

import orjson

KEYS = 10_000
"""So many that a key comes again only after seconds: hardly two records of one key share a batch."""
WINDOW_KEYS = 100
WINDOW_MS = 10_000


@dataclass
class Latency:
    """What was sent, when, and when its result came; times in seconds of the clock."""

    name: str
    letter: str
    about: str
    partitions: int = 2
    sent: list[float] = field(default_factory=list)
    came: dict[int, float] = field(default_factory=dict)
    twice: int = 0
    wrong: list[str] = field(default_factory=list)
    _covered: dict[Hashable, int] = field(default_factory=lambda: defaultdict(int))

    def record(self, now: float) -> tuple[int, bytes, bytes]:
        """Partition, key and bytes of the next record."""
        number = len(self.sent)
        self.sent.append(now)
        key = number % KEYS
        return key % self.partitions, b"%d" % key, b'{"key":%d,"at":%d}' % (key, number)

    def take(self, value: bytes, now: float) -> None:
        """A result: of one record when nothing is kept, else the count of its key."""
        if not value:
            return
        said = orjson.loads(value)
        if said.get("diff") == -1:
            return
        if "even" in said:
            self._passed(said, now)
        else:
            self._counted(int(said["key"]), int(said["count"]), now)

    def missing(self) -> int:
        """Records without a result."""
        return len(self.sent) - len(self.came)

    def took(self, since: float) -> list[float]:
        """Milliseconds of each record that was sent since a moment."""
        return [(self.came[n] - sent) * 1000 for n, sent in enumerate(self.sent) if sent >= since and n in self.came]

    def problem(self) -> str | None:
        """What is wrong, if anything is."""
        if self.wrong:
            return f"{len(self.wrong)} wrong: {self.wrong[0]}"
        if self.twice:
            return f"{self.twice} twice"
        return f"{self.missing()} of {len(self.sent)} missing" if self.missing() else None

    def _passed(self, said: dict[str, object], now: float) -> None:
        number, key = int(str(said["at"])), int(str(said["key"]))
        if key != number % KEYS or said["even"] is not (key % 2 == 0):
            self.wrong.append(str(said))
        self.twice += number in self.came
        self.came.setdefault(number, now)

    def _counted(self, key: int, count: int, now: float) -> None:
        """A count covers every record of its key up to it."""
        if key + (count - 1) * KEYS >= len(self.sent):
            self.wrong.append(f"key {key}: {count}")
        for each in range(self._covered[key], count):
            self.came.setdefault(key + each * KEYS, now)
        self._covered[key] = max(count, self._covered[key])


def stateless() -> Latency:
    """A filter and a new column."""
    return Latency("stateless", "L1", "filter and project, 1,000 records/s")


def keyed() -> Latency:
    """A running count."""
    return Latency("keyed", "L2", "running count by key, 1,000 records/s")


@dataclass
class Windowed(Latency):
    """Records are counted by key in windows of their event time, which is when they were sent."""

    _in_window: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """The records of each key and window, in their order."""

    def record(self, now: float) -> tuple[int, bytes, bytes]:
        """Partition, key and bytes of the next record."""
        number = len(self.sent)
        self.sent.append(now)
        key, at = number % WINDOW_KEYS, int(now * 1000)
        self._in_window[key, at // WINDOW_MS * WINDOW_MS].append(number)
        return key % self.partitions, b"%d" % key, b'{"key":%d,"at":%d}' % (key, at)

    def take(self, value: bytes, now: float) -> None:
        """A count, which covers the first records of its key and window."""
        said = orjson.loads(value or b"{}")
        if "count" not in said or said.get("diff") == -1:
            return
        window, count = (int(said["key"]), int(said["window"])), int(said["count"])
        numbers = self._in_window.get(window, [])
        if count > len(numbers):
            self.wrong.append(f"{window}: {count} of {len(numbers)}")
        for number in numbers[self._covered[window] : count]:
            self.came[number] = now
        self._covered[window] = max(count, self._covered[window])


def windowed() -> Latency:
    """A count by key in windows of 10 s, updated as records come."""
    return Windowed("windowed", "M1", "windowed count, 1,000 records/s, at rest")


def filtered() -> Latency:
    """A filter and a new column, in micro-batches where a program has them."""
    return Latency("filtered", "M2", "filter and project, 1,000 records/s, at rest")
