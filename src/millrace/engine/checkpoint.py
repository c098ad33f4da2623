"""What Spark's checkpoint of a query says of its batches."""

from __future__ import annotations

from pathlib import Path

CHECKPOINTS = "checkpoints"
"""The folder of the state that holds the checkpoints of queries that write."""
PANEL_CHECKPOINTS = "panels"
"""The folder of the state that holds the checkpoints of queries that only draw panels."""


def finished(checkpoint: Path) -> int:
    """The newest batch that was finished; -1 before the first."""
    return max(batches(checkpoint / "commits"), default=-1)


def unfinished(checkpoint: Path) -> int | None:
    """The batch that was begun and not finished, which the next run begins with."""
    begun = max(batches(checkpoint / "offsets"), default=-1)
    return begun if begun > finished(checkpoint) else None


def batches(log: Path) -> list[int]:
    """The numbers of the batches that one of its logs tells of."""
    return [int(path.name) for path in log.glob("*") if path.name.isdecimal()]
