"""L1 and L2: a thousand records a second, each with a number that tells when it was sent; when is its result there?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import orjson

KEYS = 10_000
"""So many that a key comes again only after seconds: hardly two records of one key share a batch."""


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
    _covered: dict[int, int] = field(default_factory=lambda: defaultdict(int))

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
        if self.name == "stateless":
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
