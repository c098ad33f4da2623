"""What Spark's checkpoint of a query says of its batches."""

from __future__ import annotations

from pathlib import Path


def finished(checkpoint: Path) -> int:
    """The newest batch that was finished; -1 before the first."""
    return _newest(checkpoint / "commits")


def unfinished(checkpoint: Path) -> int | None:
    """The batch that was begun and not finished, which the next run begins with."""
    begun = _newest(checkpoint / "offsets")
    return begun if begun > finished(checkpoint) else None


def _newest(log: Path) -> int:
    return max((int(path.name) for path in log.glob("*") if path.name.isdecimal()), default=-1)
