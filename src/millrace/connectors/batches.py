"""What a sink notes in the state folder before it writes: how the batch is cut into tasks."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from millrace.drafts import write_whole


@dataclass(frozen=True)
class Begun:
    """A batch that was begun: of which query, when, and what its tasks read, in few letters, to be compared."""

    query: str
    batch: int
    tasks: int
    read: str
    at: float = 0.0
    ledger: str = ""
    """Kafka's id of the topic that the notes of its tasks belong to; empty: not known."""

    @classmethod
    def of(cls, query: str, batch: int, read: tuple[str, ...], ledger: str = "") -> Begun:
        """Now; as the tasks are, in whatever order."""
        told = sha256("\n".join(sorted(read)).encode()).hexdigest()[:16]
        return cls(query, batch, len(read), told, time.time(), ledger)

    def is_cut_as(self, other: Begun) -> bool:
        """Whether both are the same batch, cut into the same tasks."""
        return replace(self, at=0.0, ledger="") == replace(other, at=0.0, ledger="")


class Batches:
    """A small file that is safe before a batch is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Begun | None = Begun(**json.loads(path.read_text("utf-8"))) if path.exists() else None

    def last(self, query: str) -> Begun | None:
        """The newest batch of a query that was begun; None before the first."""
        return self._last if self._last and self._last.query == query else None

    def begin(self, begun: Begun) -> None:
        """A batch is about to be written."""
        if begun != self._last:
            write_whole(self._path, json.dumps(asdict(begun)))
            self._last = begun
