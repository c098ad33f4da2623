"""What a sink notes in the state folder before it writes: into how many tasks a batch is cut."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Batches:
    """A small file, written only when something has changed, and safe before a batch begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def tasks(self, query: str) -> int | None:
        """Into how many tasks the newest batch of a query was cut; None before the first."""
        return int(self._told["tasks"]) if self._told.get("query") == query else None

    def has_written(self, query: str) -> bool:
        """Whether a batch of a query had rows, ever."""
        return self._told.get("query") == query and bool(self._told.get("written"))

    def begin(self, query: str, tasks: int) -> None:
        """A batch is about to be written."""
        if self.tasks(query) != tasks:
            self._save({"query": query, "tasks": tasks, "written": self.has_written(query)})

    def wrote(self, query: str) -> None:
        """A batch with rows is written."""
        if not self.has_written(query):
            self._save({**self._told, "written": True})

    def _save(self, told: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".tmp")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._told = told
