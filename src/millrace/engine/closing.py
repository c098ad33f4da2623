"""The batch that closes windows: a watermark counts from the batch after the one that it was seen in."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.engine.checkpoint import finished, unfinished


def is_closed(checkpoint: Path) -> bool:
    """Whether the watermark of the last finished batch has had its effect, or there is nothing that it could close."""
    last = finished(checkpoint)
    if last < 0 or not (checkpoint / "state").is_dir():
        return True
    return _said(checkpoint / "commits" / str(last), "nextBatchWatermarkMs") <= _said(
        checkpoint / "offsets" / str(last), "batchWatermarkMs"
    )


def reopen(checkpoint: Path) -> None:
    """Let the last batch be run again, and so the one that closes its windows.

    Spark runs a batch without input only after one that it has run itself since it was started. The sinks know the
    batch by its number, and do not write it twice.
    """
    if unfinished(checkpoint) is None and not is_closed(checkpoint):
        commits, last = checkpoint / "commits", finished(checkpoint)
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def _said(path: Path, name: str) -> int:
    """A number in the head of a file of Spark's logs: after the line with its form comes JSON."""
    try:
        return int(json.loads(path.read_text("utf-8").split("\n")[1]).get(name, 0))
    except (OSError, ValueError, IndexError, TypeError):
        return 0
