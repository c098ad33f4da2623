"""Read the files of a streaming query's checkpoint as Spark writes them.

- `metadata` holds the id of the query.
- `offsets/N` holds the plan of batch N: a version, a line of JSON with watermark and settings, a line for each source.
- `commits/N` exists when batch N is finished.
- `sources/I/0` holds where source I started.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the offset log or the commit log: its metadata, and where each source is, in Spark's order."""

    metadata: dict[str, Any]
    sources: tuple[Any, ...] = ()


def query_id(checkpoint: Path) -> str:
    """Return Spark's id of the query, which lives as long as its checkpoint; empty before its first start."""
    metadata = checkpoint / "metadata"
    return str(json.loads(metadata.read_text("utf-8"))["id"]) if metadata.exists() else ""


def batch_files(log: Path) -> dict[int, Path]:
    """Return the files of a log by batch."""
    return {int(path.name): path for path in log.glob("*") if path.name.isdecimal()}


def last_planned_batch(checkpoint: Path) -> int:
    """Return the newest batch that was planned; -1 before the first."""
    return max(batch_files(checkpoint / "offsets"), default=-1)


def last_committed_batch(checkpoint: Path) -> int:
    """Return the newest batch that was finished; -1 before the first."""
    return max(batch_files(checkpoint / "commits"), default=-1)


def unfinished_batch(checkpoint: Path) -> int | None:
    """Return the batch that was planned and not finished, which the next run starts with."""
    planned = last_planned_batch(checkpoint)
    return planned if planned > last_committed_batch(checkpoint) else None


def planned_batch(checkpoint: Path, batch: int) -> bytes:
    """Return the plan of a batch as Spark wrote it; empty when the batch is not planned."""
    with suppress(FileNotFoundError):
        return (checkpoint / "offsets" / str(batch)).read_bytes()
    return b""


def read_entry(path: Path) -> LogEntry | None:
    """Return an entry of a log; None when it cannot be read."""
    try:
        _version, metadata, *sources = path.read_text("utf-8").split("\n")
        return LogEntry(json.loads(metadata), tuple(map(json_or_text, sources)))
    except (OSError, ValueError):
        return None


def source_starts(checkpoint: Path) -> Iterator[dict[str, Any]]:
    """Yield where each source started, if it is a source that writes this to the checkpoint as JSON."""
    for path in sorted((checkpoint / "sources").glob("*/0")):
        with suppress(OSError, ValueError):  # the file source has its log of files here: a line of JSON for each
            _version, brace, start = path.read_text("utf-8").partition("{")
            if brace:
                yield json.loads(brace + start)


def json_or_text(text: str) -> Any:
    """Return the value of a line: sources write JSON or text of their own."""
    try:
        return json.loads(text)
    except ValueError:
        return text
