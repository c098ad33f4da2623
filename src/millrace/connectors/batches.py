"""What a sink notes in the state folder before it writes: how the batch is cut into tasks."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True)
class Begun:
    """A batch that was begun: of which query, when, and what its tasks read, in few letters, to be compared."""

    query: str
    batch: int
    tasks: int
    read: str
    at: float = 0.0

    @classmethod
    def of(cls, query: str, batch: int, read: tuple[str, ...]) -> Begun:
        """Now; as the tasks are, in whatever order."""
        told = sha256("\n".join(sorted(read)).encode()).hexdigest()[:16]
        return cls(query, batch, len(read), told, time.time())

    def is_cut_as(self, other: Begun) -> bool:
        """Whether both are the same batch, cut into the same tasks."""
        return replace(self, at=0.0) == replace(other, at=0.0)


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
            self._save(begun)

    def _save(self, begun: Begun) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".tmp")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(begun), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._last = begun
