"""The batch that a query was at when it failed, as its checkpoint tells."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.engine.checkpoint import finished, unfinished
from millrace.engine.spoken import Range, offsets_in, ranges_between


@dataclass(frozen=True, slots=True)
class InHand:
    """How far a query is: what is done, and what was begun and is not done."""

    done: int = -1
    batch: int | None = None
    ranges: tuple[Range, ...] = ()
    """The records of the batch, where they come from Kafka."""

    def __str__(self) -> str:
        """The batch with its records."""
        shown = "; ".join(map(str, self.ranges[:4])) + ("; …" if len(self.ranges) > 4 else "")
        return f"batch {self.batch}" + (f": {shown}" if shown else "")


def in_hand(checkpoint: Path) -> InHand:
    """The state of a query's checkpoint; without one, nothing is done and nothing was begun."""
    done, begun = finished(checkpoint), unfinished(checkpoint)
    if begun is None:
        return InHand(done)
    offsets = checkpoint / "offsets"
    before = "" if begun == 0 else _read(offsets / str(begun - 1))
    return InHand(done, begun, tuple(ranges_between(before, _read(offsets / str(begun)))))


def position(checkpoint: Path) -> dict[tuple[str, int], int]:
    """Where a query reads next, by topic and partition: at the start of the batch that was begun, or after the last."""
    done = finished(checkpoint)
    if done < 0:  # where the first batch begins is noted by Spark's sources, and beside the state by ours
        texts = [_read(path) for path in (checkpoint / "sources").glob("*/0")]
        if (checkpoint / "offsets" / "0").exists():
            texts += [_read(path) for path in (checkpoint.parents[1] / "starts" / checkpoint.name).glob("*.json")]
    else:
        texts = [_read(checkpoint / "offsets" / str(done))]
    return {place: offset for text in texts for place, offset in offsets_in(text).items()}


def _read(path: Path) -> str:
    with suppress(OSError):  # it is an extra: what failed is told without it
        return path.read_text("utf-8")
    return ""
